// The program of a model, as the engine describes it to the GPU executor (src/gpu/describe.cpp),
// and the shared words through which passes are requested (GpuPass in src/gpu/gpu_executor.h). The
// numbers of the enumerations are those of src/model/op.h.

export const enum OpKind {
  Embed,
  Norm,
  Matmul,
  Rope,
  Attention,
  Activate,
  Add,
  Moe,
  Conv,
  Select,
  SoftCap,
  Scale,
  Gate,
  Clamp,
  Pool,
  Unary,
  Gated,
  Decay,
  Shift,
  Lerp,
  State,
  Scan,
  Rwkv7Keys,
  Rwkv7Mix,
  Rwkv7Bonus,
  Rows,
  Copy,
  MulVec,
  HeadMatmul,
  Temperature,
  MixStreams,
  CorrectStreams,
  MatchNorm,
  Sparsify,
  Store,
  Cross,
  Fill,
  Approximate,
}

/** The sum of attention and LAuReL, which the engine has as several operations: merged-ops.ts. */
export const kLaurelSum = 255 as OpKind;

/** Names of operations that the GPU cannot compute, for messages. */
export const kOpNames: Partial<Record<OpKind, string>> = {
  [OpKind.Embed]: 'embed',
  [OpKind.Pool]: 'pool',
  [OpKind.Fill]: 'fill',
  [OpKind.Approximate]: 'approximate',
};

export const enum Buf {
  X,
  H,
  Qkv,
  Att,
  GateUp,
  T,
  Router,
  Logits,
  First,
}

export const enum NormKind {
  Rms,
  Layer,
  L2,
}

export interface MatPart {
  mat: number;
  /** Index in vecs; -1: none. */
  bias: number;
  outCol: number;
  factor: number;
  /** Set by merged-ops.ts: matrices whose rows follow, of the same tensor. */
  others?: number[];
}

/** An operation. All kinds have the same fields; src/model/op.h documents which ones each uses. */
export interface Op {
  kind: OpKind;
  layer: number;
  in: Buf;
  out: Buf;
  inCol: number;
  outCol: number;
  inStep: number;
  outStep: number;
  n: number;
  heads: number;
  vec0: number;
  vec1: number;
  parts: MatPart[];
  add: boolean;
  scale: number;
  norm: NormKind;
  act: number;
  xielu: [positive: number, negative: number, linear: number, below: number];
  vecPerHead: boolean;
  /** Attention: that of its queries and keys, or -1. `ropeCol`: the first rotated value of each head. */
  rope: number;
  ropeCol?: number;
  moe: number;
  /** Of HeadMatmul: the first head's matrix, which those of the other heads follow. */
  mat?: number;
  /** Of Rows: index in tables. */
  table?: number;
  window: number;
  chunked: boolean;
  alibi: number;
  att: {
    heads: number;
    kvHeads: number;
    dk: number;
    dv: number;
    cache: number;
    valuesInKeys: boolean;
    causal: boolean;
    owned: boolean;
  };
  unary: number;
  eps: number;
  softcap: number;
  /** Attention with relative positions, whose biases [bucket][heads] are vec0: index in buckets; or -1. */
  relative?: number;
  /** Attention to the encoder's positions, or what only stores these. */
  encoded?: Encoded;
  /** For Gated, whose gates are inStep apart; steps of Lerp, rates of Rwkv7Keys. */
  gate: [buf: Buf, column: number];
  carried: [size: number, at: number];
  /** Index in recurrences. */
  rec?: number;
  /** Set by merged-ops.ts: operations that this one computes, too, and matrices that a dispatch of it reads whole. */
  merged?: Op[];
  whole?: number[];
  /** The multiplication by `whole`, for adapters that change it. */
  apart?: Op;
  /** Of Activate, if it is not behind the gate. */
  up?: [buf: Buf, column: number];
}

/** Operations of cross-attention, which are attention for the GPU. */
export const enum Encoded {
  Stored = 1,
  Read,
}

/**
 * Indices of a mixture's numbers. Matrices are given by the first expert's, which those of the
 * other experts follow; -1: none.
 */
export const enum Mix {
  Gate,
  Up,
  Down,
  Matrices,
  Experts,
  Used,
  Ff,
  Groups,
  GroupsUsed,
  SharedBy,
  Gating,
  Normalize,
  WeighInput,
  Act,
  ChoiceBias,
  GateBias,
  UpBias,
  DownBias,
  GateScale,
  UpScale,
  DownScale,
}

/** A mixture of experts: model::Moe. */
export interface Mixture {
  numbers: number[];
  weightsScale: number;
}

