// Computes the passes that the engine requests: uploads what the GPU lacks, records, and writes the results
// to the engine's memory.

import { Usage, writeFrom } from './buffers.js';
import type { PassRecorder } from './pass-recorder.js';
import { align } from './plan.js';
import { Buf, PassState, Word } from './program.js';
import { Recording } from './recording.js';
import { inputsOf, numbersOf, type Rows } from './record.js';
import { wordsOf, type Resources } from './resources.js';
import type { Sequences } from './sequences.js';
import { kStateless } from './state-plan.js';
import { kQueueFloats } from './queue-plan.js';

/** End offsets in the readback buffer: of logits or residual stream, of KV rows, of states, of all. */
interface Back {
  result: number;
  rows: number;
  states: number;
  size: number;
}

export class Passes {
  readonly #resources: Resources;
  readonly #sequences: Sequences;
  readonly #recorder: PassRecorder;
  readonly #readback: GPUBuffer;
  #vectorsThere = false;

  constructor(
    resources: Resources,
    sequences: Sequences,
    recorder: PassRecorder,
    readbackBytes: number,
  ) {
    this.#resources = resources;
    this.#sequences = sequences;
    this.#recorder = recorder;
    this.#readback = resources.buffers.make(readbackBytes, Usage.MapRead | Usage.CopyTarget);
  }

