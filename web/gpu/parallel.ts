// Entry of gpu-parallel.js: several sequences on the GPU, each with a KV cache of its own. A pass can
// compute tokens of several (lanes). Matrix multiplications and norms have the rows of all lanes, behind
// one another; what depends on a position or on a KV cache is recorded for each lane. Sequences with
// recurrent states or KV cache eviction are computed in turns, and so are those of a layer split.

import { evictionIn } from './eviction-plan.js';
import type { Recorder } from './kernels.js';
import { kSplit } from './kernels/attention.js';
import type { KvCopies } from './kv-cache.js';
import { Buf, kWords, OpKind, Word, type Program } from './program.js';
import type { GpuSequence, Lane, LaneRows, Rows, Step, Writer } from './record.js';

const kOfLanes = new Set([OpKind.Rope, OpKind.Attention, OpKind.Temperature, OpKind.Rows]);

/** A lane's kernels depend on powers of two up to 16 tokens, and on whether its positions are split. */
function kindOf(words: Uint32Array): string {
  const [n, rows, first] = [Word.N, Word.NRows, Word.First].map((word) => words[word]!);
  const size = (tokens: number): number => Math.min(16, 2 ** Math.ceil(Math.log2(tokens)));
  return `${size(n!)} ${size(rows!)} ${first! + n! > kSplit}`;
}

/** Lets `Base` record lanes, and makes the sequences of an engine. `memory`: the engine's. */
export function parallel(
  Base: typeof Writer,
  program: Program,
  memory: WebAssembly.Memory,
): {
  Writer: typeof Writer;
  each(make: () => GpuSequence): (words: Uint32Array) => GpuSequence;
} {
  /** Those of the current pass; none: it computes one sequence. */
  let lanes: Lane[] = [];

  const rowsOf = (): LaneRows[] => {
    let row = 0;
    return lanes.map((lane) => {
      const tokens = lane.words[Word.N]!;
      row += tokens;
      return {
        lane,
        row: row - tokens,
        step: row - tokens,
        tokens,
        first: lane.words[Word.First]!,
      };
    });
  };

  class LaneWriter extends Base {
    override simple(to: Recorder, step: Step, rows: Rows): void {
      if (!lanes.length || rows.row !== undefined || !kOfLanes.has(step.op.kind))
        return super.simple(to, step, rows);
      for (const { lane, ...own } of (rows.lanes ??= rowsOf()))
        if (own.tokens && !lane.dropped)
          lane.sequence.writer.simple(to, step, { ...rows, ...own, skipped: 0 });
    }

    /** Moves the rows of all lanes that go on together. They move to the front only, one by one. */
    override select(to: Recorder, rows: Rows, skipped: number, nRows: number): void {
      super.select(to, rows, skipped, nRows);
      if (!lanes.length) return;
      const { skipped: _, ...all } = rows;
      const at = (row: number) => this.place(Buf.X, 0, { ...all, skipped: 0, row });
      let kept = 0;
      rows.lanes = (rows.lanes ?? rowsOf()).map(({ lane, row, step, first }) => {
        const [before, tokens] = [lane.words[Word.FirstRow]!, lane.words[Word.NRows]!];
        const out = { lane, row: kept, step: step + before, tokens, first: first + before };
        for (let from = row + before, i = 0; i < tokens; i++, kept++)
          if (from + i !== kept)
            to.copy({ in: at(from + i), out: at(kept), tokens: 1, n: program.widths[Buf.X]! });
        return out;
      });
    }
  }

  const cache: KvCopies = {
    upload: (queue) => {
      for (const { sequence, words, dropped } of lanes)
        if (!dropped) sequence.cache.upload(queue, words);
    },
    download: (encoder, target, at) => {
      const begin = at;
      for (const lane of lanes) {
        const { sequence, words, dropped } = lane;
        lane.begin = at - begin;
        if (!dropped)
          at = sequence.cache.download(encoder, target, at, words[Word.First]!, words[Word.N]!);
        lane.end = at - begin;
      }
      return at;
    },
    // A sequence that was dropped in the meantime may have other tokens by now.
    settle: (_, bytes) => {
      for (const { sequence, words, begin, end } of lanes)
        if (!words[Word.Lost])
          sequence.cache.settle(
            words,
            bytes.subarray(begin, end),
            words[Word.First]!,
            words[Word.N]!,
          );
    },
  };

  const wordsAt = (address: number): Uint32Array => new Uint32Array(memory.buffer, address, kWords);

  /** What a pass computes, by its words. */
  const each = (make: () => GpuSequence): ((words: Uint32Array) => GpuSequence) => {
    const all = Array.from({ length: program.parallel }, make);
    const { caches, cut } = program;
    const turns = cut || evictionIn(program) || caches.some(({ state }) => state);
    wordsAt(program.pass)[Word.MaxLanes] = turns ? 1 : all.length;
    return (words) => {
      lanes = Array.from({ length: words[Word.NLanes]! }, (_, i) => {
        const own = wordsAt(words[Word.Lanes]! + 4 * kWords * i);
        const dropped = own[Word.Lost] !== 0;
        return { sequence: all[own[Word.Slot]!]!, words: own, dropped, begin: 0, end: 0 };
      });
      if (!lanes.length) return all[words[Word.Slot]!]!;
      const kinds = new Set(lanes.map(({ words }) => kindOf(words)));
      return { cache, writer: all[0]!.writer, kind: [...kinds].sort().join() };
    };
  };
  return { Writer: LaneWriter, each };
}