export interface Mat {
  name: string;
  type: number;
  rows: number;
  cols: number;
  file: number;
  offset: number;
  rowBytes: number;
  layer: number;
}

/** kernels::KvType; what the GPU lacks has other numbers. */
export const enum KvType {
  F16,
  Q8,
  Q4,
}

/** What a KV cache keeps that evicts: src/kv/kv_policy.h. */
export interface Eviction {
  /** Last positions that a query sees. */
  window: number;
  sinks: number;
  /** Of heavy hitters; 0: the policy is a window. */
  slots: number;
  /** Positions of the ring, which evicts `block` of them at a time, and queries that are observed. */
  ring: number;
  block: number;
  observers: number;
}

/**
 * KV cache of a layer in the engine's memory: for each head, the keys of `capacity` positions,
 * then the values, and what eviction keeps. Copies of the recurrent state follow.
 */
export interface CacheShape {
  heads: number;
  dk: number;
  /** 0: values are part of the keys. */
  dv: number;
  capacity: number;
  headBytes: number;
  type: KvType;
  /** Floats of the recurrent state; 0: none. */
  state: number;
  evicts: Eviction | null;
}

export interface Program {
  /** Address of the words of a pass. */
  pass: number;
  logitsRows: number;
  nBatch: number;
  /** Sequences that have a KV cache each. */
  parallel: number;
  nCtx: number;
  /** Maximum number of checkpoints of recurrent states, and tokens between them. */
  checkpoints: number;
  checkpointEvery: number;
  nVocab: number;
  nEmbd: number;
  normEps: number;
  /** Queries are scaled by 1 + scale ln(1 + ⌊(position + offset) / length⌋). */
  temperature: [scale: number, length: number, offset: number];
  bidirectional: boolean;
  /** A pass that computes logits ends before this operation. */
  pool: number;
  head: number;
  /** Encoder-decoder models: the decoder's first operation; 0: no encoder is before it. */
  decoder: number;
  /** The matrix whose rows are the token embeddings; -1: rows are not all that makes them. */
  embedding: number;
  /** Matrices of which each token reads a row: the token embedding, then those of Rows. */
  tables: number[];
  /** Widths of the buffers, by Buf. */
  widths: number[];
  /** RoPE tables [nBatch][nRot], f32: cosines, then sines. */
  ropes: { nRot: number; neox: boolean }[];
  ops: Op[];
  mats: Mat[];
  /** Number of values of each vector. */
  vecs: number[];
  /** Relative positions: the bucket of each distance from query to key, of which 0 is in the middle. */
  buckets: number[][];
  moes: Mixture[];
  /**
   * model::Recurrence as numbers: kind, heads, groups, interleaved, keys, values, decayPerKey, then
   * buffer and column of r, k, v, decay, beta, a, b and out; column -1: there is none.
   */
  recurrences: number[][];
  caches: CacheShape[];
  /** Rows that are interleaved in matrices of adapters. */
  rowGroup: number;
  /** Layers behind which further values of a picture's rows are added; from Word.NDeepstack. */
  deepstack: number;
  /** The engine has no memory for the KV cache. */
  kvOnGpu?: boolean;
  /** If only the first layers run on the GPU (layer-split.ts): the CPU's first operation. */
  cut?: number;
}

/** Indices of the words of a pass. */
export const enum Word {
  State,
  Lost,
  Serial,
  N,
  First,
  FirstRow,
  NRows,
  Held,
  Layer,
  Vectors,
  Rows,
  OnGpu,
  Least,
  CpuFallback,
  Before,
  Due,
  NDue,
  X,
  Logits,
  Ropes,
  Cut,
  MaxQueue,
  Steps,
  Token,
  Chosen,
  NChosen,
  Stops,
  NStops,
  Sampling,
  Recent,
  NRecent,
  Media,
  MediaWidth,
  NonCausal,
  NDeepstack,
  TableRows,
  Slot,
  MaxLanes,
  Lanes,
  NLanes,
  Hidden,
  Ends,
  NEnds,
  Adapters,
  Refused,
  Terms,
  FirstTerms,
  Source,
  Fetch,
}

export const kWords = Word.Fetch + 1;

export const enum PassState {
  None,
  Wanted,
  Done,
}

/** Why passes ran on the CPU: bits of Word.CpuFallback. */
export const enum CpuFallback {
  Texts = 1,
  Adapters = 2,
  Pictures = 4,
}

/** In which layers a picture's tokens see each other: values of Word.NonCausal. */
export const enum NonCausal {
  NoLayer,
  Windows,
  AllLayers,
}
