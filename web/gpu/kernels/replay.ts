// A sequence of dispatches that is recorded once and replayed at later positions. To find pipelines and
// bind groups and to compute parameters takes longer than WebGPU's commands, and nearly all of it is the
// same for each token. Parameters that grow with the position, or with the step of a queue, are in a
// part of the uniform buffer that is written before each replay.

import { kSlotBytes, type Pipelines } from './pipelines.js';
import { type Values, type Variant, writeFields } from './shaders.js';

/** Parameters that grow: by how much with each position, and with each step of a queue. */
export type Growth = Record<string, readonly [byPosition: number, byStep: number]>;

/** A dispatch that is not recorded yet. */
export interface Call {
  variant: Variant;
  values: Values;
  /** Workgroups. */
  size: readonly number[];
  buffers: GPUBufferBinding[];
  growth: Growth | undefined;
}

/** Where a sequence is recorded. */
export interface RecordedAt {
  /** Of other kinds, other dispatches follow. */
  kind: string;
  first: number;
  step: number;
  /** Replays that are submitted together, at most. */
  replays: number;
}

/** The calls of a dry run (dispatcher.ts). */
export interface Sequence {
  calls: readonly Call[];
  /** The position from which on other calls follow. */
  until: number;
  weightBytes: number;
}

interface Command {
  pipeline: GPUComputePipeline;
  group: GPUBindGroup;
  /** Byte of the parameters in the buffer, or, if some grow, in the part of a replay. */
  at: number;
  grows: boolean;
  size: [x: number, y: number, z: number];
}

interface Growing {
  word: number;
  value: number;
  byPosition: number;
  byStep: number;
}

const growing = ({ calls }: Sequence): number => calls.filter(({ growth }) => growth).length;

/** Bytes of the parameters of a sequence. */
export const replayBytes = (sequence: Sequence, replays: number): number =>
  kSlotBytes * (sequence.calls.length + (replays - 1) * growing(sequence));

export class Replay {
  readonly dispatches: number;
  readonly weightBytes: number;
  readonly buffer: GPUBuffer;
  readonly #at: RecordedAt;
  readonly #until: number;
  readonly #commands: Command[] = [];
  readonly #growing: Growing[] = [];
  /** Parameters of the commands that grow, of one replay. */
  readonly #words: Uint32Array<ArrayBuffer>;
  /** Where those of the first replay begin in the buffer. */
  readonly #begin: number;
  readonly #offset = [0];

  /** `buffer`: replayBytes(), for uniforms and as the destination of copies. */
  constructor(pipelines: Pipelines, sequence: Sequence, at: RecordedAt, buffer: GPUBuffer) {
    const { calls, until, weightBytes } = sequence;
    this.dispatches = calls.length;
    this.weightBytes = weightBytes;
    this.buffer = buffer;
    this.#at = at;
    this.#until = until;
    const grow = kSlotBytes * growing(sequence);
    this.#begin = kSlotBytes * calls.length - grow;
    const fixed = new Uint32Array(this.#begin / 4);
    this.#words = new Uint32Array(grow / 4);
    const ends = [0, 0];
    for (const { variant, values, size, buffers, growth } of calls) {
      const { pipeline, bound, fields } = pipelines.get(variant);
      const grows = growth !== undefined;
      const words = grows ? this.#words : fixed;
      const at = kSlotBytes * ends[Number(grows)]!++;
      writeFields(fields, values, words, new Float32Array(words.buffer), at / 4);
      for (const [name, [byPosition, byStep]] of Object.entries(growth ?? {})) {
        const word = at / 4 + fields.find((field) => field.name === name)!.at;
        this.#growing.push({ word, value: words[word]!, byPosition, byStep });
      }
      const group = pipelines.group(bound, buffer, buffers);
      const [x = 1, y = 1, z = 1] = size;
      this.#commands.push({ pipeline, group, at, grows, size: [x, y, z] });
    }
    pipelines.queue.writeBuffer(buffer, 0, fixed);
  }

  /** Whether a step of this kind has the same dispatches at this position. */
  covers(kind: string, first: number): boolean {
    return kind === this.#at.kind && first >= this.#at.first && first < this.#until;
  }

  /** Records the sequence for the step at position `first`. Its part of the buffer is `step`'s. */
  play(queue: GPUQueue, pass: GPUComputePassEncoder, first: number, step: number): void {
    const words = this.#words;
    const offset = this.#offset;
    const [positions, steps] = [first - this.#at.first, step - this.#at.step];
    for (const { word, value, byPosition, byStep } of this.#growing)
      words[word] = value + positions * byPosition + steps * byStep;
    const part = this.#begin + (step % this.#at.replays) * words.byteLength;
    queue.writeBuffer(this.buffer, part, words);
    let last: GPUComputePipeline | undefined;
    for (const { pipeline, group, at, grows, size } of this.#commands) {
      if (pipeline !== last) pass.setPipeline((last = pipeline));
      offset[0] = grows ? part + at : at;
      pass.setBindGroup(0, group, offset);
      pass.dispatchWorkgroups(size[0], size[1], size[2]);
    }
  }
}
