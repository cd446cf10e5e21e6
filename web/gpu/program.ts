// The program of a model as the engine describes it to the GPU's side (src/gpu/describe.cpp), and
// the words through which the two hand passes over (CardPass in src/gpu/gpu_executor.h).
// Enumerations have the numbers of src/model/op.h.

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
}

/** Their names, for messages. */
export const kOpNames = (
  'embed norm matmul rope attention activate add moe conv select softCap scale gate clamp ' +
  'pool unary gated decay shift lerp state scan rwkv7Keys rwkv7Mix rwkv7Bonus rows copy ' +
  'mulVec headMatmul temperature mixStreams correctStreams matchNorm sparsify store cross'
).split(' ');

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
  /** Of vecs; -1: none. */
  bias: number;
  outCol: number;
  factor: number;
}

/**
 * A row of the same fields for all kinds: src/model/op.h says which a kind has, the others do
 * nothing.
 */
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
  rope: number;
  moe: number;
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
  /** Of Gated; its gates are inStep apart. */
  gate: [buf: Buf, column: number];
  carried: [size: number, at: number];
}

/** Numbers of a mixture: of matrices the first expert's, which the others' follow; -1: none. */
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

/** model::Moe. */
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

/**
 * Keys and values of a layer in the engine's memory: [heads][keys of `capacity` places, then
 * values], f16; behind them copies of its recurrent state.
 */
export interface CacheShape {
  heads: number;
  dk: number;
  /** 0: values are in their keys. */
  dv: number;
  capacity: number;
  headBytes: number;
  f16: boolean;
  /** Floats of its recurrent state; 0: none. */
  state: number;
}

export interface Program {
  /** Address of the pass's words. */
  pass: number;
  logitsRows: number;
  nBatch: number;
  nCtx: number;
  /** The most copies of recurrent states, and tokens from one to the next. */
  checkpoints: number;
  checkpointEvery: number;
  nVocab: number;
  nEmbd: number;
  normEps: number;
  /** Texts are read whole. */
  bidirectional: boolean;
  /** A pass for logits ends before this operation. */
  pool: number;
  head: number;
  /** Of buffers, by Buf. */
  widths: number[];
  /** Tables of [nBatch][nRot] f32: cosines, then sines. */
  ropes: { nRot: number; neox: boolean }[];
  ops: Op[];
  mats: Mat[];
  /** Values of each. */
  vecs: number[];
  moes: Mixture[];
  caches: CacheShape[];
  /**
   * Of a program's first layers alone (layer-split.ts): the operation that the CPU goes on with.
   */
  cut?: number;
}

/** Indices of the pass's words. */
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
  Kept,
  Due,
  NDue,
  X,
  Logits,
  Ropes,
  Cut,
}

export const enum PassState {
  None,
  Wanted,
  Done,
}

/** Why passes were not for the GPU: bits of Word.CpuFallback. */
export const enum CpuFallback {
  Texts = 1,
  Adapters = 2,
}
