// What a GPU can do, in Node by the package `webgpu`: adapter, features, limits, copy bandwidth, an
// empty submit, and what a dispatch costs that reads what the one before wrote.
import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);

const kCopyBytes = 256 << 20;
const kDispatches = 1000;
const kTimes = 5;
const kChain = `
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
  values[lane] += values[(lane + 1u) % 64u];
}`;

/** Milliseconds of `work` until the GPU is done: the best of a few. */
async function best(device, work) {
  let least = Infinity;
  for (let i = 0; i < kTimes; i++) {
    const began = performance.now();
    const encoder = device.createCommandEncoder();
    work(encoder);
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    least = Math.min(least, performance.now() - began);
  }
  return least;
}

/** `options`: those of Dawn. */
export async function probe(options = []) {
  const gpu = create(options);
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('no WebGPU adapter: is there a Vulkan driver?');
  const { vendor, architecture, device: name, description, isFallbackAdapter } = adapter.info;
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const limits = {};
  for (const name in adapter.limits)
    if (typeof adapter.limits[name] === 'number') limits[name] = adapter.limits[name];
  const features = [...adapter.features];
  const wanted = ['subgroups', 'shader-f16', 'timestamp-query'];
  const device = await adapter.requestDevice({
    requiredFeatures: wanted.filter((feature) => adapter.features.has(feature)),
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
  });
  const size = Math.min(kCopyBytes, maxBufferSize);
  const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | GPUBufferUsage.STORAGE;
  const [from, to] = [device.createBuffer({ size, usage }), device.createBuffer({ size, usage })];
  const pipeline = await device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code: kChain }) },
  });
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [{ binding: 0, resource: { buffer: from, size: 256 } }],
  });
  const chain = (count) => (encoder) => {
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let i = 0; i < count; i++) pass.dispatchWorkgroups(1);
    pass.end();
  };
  const submitMs = await best(device, () => {});
  const copyMs = await best(device, (encoder) => encoder.copyBufferToBuffer(from, 0, to, 0, size));
  const [one, many] = [await best(device, chain(1)), await best(device, chain(kDispatches))];
  device.destroy();
  return {
    adapter: { vendor, architecture, device: name, description, isFallbackAdapter },
    features,
    languageFeatures: [...gpu.wgslLanguageFeatures],
    limits,
    submitMs,
    // A copy both reads and writes.
    copyBytesPerSecond: (2 * 1000 * size) / Math.max(copyMs - submitMs, 1e-3),
    dependentDispatchMs: (many - one) / (kDispatches - 1),
  };
}
