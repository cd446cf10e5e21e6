// Runs many kernel calls in one submission over one arena. Compares their outputs with references
// in double precision, and checks that everything else is unchanged.
import { Usage } from '../../../web/gpu/buffers.js';
import {
  Kernels,
  type Memory,
  type Options,
  type Place,
  type Recorder,
} from '../../../web/gpu/kernels.js';

/** xorshift32, so that all browsers get the same numbers. */
export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = (seed * 2654435761) >>> 0 || 1;
  }
  next(): number {
    let x = this.#state;
    x ^= x << 13;
    x >>>= 0;
    x ^= x >>> 17;
    x ^= x << 5;
    return (this.#state = x >>> 0) / 2 ** 32;
  }
  below(n: number): number {
    return Math.floor(this.next() * n);
  }
  normal(): number {
    return (this.next() + this.next() + this.next() - 1.5) * 2;
  }
}

/** An expected value, and the magnitude of the terms that it is a sum of. */
export interface Wanted {
  value: number;
  size?: number;
}

const kActs = 1 << 20;

export interface Verdict {
  calls: number;
  worst: number;
  failures: string[];
  dispatches: number;
  pipelines: number;
  features: string[];
  dots: boolean;
}

export class Harness {
  readonly random: Random;
  readonly #floats: number[] = [];
  readonly #vectors: number[] = [];
  readonly #expected = new Map<number, { call: string; wanted: Wanted; tolerance: number }>();
  readonly #calls: { name: string; record: (r: Recorder) => void }[] = [];
  readonly #others: {
    bytes: Uint8Array;
    buffer: GPUBuffer;
    check?: (after: Uint8Array) => string[];
  }[] = [];

  /** `options`: kernel options for all calls. */
  constructor(
    readonly device: GPUDevice,
    readonly options: Options,
    seed = 1,
  ) {
    this.random = new Random(seed);
  }

  /** Adds [rows][ld] floats at an unaligned place; `fill` gives the values of columns below n. */
  place(rows: number, n: number, fill: ((t: number, i: number) => number) | null = null): Place {
    const ld = n + this.random.below(6);
    for (let gap = this.random.below(4) + 1; gap > 0; --gap) this.#floats.push(7e7);
    const at = this.#floats.length;
    for (let t = 0; t < rows; ++t) {
      for (let i = 0; i < ld; ++i)
        this.#floats.push(i < n ? Math.fround(fill ? fill(t, i) : this.random.normal()) : -7e7);
    }
    return { at, ld };
  }
  get(place: Place, t: number, i: number): number {
    return this.#floats[place.at + t * place.ld + i]!;
  }

  vector(values: number[]): number {
    this.#vectors.push(9e9);
    const at = this.#vectors.length;
    this.#vectors.push(...values.map(Math.fround));
    return at;
  }
  vectorValue(at: number): number {
    return this.#vectors[at]!;
  }

  /** A buffer with these bytes after `offset` others. `check` gets its content afterwards. */
  buffer(bytes: Uint8Array, offset = 0, check?: (after: Uint8Array) => string[]): GPUBuffer {
    const all = new Uint8Array(Math.ceil((offset + bytes.length) / 4) * 4).fill(0xa5);
    all.set(bytes, offset);
    const buffer = this.device.createBuffer({
      size: all.length,
      usage: Usage.Storage | Usage.CopyTarget | Usage.CopySource,
    });
    this.#others.push({ bytes: all, buffer, check });
    return buffer;
  }

  call(name: string, record: (r: Recorder) => void): void {
    this.#calls.push({ name, record });
  }

  /** Expected values at [rows][n] of `place` after the last call so far. */
  expect(
    place: Place,
    rows: number,
    n: number,
    wanted: (t: number, i: number) => Wanted | number,
    tolerance = 1e-5,
  ): void {
    const { name } = this.#calls.at(-1)!;
    for (let t = 0; t < rows; ++t) {
      for (let i = 0; i < n; ++i) {
        const w = wanted(t, i);
        this.#expected.set(place.at + t * place.ld + i, {
          call: `${name} [${t}][${i}]`,
          wanted: typeof w === 'number' ? { value: w } : w,
          tolerance,
        });
      }
    }
  }

  /** Marks floats that calls may change in any way. */
  scratch(at: number, n: number): void {
    for (let i = 0; i < n; ++i) {
      this.#expected.delete(at + i);
      this.#free.add(at + i);
    }
  }
  readonly #free = new Set<number>();

  async #read(buffer: GPUBuffer): Promise<Uint8Array> {
    const copy = this.device.createBuffer({
      size: buffer.size,
      usage: Usage.MapRead | Usage.CopyTarget,
    });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, copy, 0, buffer.size);
    this.device.queue.submit([encoder.finish()]);
    await copy.mapAsync(Usage.MapRead);
    const bytes = new Uint8Array(copy.getMappedRange()).slice();
    copy.destroy();
    return bytes;
  }

  async run(): Promise<Verdict> {
    const { device, options } = this;
    const failures: string[] = [];
    const uncaptured = (event: GPUUncapturedErrorEvent) =>
      failures.push(`uncaptured: ${event.error.message}`);
    device.addEventListener('uncapturederror', uncaptured);
    device.pushErrorScope('validation');
    const kernels = await Kernels.create(device, options);
    const before = new Float32Array(this.#floats);
    const create = (floats: Float32Array<ArrayBuffer>) => {
      const buffer = device.createBuffer({
        size: Math.max(floats.byteLength, 16),
        usage: Usage.Storage | Usage.CopyTarget | Usage.CopySource,
      });
      device.queue.writeBuffer(buffer, 0, floats);
      return buffer;
    };
    const acts = device.createBuffer({ size: kActs, usage: Usage.Storage });
    const memory: Memory = {
      arena: create(before),
      vectors: create(new Float32Array([...this.#vectors, 9e9])),
      acts,
    };
    for (const { buffer, bytes } of this.#others)
      device.queue.writeBuffer(buffer, 0, bytes as Uint8Array<ArrayBuffer>);
    const record = (r: Recorder) => {
      for (const call of this.#calls) call.record(r);
    };
    try {
      await kernels.prepare(memory, record);
    } catch (e) {
      const error = await device.popErrorScope();
      throw new Error(`${e}\n${error?.message}`);
    }
    const compiled = kernels.compiled;
    const encoder = device.createCommandEncoder();
    const recorder = kernels.begin(encoder, memory);
    record(recorder);
    recorder.end();
    device.queue.submit([encoder.finish()]);
    if (kernels.compiled !== compiled) failures.push('a pipeline was not compiled by prepare()');
    const bytes = await this.#read(memory.arena);
    const after = new Float32Array(bytes.buffer, 0, before.length);
    let worst = 0;
    for (let i = 0; i < after.length && failures.length < 12; ++i) {
      const expected = this.#expected.get(i);
      if (!expected) {
        if (!this.#free.has(i) && after[i] !== before[i])
          failures.push(`written outside: ${before[i]} at ${i} became ${after[i]}`);
        continue;
      }
      const {
        call,
        wanted: { value, size },
        tolerance,
      } = expected;
      const error = Math.abs(after[i]! - value) / Math.max(Math.abs(value), size ?? 0, 1e-30);
      if (!(error <= tolerance)) failures.push(`${call}: ${after[i]}, not ${value}`);
      else worst = Math.max(worst, error);
    }
    for (const { buffer, check } of this.#others) {
      if (check) failures.unshift(...check(await this.#read(buffer)).slice(0, 5));
      buffer.destroy();
    }
    const error = await device.popErrorScope();
    if (error) failures.unshift(`validation: ${error.message}`);
    device.removeEventListener('uncapturederror', uncaptured);
    const dispatches = recorder.dispatches;
    kernels.free();
    memory.arena.destroy();
    memory.vectors.destroy();
    acts.destroy();
    return {
      calls: this.#calls.length,
      worst,
      failures,
      dispatches,
      pipelines: compiled,
      features: [...device.features],
      dots: kernels.features.dots,
    };
  }
}
