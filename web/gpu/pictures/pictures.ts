// Entry of gpu-pictures.js: runs vision encoders on the GPU of an executor, within what its gpuBudget
// leaves. worker/pictures imports this module with the first picture. Weights that fit stay on the GPU, others
// stream for each input. Whatever the GPU cannot do is left to the engine, which encodes on the CPU.

import { SluiceError } from '../../protocol/errors.js';
import { writeFrom, Usage } from '../buffers.js';
import type { GpuExecutor } from '../executor.js';
import { align, kMaxBytes, planWeights, type GpuPlan } from '../plan.js';
import { OpKind as TextOp, type Program } from '../program.js';
import { Recording } from '../recording.js';
import { kProjectorFiles } from '../../io/io.js';
import { Pieces, WeightUnits } from '../weight-units.js';
import { toFloats } from './floats.js';
import { readInput, type Input } from './input.js';
import { Writer } from './record.js';
import { layOut, stepsOf, supported, type Layout, type Step } from './layout.js';

/** The engine's pictures (PicturesBinding of worker/binding.ts). */
export interface PictureInputs {
  /** Address of the next input, valid until markEncoded(). 0: there is none. */
  gpuInput(): number;
  /** The input's rows are in the engine's memory. */
  markEncoded(): void;
}

/** Parameters of 512 dispatches, which kernels add as they need them. */
const kParameterBytes = 1 << 17;
const kStorage = Usage.Storage | Usage.CopySource | Usage.CopyTarget;

/** Bytes of parameters that the text model may still need, for 16 queued steps. */
const parametersOf = ({ ops }: Program): number => 16 * (2 * ops.length + 8) * 256;

const encoders = new WeakMap<GpuExecutor, PictureEncoder>();

/**
 * Encodes the inputs of a prompt, until one is left to the CPU or `stopped`. Returns their number.
 * Errors: those of reading the projector.
 */
export async function encode(
  executor: GpuExecutor,
  pictures: PictureInputs,
  stopped: () => boolean,
): Promise<number> {
  let encoder = encoders.get(executor);
  if (!encoder) encoders.set(executor, (encoder = new PictureEncoder(executor)));
  let done = 0;
  for (let running; (running = executor.shared.running);) await running;
  for (let address = 0; !executor.lost && !stopped() && (address = pictures.gpuInput()); done++) {
    if (!(await encoder.encode(address, stopped))) break;
    pictures.markEncoded();
  }
  return done;
}

/** Buffers that depend on the input, with places for the vectors. */
const kSized = ['arena', 'vectors', 'readback'] as const;
type Sized<T> = Record<(typeof kSized)[number], T>;

/** What an encoder holds on the GPU. */
interface Opened {
  /** Bytes for weights. */
  weightBytes: number;
  units: WeightUnits;
  memory: Sized<GPUBuffer>;
  /** Vectors are uploaded. */
  ready: boolean;
}

/** An input, and what is to be done. */
interface Work {
  input: Input;
  layout: Layout;
  steps: Step[];
}

class PictureEncoder {
  readonly #executor: GpuExecutor;
  readonly #buffers: GPUBuffer[] = [];
  #opened: Opened | null = null;

  constructor(executor: GpuExecutor) {
    this.#executor = executor;
  }

  /** Reads the projector's files. */
  readonly #read = (file: number, offset: number, length: number): Promise<Uint8Array> =>
    this.#executor.shared.host.read(kProjectorFiles + file, offset, length);

  /** Encodes the input at `address`. False: it is left to the CPU. */
  async encode(address: number, stopped: () => boolean): Promise<boolean> {
    const { memory } = this.#executor.shared.host;
    const input = readInput(memory, address);
    if (!supported(input)) return false;
    const layout = layOut(input);
    const work = { input, layout, steps: stepsOf(input, layout) };
    try {
      await this.#executor.shared.loadTypes(input.mats.map(({ type }) => type));
      const opened = await this.#open(work);
      return opened !== null && (await this.#run(opened, work, stopped));
    } catch (error) {
      if (error instanceof SluiceError) throw error; // a read has failed
      this.#executor.lose((error as Error).message);
      return false;
    }
  }

  /** Buffers of the executor that are this encoder's. */
  make(size: number, usage: number): GPUBuffer {
    const buffer = this.#executor.shared.buffers.make(size, usage);
    this.#buffers.push(buffer);
    return buffer;
  }

  #drop(buffer: GPUBuffer): void {
    this.#buffers.splice(this.#buffers.indexOf(buffer), 1);
    this.#executor.shared.buffers.drop(buffer);
  }

