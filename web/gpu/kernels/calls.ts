// Parameters of the kernel calls: one interface for each method of Recorder (../kernels.ts). Places
// in arena and vectors are indices of floats and need no alignment. Type numbers are ggml's type
// ids, as in kernels.h; those of enumerations are from model/op.h.

/** Row t of a buffer of activations begins at float `at + t * ld` of the arena. */
export interface Place {
  at: number;
  ld: number;
}

/** Rows of a matrix. They may end at any byte; the buffer's size is a multiple of 4. */
export interface Weights {
  type: number;
  buffer: GPUBuffer;
  offset: number;
}

/** Rows of one matrix in one buffer: a part of it, or all. Results start at column `column`. */
export interface Part {
  weights: Weights;
  rows: number;
  column: number;
  bias?: number; // vector [rows]
  factor?: number; // vector of one value
}

export interface Matmul {
  parts: Part[]; // any number; up to three run in one dispatch (many tokens: if types are equal)
  cols: number;
  x: Place;
  out: Place;
  tokens: number;
  scale?: number;
  add?: boolean;
  /** RMS norm of x: fused if there are few tokens, otherwise written to `scratch` first. */
  norm?: { weight?: number; eps: number; scratch: Place };
  /**
   * Parts are gate and up, with equal rows and types, or a single part. out gets act(gate, up) or
   * act(x) at parts[0].column. With `activation.up`, the part is the gate, whose first row is at column 0.
   */
  activation?: Activated;
  experts?: Experts;
}

/**
 * Each part is `count` matrices, those of the experts from `first` on. `tokens` are pairs of a
 * token and an expert.
 */
export interface Experts {
  ids: number; // arena: the expert of each pair, or -1
  first: number;
  count: number;
  share: number; // number of consecutive pairs that read the same x
  weights?: number | undefined; // arena: a weight of x for each pair
}

/**
 * Selects the experts of each token, best first, and their weights: [tokens][used], in the arena.
 */
export interface Route {
  logits: Place;
  n: number;
  tokens: number;
  used: number;
  ids: number;
  weights: number; // the kernel overwrites 4 n values at `logits`
  gating: number;
  groups: number;
  groupsUsed: number;
  sharedBy: number;
  normalize: boolean;
  scale: number;
  bias?: number;
}

/** out = (add ? out : 0) + scale * weighted sum of the experts' outputs [tokens][used][n]. */
export interface Combine {
  ids: number;
  weights?: number | undefined; // undefined: all are 1
  used: number;
  in: number;
  out: Place;
  tokens: number;
  n: number;
  scale: number;
  add: boolean;
}

export interface Activated {
  kind: number;
  up?: Place | undefined; // default: the second part, or the values behind
  xielu?: { positive: number; negative: number; linear: number; below: number };
}

/** in and out: [tokens][heads][n]. */
export interface Norm {
  in: Place;
  out: Place;
  tokens: number;
  n: number;
  heads?: number;
  kind: number; // NormKind
  weight?: number;
  bias?: number; // vectors [n], or [heads][n]
  perHead?: boolean;
  eps: number;
  scale?: number; // of the L2 norm
  add?: number; // out += add * the norm; in and out are different
}

/**
 * KV cache of one layer in one buffer. Offsets and strides are bytes, multiples of 4. Position p is
 * at place p % capacity. f16: a row is dk or dv halves. q8_0 and q4_0: a row is blocks of 32 values in
 * 36 or 20 bytes: an f32 scale with the bits of a bfloat16, then codes. q4_0: the latest positions also
 * have a row of halves, keys of all heads before values, from word `recent_at` of the buffer on; p is
 * at p % recent_capacity. Keys of such a cache begin with the buffer.
 */
export interface Cache {
  buffer: GPUBuffer;
  type: 'f16' | 'q8_0' | 'q4_0';
  capacity: number;
  keys: number;
  keyHead: number;
  keyRow: number; // offset of the first; stride of heads; stride of places
  values: number;
  valueHead: number;
  valueRow: number; // values that are part of the keys: the same as for keys
  recent?: { recent_at: number; recent_capacity: number };
}

