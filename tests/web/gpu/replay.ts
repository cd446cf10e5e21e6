// Replays (web/gpu/kernels/replay.ts) against recordings that are made at each position anew, on a device
// that computes nothing and keeps the commands that it is given.
import { Kernels, type Cache, type Memory, type Recorder } from '../../../web/gpu/kernels.js';
import { useQuantizedKv } from '../../../web/gpu/kernels/attention.js';
import * as quantizedKv from '../../../web/gpu/kernels/quantized-kv.js';
import type { Replay } from '../../../web/gpu/kernels/replay.js';
import { KvEviction } from '../../../web/gpu/eviction.js';
import { Buf, OpKind, type Op, type Program } from '../../../web/gpu/program.js';
import { Writer, type Layout } from '../../../web/gpu/record.js';

const kF16 = 1;
const kSlot = 256;

/** A buffer that keeps what is written. */
interface Kept {
  id: number;
  size: number;
  bytes: Uint8Array;
}

class FakeDevice {
  readonly features = new Set<string>();
  readonly limits = { minStorageBufferOffsetAlignment: 256, maxStorageBufferBindingSize: 2 ** 28 };
  readonly queue = {
    writeBuffer: (to: Kept, at: number, { buffer, byteOffset, byteLength }: Uint32Array) =>
      to.bytes.set(new Uint8Array(buffer, byteOffset, byteLength), at),
  };
  #buffers = 0;
  createBuffer({ size }: { size: number }): Kept {
    return { id: this.#buffers++, size, bytes: new Uint8Array(size) };
  }
  createBindGroupLayout = (): object => ({});
  createPipelineLayout = (): object => ({});
  createShaderModule = (): object => ({});
  createComputePipeline = ({ label }: { label: string }): object => ({ label });
  createBindGroup = ({ entries }: { entries: object[] }): object => entries;
}

/** What a compute pass is given, a text for each dispatch. */
class FakePass {
  readonly dispatches: string[] = [];
  #label = '';
  #bound = '';
  #words = '';
  setPipeline({ label }: { label: string }): void {
    this.#label = label;
  }
  setBindGroup(
    _: number,
    entries: { resource: { buffer: Kept; offset?: number; size?: number } }[],
    [offset]: number[],
  ): void {
    const [parameters, ...others] = entries.map(({ resource }) => resource);
    const { bytes } = parameters!.buffer;
    this.#words = new Uint32Array(bytes.buffer, offset, kSlot / 4).join();
    this.#bound = others.map(({ buffer, offset, size }) => [buffer.id, offset, size]).join(' ');
  }
  dispatchWorkgroups(...size: number[]): void {
    this.dispatches.push([this.#label, this.#words, this.#bound, size.join()].join(' | '));
  }
}

const heads = { heads: 4, kvHeads: 2, dk: 64, dv: 64 };
const temperature = { kind: OpKind.Temperature, in: Buf.Qkv, out: Buf.Qkv, n: 256, att: {} };
const shape = { in: { at: 0, ld: 256 }, out: { at: 512, ld: 256 }, tokens: 1, n: 256 };

/** A cache of each type. */
function caches(device: FakeDevice): Cache[] {
  return (['f16', 'q8_0', 'q4_0'] as const).map((type, i) => ({
    buffer: device.createBuffer({ size: 1 << 10 }) as unknown as GPUBuffer,
    type,
    capacity: [96, 16384, 16384][i]!, // a ring that wraps, and others
    keys: 0,
    keyHead: 128,
    keyRow: 256,
    values: 512,
    valueHead: 128,
    valueRow: 256,
    ...(type === 'q4_0' && { recent: { recent_at: 64, recent_capacity: 128 } }),
  }));
}

const evicting = { att: { ...heads, cache: 0, owned: true }, rope: 0, ropeCol: 0 };

/** A window of 200 positions, and 4 sinks beside it. */
function evictionOf(device: FakeDevice, arena: GPUBuffer): KvEviction {
  const evicts = { window: 200, sinks: 4, slots: 0, ring: 232, block: 32, observers: 0 };
  const program = {
    caches: [{ heads: 2, dk: 64, dv: 64, evicts }],
    ropes: [{ nRot: 32, neox: false }],
  };
  const plan = { turned: 6000, turns: [7000], observed: 0, width: 0, columns: [0] };
  return new KvEviction(
    program as unknown as Program,
    plan,
    null as unknown as WebAssembly.Memory,
    { make: (size) => device.createBuffer({ size }) as unknown as GPUBuffer },
    arena,
  );
}

/** Everything whose parameters depend on the position or the step, and a matrix multiplication. */
function record(
  to: Recorder,
  all: Cache[],
  writer: Writer,
  eviction: KvEviction,
  first: number,
  step: number,
): void {
  const weights = { type: kF16, buffer: all[0]!.buffer, offset: 0 };
  const qkv = { at: 1024, ld: 512 };
  to.rows({ ...shape, weights, count: 100, cols: 256, ids: 4096, step });
  to.addVec({ ...shape, vec: 64, position: first });
  const rows = { tokens: 1, first, skipped: 0, states: { live: 0 as const, due: 0 }, step };
  writer.simple(to, { index: 0, op: temperature as unknown as Op }, rows);
  for (const cache of all) {
    to.rope({
      ...heads,
      ...{ qkv, tokens: 1, owned: true, rot: 32, neox: false, column: 0 },
      table: 2048 + 32 * step,
      store: { cache, first },
    });
    for (const sees of [{}, { window: 100 }, { window: 700 }, { window: 96, chunked: true }])
      to.attention({
        ...heads,
        qkv,
        out: shape.out,
        tokens: 1,
        first,
        cache,
        scale: 1,
        scratch: 8192,
        ...sees,
      });
  }
  const cache = all[0]!;
  const call = { ...heads, qkv, out: shape.out, tokens: 1, first, cache, scale: 1, scratch: 8192 };
  eviction.attention(to, evicting as unknown as Op, step, call);
  to.matmul({
    parts: [{ weights, rows: 8, column: 0 }],
    cols: 256,
    x: shape.in,
    out: shape.out,
    tokens: 1,
  });
  const places = { tokens: 10, count: 80, ended: 81, draws: 82, leaving: 90, stops: 99, best: 120 };
  to.choose({ ...places, logits: 0, n: 3000, step, n_stops: 1, sampling: undefined, counts: 9 });
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, i) => from + i);

/** Compares at `positions`. `made`: recordings that were made for replays. */
export async function compare(
  positions: readonly number[],
): Promise<{ compared: number; made: number; differ: number[] }> {
  const device = new FakeDevice();
  const kernels = await Kernels.create(device as unknown as GPUDevice);
  useQuantizedKv(quantizedKv);
  const all = caches(device);
  const program = { widths: Array<number>(8).fill(256), temperature: [0.1, 100, 3] };
  const layout = { buffers: range(0, 8).map((i) => 256 * i) };
  const writer = new Writer(
    program as unknown as Program,
    layout as unknown as Layout,
    all,
    new Map(),
  );
  const make = (bytes: number) => device.createBuffer({ size: bytes }) as unknown as GPUBuffer;
  const memory: Memory = { arena: make(16), vectors: make(16) };
  const eviction = evictionOf(device, memory.arena);
  const buffers: (GPUBuffer | undefined)[] = [];
  /** Buffer `i`, which later recordings overwrite. */
  const into = (i: number) => (bytes: number) => (buffers[i] ??= make(2 * bytes));
  const at = (first: number, step: number, i: number): Replay =>
    kernels.replay(
      memory,
      { kind: '', first, step, replays: 16 },
      (to) => record(to, all, writer, eviction, first, step),
      into(i),
    )!;
  const played = (replay: Replay, first: number, step: number): string => {
    const pass = new FakePass();
    replay.play(
      device.queue as unknown as GPUQueue,
      pass as unknown as GPUComputePassEncoder,
      first,
      step,
    );
    return pass.dispatches.join('\n');
  };
  const out = { compared: 0, made: 0, differ: [] as number[] };
  let replay: Replay | undefined;
  for (const first of positions) {
    const step = (first * 7) % 64;
    if (!replay?.covers('', first)) {
      replay = at(first, step, 0);
      out.made++;
    }
    if (played(replay, first, step) !== played(at(first, step, 1), first, step))
      out.differ.push(first);
    out.compared++;
  }
  return out;
}