  #close(): void {
    for (const buffer of [...this.#buffers]) this.#drop(buffer);
    this.#opened = null;
  }

  /**
   * Buffers for an input: those of the one before, or larger ones. Weights stay there if these fit
   * beside them. Null: the input does not fit.
   */
  async #open(work: Work): Promise<Opened | null> {
    const { device, host } = this.#executor.shared;
    const { limits } = device;
    const most = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize);
    const last = this.#opened;
    const sizes = sizesOf(work, last);
    const larger = kSized.filter((kind) => sizes[kind] !== last?.memory[kind].size);
    if (!larger.length) return last;
    if (kSized.some((kind) => sizes[kind] > most)) return null;
    const own = this.#buffers.reduce((sum, { size }) => sum + size, 0);
    const others = this.#executor.bytes - own + parametersOf(host.program);
    const parameters = kParameterBytes * Math.ceil((4 * work.input.ops.length) / 512);
    const fixed = kSized.reduce((sum, kind) => sum + sizes[kind], parameters);
    const left = (host.gpuBudget || kMaxBytes) - others - fixed;
    device.pushErrorScope('out-of-memory');
    // While vectors are copied, their former buffer is there too.
    const opened =
      last && last.weightBytes + last.memory.vectors.size <= left
        ? this.#grow(last, sizes, larger)
        : this.#reopen(work, sizes, left, most);
    if (!(await device.popErrorScope())) return opened;
    this.#close();
    return null;
  }

  #sized(kind: keyof Sized<unknown>, size: number): GPUBuffer {
    const usage = kind === 'readback' ? Usage.MapRead | Usage.CopyTarget : kStorage;
    return this.make(size, usage);
  }

  /** Makes some of the buffers `larger`. Weights stay. */
  #grow(
    { memory, ...rest }: Opened,
    sizes: Sized<number>,
    larger: (keyof Sized<unknown>)[],
  ): Opened {
    const { device } = this.#executor.shared;
    const { vectors } = memory;
    const made = { ...memory };
    for (const kind of larger) if (kind !== 'vectors') this.#drop(memory[kind]);
    for (const kind of larger) made[kind] = this.#sized(kind, sizes[kind]);
    if (made.vectors !== vectors) {
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(vectors, 0, made.vectors, 0, vectors.size);
      device.queue.submit([encoder.finish()]);
      this.#drop(vectors);
    }
    return (this.#opened = { ...rest, memory: made });
  }

  /** Plans weights anew, in `left` bytes and buffers of at most `most`. Null: they do not fit. */
  #reopen({ input, steps }: Work, sizes: Sized<number>, left: number, most: number): Opened | null {
    const program = programOf(input, steps);
    let plan: GpuPlan;
    try {
      plan = planWeights(program, left, { unitBytes: most });
    } catch {
      return null;
    }
    this.#close();
    return (this.#opened = {
      weightBytes: plan.bytes,
      memory: {
        arena: this.#sized('arena', sizes.arena),
        vectors: this.#sized('vectors', sizes.vectors),
        readback: this.#sized('readback', sizes.readback),
      },
      units: new WeightUnits(program, plan, this, this.#read, this.#executor.shared.counts),
      ready: false,
    });
  }

  async #run(opened: Opened, work: Work, stopped: () => boolean): Promise<boolean> {
    const executor = this.#executor;
    const { device, kernels, counts, host } = executor.shared;
    const { memory, units } = opened;
    const { readback } = memory;
    const { input, layout, steps } = work;
    const writer = new Writer(input, layout);
    const given = (): boolean => stopped() || executor.lost;
    await kernels.prepare(memory, (recorder) => {
      for (const [i, step] of steps.entries()) {
        units.each(i, (unit, buffer) => writer.products(recorder, step, unit, buffer));
        writer.finish(recorder, step);
      }
    });
    if (!(await this.#upload(opened, work)) || given()) return false;
    const recording = new Recording(device, kernels, memory, counts);
    const floats = input.nRows * input.width;
    try {
      if (!(await this.#record(opened, recording, writer, steps, given))) return false;
      recording.finish();
      const from = 4 * layout.out;
      recording.encoder.copyBufferToBuffer(memory.arena, from, readback, 0, 4 * floats);
    } finally {
      recording.submit(); // uploaded units are already marked as loaded
    }
    const size = align(4 * floats, 8);
    await readback.mapAsync(Usage.MapRead, 0, size);
    try {
      const rows = new Float32Array(readback.getMappedRange(0, size), 0, floats);
      // The CPU names a tensor that is not finite.
      if (given() || !rows.every(Number.isFinite)) return false;
      new Float32Array(host.memory.buffer, input.rows, floats).set(rows);
      return true;
    } finally {
      readback.unmap();
    }
  }

  /**
   * Uploads an input's patches and tables, and with the first one the vectors. False: one of these is
   * not finite, which the CPU reports.
   */
  async #upload(opened: Opened, { input, layout }: Work): Promise<boolean> {
    const { device, host } = this.#executor.shared;
    const { queue } = device;
    const { memory } = opened;
    const copy = ([address, floats]: [number, number], at: number, target = memory.arena): void => {
      if (floats) writeFrom(host.memory, address, 4 * floats, { queue, target, at: 4 * at });
    };
    copy(input.patches, layout.buffers[input.ops[0]!.out]!);
    copy(input.tables, layout.tables);
    for (const { table, at, floats } of layout.runs)
      copy([input.tables[0] + 4 * table, floats], at, memory.vectors);
    const numbers = Float32Array.from({ length: layout.nNumbers }, (_, i) => i);
    queue.writeBuffer(memory.arena, 4 * layout.numbers, numbers);
    if (opened.ready) return true;
    for (const [i, vec] of input.vecs.entries()) {
      const bytes = await this.#read(vec.file, vec.offset, vec.rowBytes);
      const floats = toFloats(vec.type, bytes);
      if (!floats.every(Number.isFinite)) return false;
      queue.writeBuffer(memory.vectors, 4 * layout.vecs[i]!, floats);
    }
    return (opened.ready = true);
  }

  /** Records all steps and waits for missing units; false if it was cancelled. */
  async #record(
    opened: Opened,
    recording: Recording,
    writer: Writer,
    steps: Step[],
    given: () => boolean,
  ): Promise<boolean> {
    const pieces = new Pieces(this.#executor.shared.device.queue, recording, given);
    for (const [i, step] of steps.entries()) {
      const bytes = await opened.units.record(i, recording, given, (unit, buffer) =>
        writer.products(recording.to(), step, unit, buffer),
      );
      if (bytes < 0) return false;
      writer.finish(recording.to(), step);
      if (!(await pieces.add(bytes * step.op.inRows))) return false;
    }
    return true;
  }
}

/** Bytes for an input, and for those before it. */
function sizesOf({ input, layout }: Work, last: Opened | null): Sized<number> {
  const least = (kind: keyof Sized<unknown>): number => last?.memory[kind].size ?? 16;
  return {
    arena: Math.max(4 * layout.floats, least('arena')),
    vectors: Math.max(align(4 * layout.vecFloats, 16), least('vectors')),
    readback: Math.max(align(4 * input.nRows * input.width, 16), least('readback')),
  };
}

/** The part of an executor's program that planWeights() and WeightUpload read. */
function programOf({ mats }: Input, steps: Step[]): Program {
  const ops = steps.map(({ parts }) => ({
    kind: parts.length ? TextOp.Matmul : TextOp.Copy,
    parts: parts.map(({ mat }) => ({ mat })),
  }));
  return { mats, ops, pool: Infinity } as unknown as Program;
}