export interface Heads {
  heads: number;
  kvHeads: number;
  dk: number;
  dv: number;
  valuesInKeys?: boolean;
} // dk, dv are even

/** Rotates queries, and keys if `owned`. With `store`, also writes keys and values to the cache. */
export interface Rope extends Heads {
  qkv: Place;
  tokens: number;
  owned: boolean;
  rot: number;
  neox: boolean;
  column: number; // first rotated column of each head
  table: number; // arena: row t is rot / 2 cosines, then rot / 2 sines
  store?: { cache: Cache; first: number }; // position of the first token
  /**
   * RMS norm of each head before the rotation. Vectors [dk], or [heads][dk]. Without `store` of queries
   * only. `values`: of those of values too, without a vector.
   */
  norm?: {
    queries?: number | undefined;
    keys?: number | undefined;
    perHead: boolean;
    values?: boolean;
    eps: number;
  };
}

/**
 * Writes keys and values to the cache without rotation. If it is quantized, transforms queries, and
 * writes only if `owned`.
 */
export interface Store extends Heads {
  qkv: Place;
  tokens: number;
  cache: Cache;
  first: number;
  owned?: boolean;
}

export interface Attention extends Heads {
  qkv: Place;
  out: Place;
  tokens: number;
  first: number;
  cache: Cache;
  scale: number;
  softcap?: number;
  window?: number;
  chunked?: boolean;
  causal?: boolean;
  length?: number; // not causal: positions [0, length) are visible; whole: the batch's end
  begin?: number; // without a window: the first visible position
  kept?: { queries: Place; cache: Cache; length: number }; // further visible positions, apart
  whole?: boolean | undefined; // causal, but every token sees all tokens of the batch
  alibi?: number;
  sinks?: number; // vector [heads]
  scratch: number; // arena: attentionScratch() floats; with `kept`, for all tokens
}

/** `heads` groups of n values per row, at strides inStep and outStep (default n). */
export interface Groups {
  in: Place;
  out: Place;
  tokens: number;
  n: number;
  heads?: number;
  inStep?: number;
  outStep?: number;
}

export interface Activate extends Activated {
  at: Place;
  tokens: number;
  n: number;
}

/**
 * out = scale * columns [column, column + n) of the rows `ids` (+ out). Ids are floats in the
 * arena. The weights have `count` rows from `row` on; other ids leave `out` as it is.
 */
export interface Rows {
  weights: Weights;
  row?: number;
  count: number;
  cols: number;
  ids: number;
  step?: number; // in a queue: ids of its first step are at `ids`, one for each step
  tokens: number;
  column?: number;
  n: number;
  out: Place;
  scale?: number;
  add?: boolean;
}

/**
 * Adds a token to a queue of steps, behind step `step`: the likeliest of n logits, or one that is
 * drawn. If no earlier token has ended the queue, `tokens` [step + 1] and the number at `count` are
 * set, and `ended` becomes 1 for a token of `stops`. `ended` becomes 1 without a token if no logit is
 * a number, or if the choice is too close to call in f32. All are places of floats in the arena.
 */
export interface Choose {
  logits: number;
  n: number;
  step: number;
  tokens: number;
  count: number;
  ended: number;
  stops: number;
  n_stops: number;
  draws: number; // of each step, in [0, 1)
  best: number; // scratch: kChooseScratch floats
  sampling?: Sampling | undefined; // undefined: the likeliest
  /** For penalties: [n] how often each token occurs in their window, which the choice updates. */
  counts: number;
  /**
   * What leaves the window behind each step: a token, -1 for none, or -1 - i for number i of `tokens`.
   */
  leaving: number;
}

/**
 * Parameters of sample::Params, and the window of the penalties. Temperature 0: the likeliest; with
 * one, topK is 1 to kMaxTopK. Window 0: no penalties.
 */
export type Sampling = [
  temperature: number,
  topK: number,
  topP: number,
  minP: number,
  repetition: number,
  frequency: number,
  presence: number,
  window: number,
];
