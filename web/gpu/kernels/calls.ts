// What kernels are asked for: one interface for each call of a Recorder (../kernels.ts). Places in
// arena and vectors are indices of floats, any of them: nothing is aligned. Numbers of types and
// enumerations are those of kernels.h (ggml's type ids) and of model/op.h.

/** Row t of a buffer of activations begins at float `at + t * ld` of the arena. */
export interface Place {
  at: number;
  ld: number;
}

/**
 * Rows of a matrix; its bytes may end anywhere, those of the buffer reach to the next multiple of
 * 4.
 */
export interface Weights {
  type: number;
  buffer: GPUBuffer;
  offset: number;
}

/**
 * Rows of one matrix that lie in one buffer: a slab of it, or all. Their results go to columns
 * `column`... of out.
 */
export interface Part {
  weights: Weights;
  rows: number;
  column: number;
  bias?: number; // vector [rows]
  factor?: number; // vector of one value
}

export interface Matmul {
  parts: Part[]; // any number; those of equal types run in one dispatch, three at a time
  cols: number;
  x: Place;
  out: Place;
  tokens: number;
  scale?: number;
  add?: boolean;
  /** x is taken as its RMS norm: fused where tokens are few, else normed into `scratch` first. */
  norm?: { weight?: number; eps: number; scratch: Place };
  /**
   * parts are gate and up, of equal rows and type, or one part: out gets act(gate, up) or act(x) at
   * parts[0].column.
   */
  activation?: Activated;
  experts?: Experts;
}

/**
 * Parts are each `count` matrices, those of experts `first` and following; tokens are pairs of a
 * token and an expert.
 */
export interface Experts {
  ids: number; // arena: the expert of each pair, or -1
  first: number;
  count: number;
  share: number; // pairs that read one x, one behind the other
}

/**
 * The experts of each token, the best first, and their weights: [tokens][used], both in the arena.
 */
export interface Route {
  logits: Place;
  n: number;
  tokens: number;
  used: number;
  ids: number;
  weights: number; // of logits 4 n values are written
  gating: number;
  groups: number;
  groupsUsed: number;
  sharedBy: number;
  normalize: boolean;
  scale: number;
  bias?: number;
}

/** out = (add ? out : 0) + scale * what [tokens][used][n] experts gave, weighed. */
export interface Combine {
  ids: number;
  weights: number;
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
  xielu?: { positive: number; negative: number; linear: number; below: number };
}

/** in: [tokens][heads][n] at in_step (n where not given), out likewise. */
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
}

/**
 * The cache of one layer in one buffer, in bytes, all multiples of 4; position p is at place
 * p % capacity. f16: a row is dk or dv halves. q8_0: a row is blocks of 32 values, 36 bytes: an f32
 * scale, then codes.
 */
export interface Cache {
  buffer: GPUBuffer;
  type: 'f16' | 'q8_0';
  capacity: number;
  keys: number;
  keyHead: number;
  keyRow: number; // the first; from a head to the next; from a place to the next
  values: number;
  valueHead: number;
  valueRow: number; // values that are in their keys: the same as of the keys
}

export interface Heads {
  heads: number;
  kvHeads: number;
  dk: number;
  dv: number;
  valuesInKeys?: boolean;
} // dk, dv are even

/**
 * Rotates queries, and keys where `owned`; with `store`, keys and values go to the cache in the
 * same dispatch.
 */
export interface Rope extends Heads {
  qkv: Place;
  tokens: number;
  owned: boolean;
  rot: number;
  neox: boolean;
  column: number; // of each head
  table: number; // arena: row t is rot / 2 cosines, then as many sines
  store?: { cache: Cache; first: number }; // position of the first token
}

/** Keys and values as they are, into the cache. */
export interface Store extends Heads {
  qkv: Place;
  tokens: number;
  cache: Cache;
  first: number;
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
  length?: number; // not causal: positions [0, length) are seen
  alibi?: number;
  sinks?: number; // vector [heads]
  scratch: number; // arena: attentionScratch() floats
}

/** `heads` groups of n values of each row, inStep and outStep apart (n where not given). */
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
 * out = scale * values [column, column + n) of rows (+ out); their numbers are in the arena, as
 * floats, below `count`.
 */
export interface Rows {
  weights: Weights;
  count: number;
  cols: number;
  ids: number;
  tokens: number;
  column?: number;
  n: number;
  out: Place;
  scale?: number;
  add?: boolean;
}

/** A causal convolution over time of each of n channels, in place; places of the arena. */
export interface Convolve {
  x: Place;
  tokens: number;
  n: number;
  unary: number;
  taps: number;
  weights: number;
  bias?: number; // vectors [taps][n], [n]
  before: number;
  after: number; // [taps - 1][n]: the last inputs, the oldest first
  /**
   * Copies of what is carried, behind the token that makes it `first` tokens and behind each
   * `every` more; 0: none.
   */
  copies: { at: number; step: number; first: number; every: number };
}
