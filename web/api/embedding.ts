// Embeddings and reranking: engine.embed(), engine.rerank() and the OpenAI-compatible
// engine.embeddings.create().

import {
  abortable,
  invalid,
  onlyKnown,
  throwIfAborted,
  type CallOptions,
} from '../protocol/errors.js';
import type { Embedded, EmbedSpec } from '../protocol/messages.js';
import type { AssertSameKeys, SplitNames } from '../protocol/options.js';
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

const kPoolings = ['none', 'mean', 'cls', 'last', 'rank'];
const kEmbed = 'pooling dimensions normalize signal onProgress';
const kCreate = 'input dimensions encoding_format model user';
true satisfies AssertSameKeys<SplitNames<typeof kEmbed>, keyof EmbedOptions>;
true satisfies AssertSameKeys<SplitNames<typeof kCreate>, keyof EmbeddingParams>;

/** The part of Engine that is used here. */
export interface EmbedEngine {
  readonly info: { name: string; vocabSize: number };
  /** @internal */
  embedTexts(
    texts: (string | Int32Array)[],
    spec: EmbedSpec,
    signal: AbortSignal | undefined,
    onProgress: (done: number) => void,
  ): Promise<Embedded>;
}

type Input = string | ArrayLike<number>;

const embedded = (
  engine: EmbedEngine,
  inputs: (string | Int32Array)[],
  spec: EmbedSpec,
  { signal, onProgress }: Pick<EmbedOptions, 'signal' | 'onProgress'>,
): Promise<Embedded> =>
  engine.embedTexts(inputs, spec, signal, (done) => onProgress?.({ done, total: inputs.length }));

function checked(engine: EmbedEngine, texts: readonly Input[]): (string | Int32Array)[] {
  return texts.map((text) =>
    typeof text === 'string' ? text : tokenIds(text, engine.info.vocabSize),
  );
}

/** Embeddings of strings or lists of token ids, and the total number of tokens. */
export async function embedTexts(
  engine: EmbedEngine,
  texts: readonly Input[],
  options: EmbedOptions,
): Promise<{ vectors: Float32Array[]; tokens: number }> {
  onlyKnown('embed()', options, kEmbed);
  const { pooling } = options;
  const number = pooling === undefined ? -1 : kPoolings.indexOf(pooling);
  if (pooling !== undefined && (number < 0 || number === 4))
    invalid('pooling must be none, mean, cls or last.');
  const spec = {
    pooling: number,
    normalize: options.normalize ?? true,
    dimensions: count('dimensions', options.dimensions),
  };
  const inputs = checked(engine, texts);
  const { values, width, rows, tokens } = await embedded(engine, inputs, spec, options);
  let at = 0;
  return { vectors: Array.from(rows, (n) => values.slice(at, (at += n * width))), tokens };
}

/** Scores of the documents, the best first. */
export async function rankDocuments(
  engine: EmbedEngine,
  query: string,
  documents: readonly string[],
  options: RerankOptions,
): Promise<RerankResult[]> {
  onlyKnown('rerank()', options, 'topN signal onProgress');
  if (typeof query !== 'string' || !documents.every((text) => typeof text === 'string'))
    invalid('query and documents must be strings.');
  const { topN } = options;
  const most = topN === undefined ? documents.length : count('topN', topN);
  const inputs = [...documents];
  const spec = { pooling: 4, normalize: false, dimensions: 0, query };
  const { values, width } = await embedded(engine, inputs, spec, options);
  const ranked = inputs.map((_, index) => ({ index, score: values[index * width]! }));
  ranked.sort((a, b) => b.score - a.score);
  return ranked.slice(0, most);
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
    return abortable(options, async () => {
      onlyKnown('embeddings.create()', params, kCreate);
      const { input, dimensions, encoding_format: format } = params;
      if (!/^(float|base64)$/.test(format ?? 'float'))
        invalid('encoding_format must be float or base64.');
      const one = typeof input === 'string' || typeof input?.[0] === 'number';
      const texts = (one ? [input] : [...(input ?? [])]) as Input[];
      const { signal } = options ?? {};
      throwIfAborted(signal);
      const { vectors, tokens } = await embedTexts(this.#engine, texts, {
        ...(dimensions && { dimensions }),
        ...(signal && { signal }),
      });
      const data = vectors.map((vector, index) => ({
        object: 'embedding' as const,
        index,
        // OpenAI's clients request base64 by default and decode it themselves.
        embedding: (format === 'base64' ? base64(vector) : Array.from(vector)) as number[],
      }));
      return {
        object: 'list',
        data,
        model: this.#engine.info.name,
        usage: { prompt_tokens: tokens, total_tokens: tokens },
      };
    });
  }
}

function base64({ buffer }: Float32Array): string {
  return btoa(Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join(''));
}
