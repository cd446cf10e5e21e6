// Embeddings and rerank scores in the worker. Tokenizes the inputs, runs as many at a time as fit
// in a context, and collects the rows.

import { abortError, invalid } from '../protocol/errors.js';
import type { Embedded, EmbedSpec } from '../protocol/messages.js';
import { Transferred } from '../protocol/rpc.js';
import type { EmbedInfo, EngineBinding } from './binding.js';
import { errorOf } from './header-loader.js';
import type { GenerationLoop, CancelFlag } from './generation-loop.js';
import { tokenize } from './tokenize.js';

const kPlain = { addSpecial: true, parseSpecial: false, literalSpans: false, continuation: false };

function tokensOf(
  binding: EngineBinding,
  text: string | Int32Array,
  query: string | undefined,
): Int32Array {
  if (typeof text !== 'string') return text;
  if (query === undefined) return tokenize(binding, text, kPlain);
  const encoder = new TextEncoder();
  const tokens = binding.pairTokens(encoder.encode(query), encoder.encode(text));
  if (!tokens) throw errorOf(binding);
  return tokens;
}

/** Embeds the inputs in the selected slot, which must be empty. Reports how many are done. */
export async function embed(
  binding: EngineBinding,
  running: GenerationLoop,
  cancelFlag: CancelFlag,
  given: readonly (string | Int32Array)[],
  spec: EmbedSpec,
  onProgress: (done: number) => void,
): Promise<Transferred<Embedded>> {
  const { dimensions, pooling, scores, contextLength } = JSON.parse(
    binding.embedInfo(),
  ) as EmbedInfo;
  if (spec.pooling < 0 && pooling === 4) invalid('a reranker has no embeddings: use rerank().');
  const width = spec.pooling === 4 ? scores : Math.min(spec.dimensions || dimensions, dimensions);
  const texts = given.map((text) => tokensOf(binding, text, spec.query));
  const rows = Int32Array.from(texts, ({ length }) => (spec.pooling === 0 ? length : 1));
  const tokens = texts.reduce((sum, { length }) => sum + length, 0);
  const values = new Float32Array(width * rows.reduce((sum, n) => sum + n, 0));
  let at = 0;
  for (let first = 0; first < texts.length;) {
    let end = first;
    let sum = 0;
    do sum += texts[end++]!.length;
    while (end < texts.length && sum + texts[end]!.length <= contextLength);
    at = await group(texts.slice(first, end), at);
    onProgress((first = end));
  }
  return new Transferred({ values, width, rows, tokens }, [values.buffer, rows.buffer]);

  async function group(texts: Int32Array[], at: number): Promise<number> {
    const ends = new Int32Array(texts.length);
    texts.forEach((text, i) => (ends[i] = (ends[i - 1] ?? 0) + text.length));
    const all = new Int32Array(ends.at(-1)!);
    texts.forEach((text, i) => all.set(text, ends[i - 1] ?? 0));
    if (!binding.embed(all, ends, spec)) throw errorOf(binding);
    try {
      for (;;) {
        const next = binding.embedNext();
        if (next < 0) throw errorOf(binding);
        if (next === 0) return at;
        if (!(await running.pass(cancelFlag))) throw abortError();
        const results = binding.embedResults();
        values.set(results, at);
        at += results.length;
      }
    } finally {
      binding.clear();
    }
  }
}
