// engine.embed() and engine.rerank(). This module is loaded at their first use. Code shared with the entry is passed as an argument, because a second copy of the error
// class would be another class.

import type { invalid, onlyKnown } from '../protocol/errors.js';
import type { Embedded, EmbedSpec, EmbedTexts } from '../protocol/messages.js';
import type { AssertSameKeys, SplitNames } from '../protocol/options.js';
import type { EmbedOptions, RerankOptions, RerankResult } from './embedding.js';
import type { count, tokenIds } from './options.js';

/** The part of a model's info that is used here. */
export interface EmbedInfo {
  name: string;
  vocabSize: number;
}

/** Embeds in the worker. */
export type RunEmbed = (
  texts: EmbedTexts,
  spec: EmbedSpec,
  onProgress: (done: number) => void,
) => Promise<Embedded>;

/** Code that belongs to the entry. */
export interface Entry {
  count: typeof count;
  invalid: typeof invalid;
  onlyKnown: typeof onlyKnown;
  tokenIds: typeof tokenIds;
}

const kPoolings = ['none', 'mean', 'cls', 'last'];
const kRank = 4;
const kEmbed = 'pooling dimensions normalize signal onProgress';
true satisfies AssertSameKeys<SplitNames<typeof kEmbed>, keyof EmbedOptions>;

type Input = string | ArrayLike<number>;

export class EmbedCalls {
  readonly #info: EmbedInfo;
  readonly #embed: RunEmbed;
  readonly #entry: Entry;

  constructor(info: EmbedInfo, embed: RunEmbed, entry: Entry) {
    this.#info = info;
    this.#embed = embed;
    this.#entry = entry;
  }

  /** Embeddings of strings or lists of token ids, and the total number of tokens. */
  async embed(
    texts: readonly Input[],
    options: EmbedOptions,
  ): Promise<{ vectors: Float32Array[]; tokens: number }> {
    const { count, invalid, onlyKnown, tokenIds } = this.#entry;
    if (!Array.isArray(texts)) invalid('embed() takes an array.');
    onlyKnown('embed()', options, kEmbed);
    const { pooling } = options;
    const number = pooling === undefined ? -1 : kPoolings.indexOf(pooling);
    if (pooling !== undefined && number < 0) invalid('pooling must be none, mean, cls or last.');
    const spec = {
      pooling: number,
      normalize: options.normalize ?? true,
      dimensions: count('dimensions', options.dimensions),
    };
    const inputs = (texts as readonly Input[]).map((text) =>
      typeof text === 'string' ? text : tokenIds(text, this.#info.vocabSize),
    );
    const { values, width, rows, tokens } = await this.run(inputs, spec, options);
    let at = 0;
    return { vectors: Array.from(rows, (n) => values.slice(at, (at += n * width))), tokens };
  }

  /** Scores of the documents, the best first. */
  async rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions,
  ): Promise<RerankResult[]> {
    const { count, invalid, onlyKnown } = this.#entry;
    onlyKnown('rerank()', options, 'topN signal onProgress');
    if (typeof query !== 'string' || !documents.every((text) => typeof text === 'string'))
      invalid('query and documents must be strings.');
    const { topN } = options;
    const most = topN === undefined ? documents.length : count('topN', topN);
    const spec = { pooling: kRank, normalize: false, dimensions: 0, query };
    const { values, width } = await this.run([...documents], spec, options);
    const ranked = documents.map((_, index) => ({ index, score: values[index * width]! }));
    ranked.sort((a, b) => b.score - a.score);
    return ranked.slice(0, most);
  }

  /** Embeds as the spec says. */
  run(
    texts: EmbedTexts,
    spec: EmbedSpec,
    { onProgress }: Pick<EmbedOptions, 'onProgress'> = {},
  ): Promise<Embedded> {
    return this.#embed(texts, spec, (done) => onProgress?.({ done, total: texts.length }));
  }
}
