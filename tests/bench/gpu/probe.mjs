// What a GPU can do, in Node by the package `webgpu`: adapter, features, limits, copy bandwidth, an
// empty submit, arithmetic, what a dispatch costs that reads what the one before wrote, and what the
// CPU needs to encode one. The work
// grows until it can be timed, so a fast GPU takes a second and a software adapter not much longer.
import { create, globals } from 'webgpu';
import { isSoftware } from './driver.mjs';

Object.assign(globalThis, globals);

const kMaxCopyBytes = 1 << 30;
const kMaxDispatches = 4096;
const kLongMs = 40;
const kTimes = 5;
const kChain = `
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
  values[lane] += values[(lane + 1u) % 64u];
}`;
/** Four independent chains of multiplications and additions of four values. */
const arithmetic = (type, steps) => `${type === 'f16' ? 'enable f16;' : ''}
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let by = vec4<${type}>(${type}(values[0] & 1u) + ${type}(0.5));
  var a = by; var b = by + by; var c = by * by; var d = by - by;
  for (var i = 0u; i < ${steps}u; i++) {
    a = a * by + by; b = b * by + by; c = c * by + by; d = d * by + by;
  }
  let all = a + b + c + d;
  if (all.x + all.y + all.z + all.w == ${type}(1.25)) {
    values[id.x % 64u] = 1u;
  }
}`;
/** What the engine's kernels bind, at least: parameters, activations, vectors and weights. */
const bound = (factor) => `
@group(0) @binding(0) var<uniform> at: vec4u;
@group(0) @binding(1) var<storage, read_write> values: array<u32>;
@group(0) @binding(2) var<storage, read> vectors: array<u32>;
@group(0) @binding(3) var<storage, read> weights: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
  values[lane] = ${factor}u * vectors[lane] + weights[at.x];
}`;
const kEncoded = 512;
const kSlot = 256;
const kSteps = 256;
const kFlops = 2 * 16 * kSteps * 256; // of a workgroup
const kMaxGroups = 32768;

class Probe {
  #device;
  #buffers = [];
  constructor(device) {
    this.#device = device;
  }

  buffer(size) {
    const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | GPUBufferUsage.STORAGE;
    this.#buffers.push(this.#device.createBuffer({ size, usage }));
    return this.#buffers.at(-1);
  }

