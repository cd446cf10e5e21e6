// Types of embeddings and reranking, and the OpenAI-compatible engine.embeddings. The work is in
// embed.ts, which is loaded when it is first asked for.

import {
  abortable,
  invalid,
  moduleError,
  onlyKnown,
  type CallOptions,
} from '../protocol/errors.js';
import type { EmbedEngine } from './embed.js';
import { count, tokenIds } from './options.js';

/** How the values of a text's tokens are combined into one embedding. */
export type Pooling = 'none' | 'mean' | 'cls' | 'last';

/** Options of engine.embed(). */
export interface EmbedOptions {
  /**
   * Pooling method. 'none' returns one row per token, concatenated. Default: the model's own, or
   * 'mean' if it has none.
   */
  pooling?: Pooling;
  /**
   * Keep only the first values of each embedding, for models trained for it (Matryoshka). Default:
   * all.
   */
  dimensions?: number;
  /** Scale every embedding to length 1. Default true. */
  normalize?: boolean;
  /** Aborts the call. */
  signal?: AbortSignal;
  /** Called with the number of inputs that are done. */
  onProgress?: (progress: { done: number; total: number }) => void;
}

/** Score of one document. */
export interface RerankResult {
  /** Index of the document in the list that was passed. */
  index: number;
  /** Relevance: higher is better. The range depends on the model. */
  score: number;
}

/** Options of engine.rerank(). */
export interface RerankOptions extends Pick<EmbedOptions, 'signal' | 'onProgress'> {
  /** Return only this many of the best documents. Default: all. */
  topN?: number;
}

/** Parameters of embeddings.create(), OpenAI-compatible. */
export interface EmbeddingParams {
  /** A string, a list of strings, token ids, or lists of token ids. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** Keep only the first values of each embedding. Default: all. */
  dimensions?: number | null;
  /** Default 'float'. 'base64': little-endian float32 values in base64. */
  encoding_format?: 'float' | 'base64' | null;
  /** Ignored: an engine has one model. */
  model?: string;
  /** Ignored. */
  user?: string;
}

/** Result of embeddings.create(). */
export interface EmbeddingList {
  /** 'list'. */
  object: 'list';
  /** The embeddings, in the order of the input. */
  data: { object: 'embedding'; index: number; embedding: number[] }[];
  /** Name of the model. */
  model: string;
  /** Number of tokens processed. */
  usage: { prompt_tokens: number; total_tokens: number };
}

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
