// What texts mean, as vectors: engine.embed(), engine.rerank() and OpenAI's
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

/** How the rows of a text become one vector. */
export type Pooling = 'none' | 'mean' | 'cls' | 'last';

/** What embed() takes. */
export interface EmbedOptions {
  /** Default: the model's own, else the mean. none: a row for each token, one after the other. */
  pooling?: Pooling;
  /**
   * Only the first so many values, of models that were trained for it (Matryoshka). Default: all.
   */
  dimensions?: number;
  /** Scales every vector to length 1. Default true. */
  normalize?: boolean;
  /** Aborts it. */
  signal?: AbortSignal;
  /** Hears how many texts are done. */
  onProgress?: (progress: { done: number; total: number }) => void;
}

/** A document's place in a ranking. */
export interface RerankResult {
  /** Of the document in the list that was given. */
  index: number;
  /** The greater, the better it answers; what values there are is the model's. */
  score: number;
}

/** What rerank() takes. */
export interface RerankOptions extends Pick<EmbedOptions, 'signal' | 'onProgress'> {
  /** Only the best so many. Default: all. */
  topN?: number;
}

/** What embeddings.create() takes, as OpenAI has it. */
export interface EmbeddingParams {
  /** A text, texts, or lists of token ids. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** The first so many values of each vector. */
  dimensions?: number | null;
  /** Default float; base64: of little-endian floats. */
  encoding_format?: 'float' | 'base64' | null;
  /** Ignored, as there is one model. */
  model?: string;
  /** Ignored. */
  user?: string;
}

/** Its answer. */
export interface EmbeddingList {
  /** 'list'. */
  object: 'list';
  /** The vectors, in the order of the input. */
  data: { object: 'embedding'; index: number; embedding: number[] }[];
  /** The model's name. */
  model: string;
  /** Tokens that were read. */
  usage: { prompt_tokens: number; total_tokens: number };
}

const kPoolings = ['none', 'mean', 'cls', 'last', 'rank'];
const kEmbed = 'pooling dimensions normalize signal onProgress';
const kCreate = 'input dimensions encoding_format model user';
true satisfies AssertSameKeys<SplitNames<typeof kEmbed>, keyof EmbedOptions>;
true satisfies AssertSameKeys<SplitNames<typeof kCreate>, keyof EmbeddingParams>;

/** What is needed of an engine. */
export interface EmbedEngine {
  readonly info: { name: string; vocabSize: number };
  /** @internal */
  embedTexts(
    texts: (string | Int32Array)[],
    spec: EmbedSpec,
    signal: AbortSignal | undefined,
    told: (done: number) => void,
  ): Promise<Embedded>;
}

type Input = string | ArrayLike<number>;

function checked(engine: EmbedEngine, texts: readonly Input[]): (string | Int32Array)[] {
  return texts.map((text) =>
    typeof text === 'string' ? text : tokenIds(text, engine.info.vocabSize),
  );
}

/** The vectors of texts, or of lists of token ids. */
export async function embedTexts(
  engine: EmbedEngine,
  texts: readonly Input[],
  options: EmbedOptions,
): Promise<{ vectors: Float32Array[]; tokens: number }> {
  onlyKnown('embed()', options, kEmbed);
  const { pooling, signal, onProgress } = options;
  const number = pooling === undefined ? -1 : kPoolings.indexOf(pooling);
  if (pooling !== undefined && (number < 0 || number === 4))
    invalid('pooling must be none, mean, cls or last.');
  const spec = {
    pooling: number,
    normalize: options.normalize ?? true,
    dimensions: count('dimensions', options.dimensions),
  };
  const { values, width, rows, tokens } = await engine.embedTexts(
    checked(engine, texts),
    spec,
    signal,
    (done) => onProgress?.({ done, total: texts.length }),
  );
  let at = 0;
  return { vectors: Array.from(rows, (n) => values.slice(at, (at += n * width))), tokens };
}

/** The documents in the order in which they answer the query. */
export async function rankDocuments(
  engine: EmbedEngine,
  query: string,
  documents: readonly string[],
  options: RerankOptions,
): Promise<RerankResult[]> {
  onlyKnown('rerank()', options, 'topN signal onProgress');
  if (typeof query !== 'string' || !documents.every((text) => typeof text === 'string'))
    invalid('A query and its documents are texts.');
  const { signal, onProgress } = options;
  const spec = { pooling: 4, normalize: false, dimensions: 0, query };
  const { values, width } = await engine.embedTexts([...documents], spec, signal, (done) =>
    onProgress?.({ done, total: documents.length }),
  );
  const ranked = documents.map((_, index) => ({ index, score: values[index * width]! }));
  ranked.sort((a, b) => b.score - a.score);
  return options.topN === undefined ? ranked : ranked.slice(0, count('topN', options.topN));
}

/** engine.embeddings. */
export class Embeddings {
  readonly #engine: EmbedEngine;

  /** @internal */
  constructor(engine: EmbedEngine) {
    this.#engine = engine;
  }

  /** OpenAI's call: the vectors of one text or several, of length 1. */
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
        // OpenAI's clients ask for base64, and decode it, where nobody says what they want.
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
