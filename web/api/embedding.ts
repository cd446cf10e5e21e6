// Types of embeddings and reranking. embed.ts computes them.

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
