// The OpenAI-compatible engine.embeddings, and what loads embed.ts when it is first asked for.

import { invalid, moduleError, onlyKnown, type CallOptions } from '../protocol/errors.js';
import { snapshot } from '../protocol/snapshot.js';
import type { EmbedCalls, EmbedInfo, RunEmbed } from './embed.js';
import type { EmbeddingList, EmbeddingParams } from './embedding.js';
import { count, tokenIds } from './options.js';

/** What embed.ts does, for the engine of a model. */
export async function embedCalls(info: EmbedInfo, run: RunEmbed): Promise<EmbedCalls> {
  const { EmbedCalls } = await import('./embed.js').catch(moduleError('embed.js'));
  return new EmbedCalls(info, run, { count, invalid, onlyKnown, tokenIds });
}

/** The part of Engine that is used here. */
interface EmbeddingEngine {
  /** @internal */
  embedding<T>(options: CallOptions, work: (calls: EmbedCalls) => Promise<T>): Promise<T>;
}

/** OpenAI-compatible embeddings: engine.embeddings. */
export class Embeddings {
  readonly #engine: EmbeddingEngine;

  /** @internal */
  constructor(engine: EmbeddingEngine) {
    this.#engine = engine;
  }

  /**
   * Embeddings of one or several inputs, scaled to length 1.
   *
   * @example
   * ```ts
   * const { data } = await engine.embeddings.create({ input: ['a hot meal', 'a cold drink'] });
   * for (const { index, embedding } of data) console.log(index, embedding.length);
   * ```
   */
  create(params: EmbeddingParams, options: CallOptions = {}): Promise<EmbeddingList> {
    const own = snapshot(params);
    onlyKnown('this call', options, 'signal');
    return this.#engine.embedding(options, (calls) => calls.create(own));
  }
}
