// The OpenAI-compatible engine.embeddings, and what loads embed.ts when it is first asked for.

import type { EmbeddingEngine as ChatEngine } from '../chat/embeddings.js';
import type { EmbeddingList, EmbeddingParams } from '../chat/openai.js';
import { chatModule } from '../chat/prompt.js';
import { invalid, moduleError, onlyKnown, type CallOptions } from '../protocol/errors.js';
import { snapshot } from '../protocol/snapshot.js';
import type { EmbedCalls, EmbedInfo, RunEmbed } from './embed.js';
import { count, tokenIds } from './options.js';

/** What embed.ts does, for the engine of a model. */
export async function embedCalls(info: EmbedInfo, run: RunEmbed): Promise<EmbedCalls> {
  const { EmbedCalls } = await import('./embed.js').catch(moduleError('embed.js'));
  return new EmbedCalls(info, run, { count, invalid, onlyKnown, tokenIds });
}

/** The part of Engine that is used here. */
interface EmbeddingEngine extends ChatEngine {
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
  async create(params: EmbeddingParams, options: CallOptions = {}): Promise<EmbeddingList> {
    const own = snapshot(params);
    onlyKnown('this call', options, 'signal');
    const { embeddings } = await chatModule();
    return embeddings(this.#engine, own, (texts, spec) =>
      this.#engine.embedding(options, (calls) => calls.run(texts, spec)),
    );
  }
}