  close() {
    for (const buffer of this.#buffers) buffer.destroy();
    this.#device.destroy();
  }

  /** Milliseconds of `work` until the GPU is done: the best of a few. */
  async best(work, times = kTimes) {
    let least = Infinity;
    for (let i = 0; i < times; i++) {
      const began = performance.now();
      const encoder = this.#device.createCommandEncoder();
      work(encoder);
      this.#device.queue.submit([encoder.finish()]);
      await this.#device.queue.onSubmittedWorkDone();
      least = Math.min(least, performance.now() - began);
    }
    return least;
  }

  /** Milliseconds per unit of work(count): count doubles until it takes long enough. */
  async perUnit(work, base, most) {
    for (let count = 1; ; count = Math.min(2 * count, most)) {
      const ms = await this.best(work(count), 1);
      if (ms - base < kLongMs && count < most) continue;
      const least = Math.min(ms, await this.best(work(count), 2));
      // A machine that is busy with something else may take longer for nothing at all.
      return Math.max(least - base, least / 2) / count;
    }
  }

  /** A function of a count that records so many dispatches of `code`, or of as many workgroups. */
  async dispatcher(code, buffer, inOne) {
    const device = this.#device;
    const pipeline = await device.createComputePipelineAsync({
      layout: 'auto',
      compute: { module: device.createShaderModule({ code }) },
    });
    const group = device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: { buffer, size: 256 } }],
    });
    return (count) => (encoder) => {
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      if (inOne) pass.dispatchWorkgroups(count);
      else for (let i = 0; i < count; i++) pass.dispatchWorkgroups(1);
      pass.end();
    };
  }

  /** Milliseconds that the CPU needs to encode a dispatch with a pipeline and a bind group of its own. */
  encoding() {
    const device = this.#device;
    const kinds = ['uniform', 'storage', 'read-only-storage', 'read-only-storage'];
    const layout = device.createBindGroupLayout({
      entries: kinds.map((type, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type, hasDynamicOffset: binding === 0 },
      })),
    });
    const pipelines = [1, 2].map((factor) =>
      device.createComputePipeline({
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: device.createShaderModule({ code: bound(factor) }) },
      }),
    );
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const parameters = device.createBuffer({ size: kEncoded * kSlot, usage });
    this.#buffers.push(parameters);
    const [values, vectors] = [this.buffer(kSlot), this.buffer(kSlot)];
    const groups = Array.from({ length: kEncoded }, () =>
      device.createBindGroup({
        layout,
        entries: [
          { buffer: parameters, size: kSlot },
          ...[values, vectors, this.buffer(kSlot)].map((buffer) => ({ buffer })),
        ].map((resource, binding) => ({ binding, resource })),
      }),
    );
    let least = Infinity;
    const offset = [0];
    for (let time = 0; time < 4 * kTimes; time++) {
      const began = performance.now();
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (let i = 0; i < kEncoded; i++) {
        offset[0] = i * kSlot;
        pass.setPipeline(pipelines[i % 2]);
        pass.setBindGroup(0, groups[i], offset);
        pass.dispatchWorkgroups(1, 1, 1);
      }
      pass.end();
      encoder.finish();
      least = Math.min(least, performance.now() - began);
    }
    return least / kEncoded;
  }

  /** Bytes per second of a copy, which both reads and writes, of buffers of `most` bytes at most. */
  async copy(most, base) {
    const [from, to] = [this.buffer(most), this.buffer(most)];
    const copy = (size) => (encoder) => encoder.copyBufferToBuffer(from, 0, to, 0, size);
    await this.best(copy(most), 1); // pages are there
    return (2000 / (await this.perUnit((units) => copy(units << 20), base, most >> 20))) * 2 ** 20;
  }
}

const numbers = (limits) => {
  const out = {};
  for (const name in limits) if (typeof limits[name] === 'number') out[name] = limits[name];
  return out;
};

/** `options`: those of Dawn. */
export async function probe(options = []) {
  const began = performance.now();
  const gpu = create(options);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('no WebGPU adapter: is there a Vulkan driver?');
  const { vendor, architecture, device: name, description, isFallbackAdapter } = adapter.info;
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const wanted = ['subgroups', 'shader-f16', 'timestamp-query'];
  const device = await adapter.requestDevice({
    requiredFeatures: wanted.filter((feature) => adapter.features.has(feature)),
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
  });
  const tool = new Probe(device);
  const small = tool.buffer(256);
  const submitMs = await tool.best(() => {});
  // Software adapters copy in host memory, of which a small part is enough.
  const most = Math.min(isSoftware(adapter.info) ? 64 << 20 : kMaxCopyBytes, maxBufferSize);
  const copyBytesPerSecond = await tool.copy(most, submitMs);
  const dependentDispatchMs = await tool.perUnit(
    await tool.dispatcher(kChain, small, false),
    submitMs,
    kMaxDispatches,
  );
  const encodeDispatchMs = tool.encoding();
  const flops = {};
  for (const type of device.features.has('shader-f16') ? ['f32', 'f16'] : ['f32']) {
    const work = await tool.dispatcher(arithmetic(type, kSteps), small, true);
    flops[type] = (1000 * kFlops) / (await tool.perUnit(work, submitMs, kMaxGroups));
  }
  const features = [...adapter.features];
  const limits = numbers(adapter.limits);
  tool.close();
  return {
    adapter: { vendor, architecture, device: name, description, isFallbackAdapter },
    features,
    languageFeatures: [...gpu.wgslLanguageFeatures],
    limits,
    submitMs,
    copyBytesPerSecond,
    dependentDispatchMs,
    encodeDispatchMs,
    flops,
    probeMs: performance.now() - began,
  };
}
