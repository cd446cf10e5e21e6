// The OpenAI-compatible engine.embeddings, and what loads embed.ts when it is first asked for.

import {
  abortable,
  invalid,
  moduleError,
  onlyKnown,
  type CallOptions,
} from '../protocol/errors.js';
import type { EmbedEngine } from './embed.js';
import type { EmbeddingList, EmbeddingParams } from './embedding.js';
import { count, tokenIds } from './options.js';

/** What embed.ts does, for this engine. */
export async function embedCalls(engine: EmbedEngine) {
  const { EmbedCalls } = await import('./embed.js').catch(moduleError('embed.js'));
  return new EmbedCalls(engine, { count, invalid, onlyKnown, tokenIds });
}

/** OpenAI-compatible embeddings: engine.embeddings. */
export class Embeddings {
  readonly #engine: EmbedEngine;

  /** @internal */
  constructor(engine: EmbedEngine) {
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
  create(params: EmbeddingParams, options?: CallOptions): Promise<EmbeddingList> {
    return abortable(options, async () => (await embedCalls(this.#engine)).create(params, options));
  }
}
