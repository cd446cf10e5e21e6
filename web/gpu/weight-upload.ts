// Reads weights from the model's files into mapped staging buffers, for upload to the GPU. Reads
// ahead of the pass, also across its end, as far as there are free buffers. Each buffer gets a
// chunk of a unit; the pass copies it to its place on the GPU and returns the buffer.

import { align, type GpuPlan, type Unit } from './plan.js';
import { Usage, type Buffers } from './buffers.js';
import type { Program } from './program.js';

export type ReadWeights = (file: number, offset: number, length: number) => Promise<Uint8Array>;

/** Bytes [from, to) of a unit, in a staging buffer that is no longer mapped. */
export interface Chunk {
  unit: number;
  from: number;
  to: number;
  staging: GPUBuffer;
}

interface Reading {
  unit: number;
  from: number;
  to: number;
  chunk: Promise<Chunk>;
}

export class WeightUpload {
  /** Bytes read so far. */
  bytes = 0;
  readonly #free: GPUBuffer[] = [];
  readonly #reading: Reading[] = [];
  /** Buffers that are being mapped again. */
  readonly #coming = new Set<Promise<void>>();
  /** Pinned units whose reading has started. */
  readonly #begun = new Set<number>();
  /** Next chunk to read. */
  #unit = 0;
  #from = 0;
  #stopped = false;
  readonly #program: Program;
  readonly #plan: GpuPlan;
  readonly #read: ReadWeights;
  readonly #resident: (unit: number) => boolean;

  constructor(
    program: Program,
    plan: GpuPlan,
    buffers: Pick<Buffers, 'make'>,
    read: ReadWeights,
    resident: (unit: number) => boolean,
  ) {
    this.#program = program;
    this.#plan = plan;
    this.#read = read;
    this.#resident = resident;
    for (let i = 0; i < plan.staging; i++)
      this.#free.push(
        buffers.make(align(plan.stagingBytes, 16), Usage.MapWrite | Usage.CopySource),
      );
  }

  /** The chunk of `unit` at byte `from`. Copy it on the GPU, then return its buffer with give(). */
  async chunk(unit: number, from: number): Promise<Chunk> {
    const next = this.#reading[0];
    if (next?.unit !== unit || next.from !== from) {
      // First, since buffers that come back meanwhile are filled with what is next.
      [this.#unit, this.#from] = [unit, from];
      this.#begun.delete(unit);
      await this.#drop();
    }
    for (this.ahead(); !this.#reading.length; this.ahead()) await Promise.race(this.#coming);
    try {
      return await this.#reading[0]!.chunk;
    } finally {
      this.#reading.shift();
    }
  }

  /** Takes a buffer back. Its copy must have been submitted. */
  give(staging: GPUBuffer): void {
    const coming = staging.mapAsync(Usage.MapWrite).then(() => {
      this.#coming.delete(coming);
      this.#free.push(staging);
      this.ahead();
    });
    coming.catch(() => {}); // the GPU is lost, which chunk() reports
    this.#coming.add(coming);
  }

  /** Reads no more. Returns the staging buffers when none is in use. */
  async stop(): Promise<GPUBuffer[]> {
    this.#stopped = true;
    await this.#drop();
    await Promise.allSettled(this.#coming);
    return this.#free;
  }

  /** Starts reads for all free buffers. */
  ahead(): void {
    while (this.#free.length && !this.#stopped) {
      const at = this.#next();
      if (!at) return;
      const staging = this.#free.pop()!;
      const reading = { ...at, chunk: this.#fill(at, staging) };
      reading.chunk.catch(() => {}); // reported by chunk()
      this.#reading.push(reading);
    }
  }

  /** The next chunk in the order of computation, continuing with the next pass. Null: none. */
  #next(): Omit<Chunk, 'staging'> | null {
    const { units, stagingBytes } = this.#plan;
    for (let looked = 0; looked <= units.length; looked++) {
      const unit = units[this.#unit];
      const waits = this.#reading.some(
        (reading) => reading.unit === this.#unit && reading.from === this.#from,
      );
      const stays = this.#from === 0 && (this.#resident(this.#unit) || this.#begun.has(this.#unit));
      if (unit && this.#from < unit.bytes && !waits && !stays) {
        const [from, to] = [this.#from, Math.min(this.#from + stagingBytes, unit.bytes)];
        this.#from = to;
        if (unit.pinned) this.#begun.add(this.#unit);
        return { unit: this.#unit, from, to };
      }
      this.#unit = (this.#unit + 1) % units.length;
      this.#from = 0;
    }
    return null;
  }

  async #fill(at: Omit<Chunk, 'staging'>, staging: GPUBuffer): Promise<Chunk> {
    const { from, to } = at;
    const unit: Unit = this.#plan.units[at.unit]!;
    try {
      const into = new Uint8Array(staging.getMappedRange(0, align(to - from, 16)));
      await Promise.all(
        unit.pieces.map(async (piece) => {
          const [a, b] = [Math.max(from, piece.at), Math.min(to, piece.at + piece.bytes)];
          if (a >= b) return;
          const mat = this.#program.mats[piece.mat]!;
          const bytes = await this.#read(
            mat.file,
            mat.offset + piece.row0 * mat.rowBytes + (a - piece.at),
            b - a,
          );
          into.set(bytes, a - from);
          this.bytes += b - a;
        }),
      );
    } catch (error) {
      // Not mapped: it was destroyed meanwhile, and to map it would be an error of the device.
      if (staging.mapState === 'mapped') {
        staging.unmap();
        this.give(staging);
      }
      throw error;
    }
    staging.unmap();
    return { ...at, staging };
  }

  /** Discards chunks that were read ahead, because another unit is needed. */
  async #drop(): Promise<void> {
    const all = this.#reading.splice(0);
    for (const { unit } of all) this.#begun.delete(unit);
    const give = ({ staging }: Chunk): void => this.give(staging);
    await Promise.all(all.map(({ chunk }) => chunk.then(give, () => {})));
  }
}
