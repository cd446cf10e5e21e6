// The WGSL kernels (kernels/wgsl) and how a pass calls them. A Recorder writes dispatches into one
// compute pass; what differs between two calls of a kernel goes through one uniform buffer.
//
// Memory is three kinds of buffers, which must not be the same one, since a dispatch writes some:
//   arena    f32 activations, everything that operations read and write; rope tables too
//   vectors  f32 norm weights, biases, factors, sinks: read only
//   weights  rows as they are in the GGUF file, at any multiple of 4 bytes; caches of keys and values
// Places in arena and vectors are indices of floats, any of them: nothing is aligned.
// Numbers of types and enumerations are those of kernels.h (ggml's type ids) and of model/program.h.

/** Row t of a buffer of activations begins at float `at + t * ld` of the arena. */
export interface Place { at: number; ld: number }

/** Rows of a matrix; its bytes may end anywhere, those of the buffer reach to the next multiple of 4. */
export interface Weights { type: number; buffer: GPUBuffer; offset: number }

/** Rows of one matrix that lie in one buffer: a slab of it, or all. Their results go to columns `column`... of out. */
export interface Part {
  weights: Weights;
  rows: number;
  column: number;
  bias?: number;    // vector [rows]
  factor?: number;  // vector of one value
}

export interface Matmul {
  parts: Part[];  // any number; those of equal types run in one dispatch, three at a time
  cols: number;
  x: Place;
  out: Place;
  tokens: number;
  scale?: number;
  add?: boolean;
  /** x is taken as its RMS norm: fused where tokens are few, else normed into `scratch` first. */
  norm?: { weight?: number; eps: number; scratch: Place };
  /** parts are gate and up, of equal rows and type, or one part: out gets act(gate, up) or act(x) at parts[0].column. */
  activation?: Activated;
}

export interface Activated { kind: number; xielu?: { positive: number; negative: number; linear: number; below: number } }

/** in: [tokens][heads][n] at in_step (n where not given), out likewise. */
export interface Norm {
  in: Place; out: Place; tokens: number; n: number; heads?: number;
  kind: number;                       // NormKind
  weight?: number; bias?: number;     // vectors [n], or [heads][n]
  perHead?: boolean;
  eps: number;
  scale?: number;                     // of the L2 norm
}

/** The cache of one layer in one buffer, in bytes, all multiples of 4; position p is at place p % capacity.
 *  f16: a row is dk or dv halves. q8_0: a row is blocks of 32 values, 36 bytes: an f32 scale, then codes. */
export interface Cache {
  buffer: GPUBuffer; type: 'f16' | 'q8_0'; capacity: number;
  keys: number; keyHead: number; keyRow: number;          // the first; from a head to the next; from a place to the next
  values: number; valueHead: number; valueRow: number;    // values that are in their keys: the same as of the keys
}

export interface Heads { heads: number; kvHeads: number; dk: number; dv: number; valuesInKeys?: boolean }  // dk, dv are even

/** Rotates queries, and keys where `owned`; with `store`, keys and values go to the cache in the same dispatch. */
export interface Rope extends Heads {
  qkv: Place; tokens: number; owned: boolean;
  rot: number; neox: boolean; column: number;   // of each head
  table: number;                                // arena: row t is rot / 2 cosines, then as many sines
  store?: { cache: Cache; first: number };      // position of the first token
}

/** Keys and values as they are, into the cache. */
export interface Store extends Heads { qkv: Place; tokens: number; cache: Cache; first: number }

export interface Attention extends Heads {
  qkv: Place; out: Place; tokens: number; first: number; cache: Cache;
  scale: number; softcap?: number;
  window?: number; chunked?: boolean;
  causal?: boolean; length?: number;   // not causal: positions [0, length) are seen
  alibi?: number; sinks?: number;      // vector [heads]
  scratch: number;                     // arena: attentionScratch() floats
}

/** Values of one row at a time: `heads` groups of n, inStep and outStep apart (n where not given). */
export interface Map {
  in: Place; out: Place; tokens: number; n: number; heads?: number; inStep?: number; outStep?: number;
}

export interface Options { subgroups?: boolean; f16?: boolean; dots?: boolean }

/** Floats of Attention.scratch. */
export declare function attentionScratch(heads: number, dv: number): number;

export declare class Kernels {
  /** Compiles what every model needs; the rest when it is first recorded. */
  static create(device: GPUDevice, options?: Options): Promise<Kernels>;
  /** One compute pass in `encoder`. end() it, and submit the encoder before the next recording is ended. */
  begin(encoder: GPUCommandEncoder, memory: { arena: GPUBuffer; vectors: GPUBuffer }): Recorder;
  /** Whether kernels read this weight type. All of kernels.h's are. */
  static supports(type: number): boolean;
  /** Bytes of buffers that the kernels hold themselves. */
  readonly bytes: number;
  destroy(): void;
}

export declare class Recorder {
  readonly dispatches: number;
  matmul(op: Matmul): void;
  norm(op: Norm): void;
  rope(op: Rope): void;
  store(op: Store): void;
  attention(op: Attention): void;
  /** In place on [gate n][up n] at op.at: gate = act(gate, up). */
  activate(op: { at: Place; tokens: number; n: number } & Activated): void;
  /** out = scale * rows[ids] (+ out); ids are u32 in the arena at `ids`. Any part of a row. */
  rows(op: { weights: Weights; cols: number; ids: number; tokens: number; column?: number; n: number; out: Place; scale?: number; add?: boolean }): void;
  add(op: Map & { scale?: number }): void;                  // out += scale * in
  scale(op: Map & { scale: number }): void;                 // out = scale * in
  copy(op: Map): void;
  softcap(op: Map & { softcap: number }): void;
  clamp(op: Map & { softcap: number }): void;
  gate(op: Map): void;                                      // kGate: out *= sigmoid(in): `heads` values of in, n / heads of out each
  unary(op: Map & { unary: number }): void;
  gated(op: Map & { unary: number; gate: Place; stride: number }): void;   // out = in * unary(gate)
  mulVec(op: Map & { vec: number; one?: boolean }): void;   // out = in * vec
  addVec(op: Map & { vec: number }): void;                  // out = in + vec: a position's or a type's embedding
  softmax(op: Map): void;                                   // of each group of n
  matchNorm(op: Map): void;                                 // kMatchNorm
  end(): void;
}
