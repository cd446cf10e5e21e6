// Measures what the engine's worker does with WebGPU, for bench:gpu's shapes: CPU time of encoding, time
// submitting and waiting, or the time of each kernel by timestamp queries. Those put every dispatch
// into a pass of its own, so the two are measured in runs of their own. The page of the benchmark
// starts and ends a measurement through a BroadcastChannel.

export interface Trace {
  encodeMs: number;
  submitMs: number;
  waitMs: number;
  /** By name of the kernel: dispatches, and milliseconds of all of them. */
  kernels: Record<string, { count: number; ms: number }>;
}

type Any = (...given: unknown[]) => unknown;
const kQueries = 4096; // the most that a set may have
const kQueryResolve = 0x200;

const fs = (await import('node:fs' as string).catch(() => null)) as {
  readFileSync(path: string, encoding: string): string;
} | null;
/** Milliseconds that this thread has computed, on Linux; elsewhere the time. */
function cpuMs(): number {
  try {
    return Number(fs!.readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return performance.now();
  }
}

let timed: 'host' | 'kernels' | null = null;
let trace: Trace;
let queries: { device: GPUDevice; set: GPUQuerySet; names: string[] } | null = null;
const began = new WeakMap<object, number>();
const deviceOf = new WeakMap<object, GPUDevice>();
const names = new WeakMap<object, string>();

function start(kind: 'host' | 'kernels'): void {
  timed = kind;
  trace = { encodeMs: 0, submitMs: 0, waitMs: 0, kernels: {} };
  queries = null;
}

/** Replaces a method by `make` of it. */
function patch(of: { prototype: object }, name: string, make: (before: Any) => Any): void {
  const methods = of.prototype as Record<string, Any>;
  methods[name] = make(methods[name]!);
}

patch(
  GPUAdapter,
  'requestDevice',
  (before) =>
    function (this: GPUAdapter, given) {
      const wanted = (given ?? {}) as GPUDeviceDescriptor;
      const more = this.features.has('timestamp-query') ? ['timestamp-query'] : [];
      const requiredFeatures = [...(wanted.requiredFeatures ?? []), ...more];
      return before.call(this, { ...wanted, requiredFeatures });
    },
);
for (const name of ['createComputePipeline', 'createComputePipelineAsync'])
  patch(
    GPUDevice,
    name,
    (before) =>
      function (this: GPUDevice, given) {
        const { label = '' } = given as GPUComputePipelineDescriptor;
        // The constants behind the name tell variants apart, which nobody reads here.
        const named = (pipeline: object): object => (
          names.set(pipeline, label.split(' {')[0]!),
          pipeline
        );
        const made = before.call(this, given) as object | Promise<object>;
        return made instanceof Promise ? made.then(named) : named(made);
      },
  );
patch(
  GPUDevice,
  'createCommandEncoder',
  (before) =>
    function (this: GPUDevice, ...given) {
      const encoder = before.apply(this, given) as object;
      if (timed === 'host') began.set(encoder, cpuMs());
      deviceOf.set(encoder, this);
      return encoder;
    },
);
patch(
  GPUCommandEncoder,
  'finish',
  (before) =>
    function (this: GPUCommandEncoder, ...given) {
      const commands = before.apply(this, given);
      if (timed === 'host') trace.encodeMs += cpuMs() - (began.get(this) ?? cpuMs());
      return commands;
    },
);
patch(
  GPUQueue,
  'submit',
  (before) =>
    function (this: GPUQueue, ...given) {
      const at = performance.now();
      before.apply(this, given);
      if (timed === 'host') trace.submitMs += performance.now() - at;
    },
);
patch(
  GPUBuffer,
  'mapAsync',
  (before) =>
    function (this: GPUBuffer, ...given) {
      const at = performance.now();
      const mapped = before.apply(this, given) as Promise<unknown>;
      if (timed !== 'host') return mapped;
      return mapped.finally(() => (trace.waitMs += performance.now() - at));
    },
);

/** A compute pass in which each dispatch is a pass with two timestamps. */
class TimedPass {
  readonly #begin: (descriptor: GPUComputePassDescriptor) => GPUComputePassEncoder;
  #pipeline!: GPUComputePipeline;
  #group!: Parameters<GPUComputePassEncoder['setBindGroup']>;

  constructor(begin: (descriptor: GPUComputePassDescriptor) => GPUComputePassEncoder) {
    this.#begin = begin;
  }
  setPipeline(pipeline: GPUComputePipeline): void {
    this.#pipeline = pipeline;
  }
  setBindGroup(...given: Parameters<GPUComputePassEncoder['setBindGroup']>): void {
    this.#group = given;
  }
  dispatchWorkgroups(...size: [number, number?, number?]): void {
    const { set: querySet, names: all } = queries!;
    const at = 2 * all.length;
    const stamps = {
      querySet,
      beginningOfPassWriteIndex: at,
      endOfPassWriteIndex: at + 1,
    };
    const pass = this.#begin(at + 2 <= kQueries ? { timestampWrites: stamps } : {});
    if (at + 2 <= kQueries) all.push(names.get(this.#pipeline) ?? '');
    pass.setPipeline(this.#pipeline);
    pass.setBindGroup(...this.#group);
    pass.dispatchWorkgroups(...size);
    pass.end();
  }
  end(): void {}
}

patch(
  GPUCommandEncoder,
  'beginComputePass',
  (before) =>
    function (this: GPUCommandEncoder, ...given) {
      const device = deviceOf.get(this)!;
      if (timed !== 'kernels' || !device.features.has('timestamp-query'))
        return before.apply(this, given);
      queries ??= {
        device,
        set: device.createQuerySet({ type: 'timestamp', count: kQueries }),
        names: [],
      };
      return new TimedPass((descriptor) => before.call(this, descriptor) as GPUComputePassEncoder);
    },
);

/** Adds the timestamps to the trace. */
async function readQueries({
  device,
  set,
  names: all,
}: NonNullable<typeof queries>): Promise<void> {
  const size = 16 * all.length;
  const resolved = device.createBuffer({ size, usage: kQueryResolve | 4 /* copy source */ });
  const read = device.createBuffer({ size, usage: 1 | 8 /* map, copy destination */ });
  const encoder = device.createCommandEncoder();
  encoder.resolveQuerySet(set, 0, 2 * all.length, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, read, 0, size);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(1);
  const stamps = new BigUint64Array(read.getMappedRange());
  all.forEach((name, i) => {
    const kernel = (trace.kernels[name] ??= { count: 0, ms: 0 });
    kernel.count++;
    kernel.ms += Number(stamps[2 * i + 1]! - stamps[2 * i]!) / 1e6;
  });
  for (const one of [resolved, read, set]) one.destroy();
}

const channel = new BroadcastChannel('bench-gpu');
channel.onmessage = async ({ data }: MessageEvent<{ start?: 'host' | 'kernels'; stop?: true }>) => {
  if (data.start) {
    start(data.start);
    channel.postMessage({ started: true });
  } else if (data.stop) {
    timed = null;
    if (queries?.names.length) await readQueries(queries);
    channel.postMessage({ trace });
  }
};
(channel as unknown as { unref?: () => void }).unref?.(); // in Node