  async compute(lost: () => boolean): Promise<void> {
    const { host, device, kernels, memory: places, counts } = this.#resources;
    const words = wordsOf(host);
    const { program, memory } = host;
    const recorder = this.#recorder;
    if (words[Word.Fetch]) return this.#sequences.states!.serve(words);
    const [serial, n, first, steps] = [Word.Serial, Word.N, Word.First, Word.Steps].map(
      (word) => words[word]!,
    ) as [number, number, number, number];
    const { cache, attention } = (recorder.sequence = this.#sequences.of(words));
    const more = { hidden: words[Word.Hidden]!, inputs: inputsOf(words) };
    // The KV cache of several inputs, or of layers that share one, is not continued.
    const kept = more.inputs.length || program.bidirectional ? 0 : n;
    const given = (): boolean =>
      lost() || words[Word.Serial] !== serial || words[Word.State] !== PassState.Wanted;
    const began = performance.now();
    await recorder.begin(words, given);
    if (given()) return;
    if (steps)
      for (let step = 0; step < steps; step++) await recorder.prepare(1, first + step, 1, true);
    else await recorder.prepare(n, first, words[Word.NRows]!, false, more);
    if (given()) return;
    const rows = { ...this.#upload(words, n, first), ...more };
    const recording = new Recording(device, kernels, places, counts);
    let back: Back | null;
    try {
      const recorded = await (steps
        ? recorder.recordQueue(recording, rows, given)
        : recorder.record(recording, rows, words[Word.FirstRow]!, words[Word.NRows]!, given));
      back = recorded ? this.#download(recording, words, first, n, kept) : null;
    } finally {
      recording.submit(); // uploaded units are already marked as loaded
    }
    if (!back) return;
    const { result, size } = back;
    const readback = this.#readback;
    await readback.mapAsync(Usage.MapRead, 0, size);
    try {
      if (given()) return;
      const made = new Uint8Array(readback.getMappedRange(0, size));
      if (steps)
        recorder.queue.settle(
          memory,
          words,
          new Float32Array(made.buffer, made.byteOffset, kQueueFloats),
          performance.now() - began,
        );
      else
        new Uint8Array(memory.buffer, words[program.cut ? Word.X : Word.Logits], result).set(
          made.subarray(0, result),
        );
      cache.settle(words, made.subarray(result, back.rows), first, kept);
      this.#sequences.states?.settle(words, made.subarray(back.rows));
      attention?.settle(words, made.subarray(back.states), first, n);
      if (!counts.gpuPasses && !more.inputs.length)
        recorder.prepare(program.nBatch, 0, 1).catch(() => {}); // for the next prompt
      counts.gpuPasses += steps || 1;
      words[Word.State] = PassState.Done;
    } finally {
      readback.unmap();
    }
  }

  /** Uploads what a pass of n tokens reads, and returns its rows. */
  #upload(words: Uint32Array, n: number, first: number): Rows {
    const { host, device, memory: places, layout } = this.#resources;
    const { program, memory } = host;
    const { queue } = device;
    const { arena } = places;
    const { sequence, queue: stepQueue } = this.#recorder;
    const copy = (address: number, floats: number, at: number, target = arena): void =>
      writeFrom(memory, address, 4 * floats, { queue, target, at: 4 * at });
    const addresses = (word: Word, count: number): Uint32Array =>
      new Uint32Array(memory.buffer, words[word], count);

    // Norm weights and biases, which the engine has loaded before the first pass.
    if (!this.#vectorsThere) {
      const vectors = addresses(Word.Vectors, program.vecs.length);
      program.vecs.forEach((n, i) => copy(vectors[i]!, n, layout.vecs[i]!, places.vectors));
      const numbers = Float32Array.from({ length: numbersOf(program) }, (_, i) => i);
      // Deno crashes if it is given an empty array.
      if (numbers.length) queue.writeBuffer(arena, 4 * layout.numbers, numbers);
      this.#vectorsThere = true;
    }
    sequence.cache.upload(queue, words);
    sequence.attention?.begin(queue, words);
    const states = this.#sequences.states?.begin(words) ?? kStateless;
    const rows: Rows = { tokens: n, first, skipped: 0, states, step: 0 };
    const width = words[Word.MediaWidth]!; // 0: text
    if (width) rows.media = { width, nonCausal: words[Word.NonCausal]! };
    if (width && program.deepstack) copy(words[Word.Media]!, n * width, layout.media);
    // Rows of tables. Writes are of whole words. Behind the last row the engine has more memory.
    const tableRows = addresses(Word.TableRows, program.tables.length);
    for (const [table, target] of this.#sequences.tables)
      copy(
        tableRows[table]!,
        Math.ceil((n * program.mats[program.tables[table]!]!.rowBytes) / 4),
        0,
        target,
      );
    if (words[Word.Steps]) stepQueue.begin(queue, words, arena);
    else copy(words[Word.X]!, n * program.widths[Buf.X]!, layout.buffers[Buf.X]!);
    const ropes = addresses(Word.Ropes, program.ropes.length);
    program.ropes.forEach(({ nRot }, i) => copy(ropes[i]!, n * nRot, layout.ropes[i]!));
    return rows;
  }

  /**
   * Records the copies of the results: chosen tokens, logits or rows of all tokens, `kept` KV cache
   * rows, and checkpoints of states.
   */
  #download(
    recording: Recording,
    words: Uint32Array,
    first: number,
    n: number,
    kept: number,
  ): Back {
    const { host, layout, memory } = this.#resources;
    const { program } = host;
    const { cache, attention } = this.#recorder.sequence;
    const { queue, buffers } = layout;
    const readback = this.#readback;
    recording.finish();
    const { encoder } = recording;
    const [buf, count] = program.cut
      ? [Buf.X, n]
      : words[Word.Hidden]
        ? [Buf.H, n]
        : [Buf.Logits, words[Word.NRows]!];
    const [at, floats] = words[Word.Steps]
      ? [queue.tokens, kQueueFloats]
      : [buffers[buf]!, count * program.widths[buf]!];
    const result = 4 * floats;
    if (result) encoder.copyBufferToBuffer(memory.arena, 4 * at, readback, 0, result);
    const rows = cache.download(encoder, readback, result, first, kept);
    const states = rows + (this.#sequences.states?.download(encoder, words, readback, rows) ?? 0);
    const observed = attention?.download(encoder, readback, states, first, n) ?? 0;
    return { result, rows, states, size: align(states + observed, 8) };
  }
}
