// Entry of gpu-pictures.js: runs vision encoders on the GPU of an executor, within what its gpuBudget
// leaves. worker/pictures imports this module with the first picture. Weights that fit stay on the GPU, others
// stream for each input. Whatever the GPU cannot do is left to the engine, which encodes on the CPU.

import { SluiceError } from '../../protocol/errors.js';
import { writeFrom, Usage } from '../buffers.js';
import type { GpuExecutor } from '../executor.js';
import type { Memory } from '../kernels.js';
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

/** What an encoder holds on the GPU. */
interface Opened {
  units: WeightUnits;
  memory: Memory;
  readback: GPUBuffer;
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
    const steps = stepsOf(input, layout);
    try {
      const opened = await this.#open(input, layout, steps);
      return opened !== null && (await this.#run(opened, { input, layout, steps }, stopped));
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

  #close(): void {
    const { buffers } = this.#executor.shared;
    for (const buffer of this.#buffers.splice(0)) {
      buffers.bytes -= buffer.size;
      buffer.destroy();
    }
    this.#opened = null;
  }

  /** Buffers for an input: those of an earlier one that was as large. Null: they do not fit. */
  async #open(input: Input, layout: Layout, steps: Step[]): Promise<Opened | null> {
    const arena = 4 * layout.floats;
    const vectors = align(4 * layout.vecFloats, 16) || 16;
    const readback = align(4 * input.nRows * input.width, 16);
    const last = this.#opened;
    if (
      last &&
      arena <= last.memory.arena.size &&
      vectors <= last.memory.vectors.size &&
      readback <= last.readback.size
    )
      return last;
    this.#close();
    const { device, host, counts } = this.#executor.shared;
    const { maxStorageBufferBindingSize: binding, maxBufferSize } = device.limits;
    const most = Math.min(binding, maxBufferSize);
    const numbers = kParameterBytes * Math.ceil((4 * input.ops.length) / 512);
    const fixed = arena + vectors + readback + numbers;
    if (Math.max(arena, vectors) > most) return null;
    const program = programOf(input, steps);
    let plan: GpuPlan;
    try {
      const left =
        (host.gpuBudget || kMaxBytes) - this.#executor.bytes - parametersOf(host.program);
      plan = planWeights(program, left - fixed, { unitBytes: most });
    } catch {
      return null;
    }
    device.pushErrorScope('out-of-memory');
    const storage = Usage.Storage | Usage.CopySource | Usage.CopyTarget;
    const opened: Opened = {
      memory: { arena: this.make(arena, storage), vectors: this.make(vectors, storage) },
      readback: this.make(readback, Usage.MapRead | Usage.CopyTarget),
      units: new WeightUnits(program, plan, this, this.#read, counts),
      ready: false,
    };
    if (await device.popErrorScope()) {
      this.#close();
      return null;
    }
    return (this.#opened = opened);
  }

  async #run(opened: Opened, work: Work, stopped: () => boolean): Promise<boolean> {
    const executor = this.#executor;
    const { device, kernels, counts, host } = executor.shared;
    const { memory, units, readback } = opened;
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

/** The part of an executor's program that planWeights() and WeightUpload read. */
function programOf({ mats }: Input, steps: Step[]): Program {
  const ops = steps.map(({ parts }) => ({
    kind: parts.length ? TextOp.Matmul : TextOp.Copy,
    parts: parts.map(({ mat }) => ({ mat })),
  }));
  return { mats, ops, pool: Infinity } as unknown as Program;
}
