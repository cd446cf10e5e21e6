// The WGSL kernels (kernels/wgsl) and how a pass calls them. A Recorder writes dispatches into one
// compute pass; what differs between two calls of a kernel goes through one uniform buffer.
//
// Memory is three kinds of buffers, which must not be the same one, since a dispatch writes some:
//   arena    f32 activations, everything that operations read and write; rope tables too
//   vectors  f32 norm weights, biases, factors, sinks: read only
//   weights  rows as they are in the GGUF file, at any multiple of 4 bytes; caches of keys and values
// Places in arena and vectors are indices of floats, any of them: nothing is aligned.
// Numbers of types and enumerations are those of kernels.h (ggml's type ids) and of model/op.h.

import { activations, unaries } from './kernels/expressions.js';
import { Pipelines } from './kernels/pipelines.js';
import { linearSubgroups } from './kernels/probe.js';
import { pasted, type Values, type Variant } from './kernels/shaders.js';
import { rowBytes, typeOf, types } from './kernels/types.js';
import attentionText from '../../kernels/wgsl/attention.wgsl';
import combineText from '../../kernels/wgsl/combine.wgsl';
import cacheText from '../../kernels/wgsl/cache.wgsl';
import cacheF16 from '../../kernels/wgsl/cache_f16.wgsl';
import cacheQ8 from '../../kernels/wgsl/cache_q8_0.wgsl';
import keepF16 from '../../kernels/wgsl/keep_f16.wgsl';
import keepQ8 from '../../kernels/wgsl/keep_q8_0.wgsl';
import mapText from '../../kernels/wgsl/map.wgsl';
import matchNormText from '../../kernels/wgsl/match_norm.wgsl';
import mergeText from '../../kernels/wgsl/merge.wgsl';
import normText from '../../kernels/wgsl/norm.wgsl';
import rotateText from '../../kernels/wgsl/rotate.wgsl';
import routeText from '../../kernels/wgsl/route.wgsl';
import rowsText from '../../kernels/wgsl/rows.wgsl';
import softmaxText from '../../kernels/wgsl/softmax.wgsl';
import storeText from '../../kernels/wgsl/store.wgsl';
import tiledText from '../../kernels/wgsl/tiled.wgsl';
import vectorText from '../../kernels/wgsl/vector.wgsl';
import weightsText from '../../kernels/wgsl/weights.wgsl';

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
  experts?: Experts;
}

/** Parts are each `count` matrices, those of experts `first` and following; tokens are pairs of a token and an expert. */
export interface Experts {
  ids: number;  // arena: the expert of each pair, or -1
  first: number; count: number;
  share: number;  // pairs that read one x, one behind the other
}

/** The experts of each token, the best first, and their weights: [tokens][used], both in the arena. */
export interface Route {
  logits: Place; n: number; tokens: number; used: number; ids: number; weights: number;  // of logits 4 n values are written
  gating: number; groups: number; groupsUsed: number; sharedBy: number; normalize: boolean; scale: number; bias?: number;
}

/** out = (add ? out : 0) + scale * what [tokens][used][n] experts gave, weighed. */
export interface Combine { ids: number; weights: number; used: number; in: number; out: Place; tokens: number; n: number; scale: number; add: boolean }

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

/** `heads` groups of n values of each row, inStep and outStep apart (n where not given). */
export interface Groups {
  in: Place; out: Place; tokens: number; n: number; heads?: number; inStep?: number; outStep?: number;
}

export interface Activate extends Activated { at: Place; tokens: number; n: number }

/** out = scale * values [column, column + n) of rows (+ out); their numbers are in the arena, as floats, below `count`. */
export interface Rows {
  weights: Weights; count: number; cols: number; ids: number; tokens: number; column?: number; n: number;
  out: Place; scale?: number; add?: boolean;
}

export interface Options { subgroups?: boolean }
export interface Memory { arena: GPUBuffer; vectors: GPUBuffer }

export const kFewTokens = 8;         // the most that products take as vectors
const kRows = 4;              // of a workgroup there
const kTileRows = 64, kTileTokens = 32;
const kGroupsOfOneDimension = 65535;
const kSplitTokens = 4;       // the most for which attention is split over positions
const kSplit = 256, kMostParts = 32;

/** Floats of Attention.scratch. */
export const attentionScratch = (heads: number, dv: number): number => kMostParts * kSplitTokens * heads * (dv + 2);

export class Kernels {
  readonly #device: GPUDevice;
  readonly #pipelines: Pipelines;

  private constructor(device: GPUDevice, pipelines: Pipelines) {
    this.#device = device;
    this.#pipelines = pipelines;
  }

  /** Subgroups are used where the device has the feature; no other is needed. */
  static async create(device: GPUDevice, options: Options = {}): Promise<Kernels> {
    const wanted = (options.subgroups ?? true) && device.features.has('subgroups');
    return new Kernels(device, new Pipelines(device, { subgroups: wanted && await linearSubgroups(device) }));
  }

  /** Whether kernels read this weight type. All of kernels.h's are. */
  static supports(type: number): boolean { return types.has(type); }

  /** Bytes of buffers that the kernels hold themselves. */
  get bytes(): number { return this.#pipelines.bytes; }
  get pipelines(): number { return this.#pipelines.count; }

  /** One compute pass in `encoder`. end() it, and submit the encoder before the next recording is ended. */
  begin(encoder: GPUCommandEncoder, memory: Memory): Recorder {
    return new Recorder(this.#pipelines, this.#device.limits, encoder.beginComputePass(), memory);
  }

  /** Compiles, all at once, what `work` will need; it records into nothing. */
  async prepare(memory: Memory, work: (recorder: Recorder) => void): Promise<void> {
    const recorder = new Recorder(this.#pipelines, this.#device.limits, null, memory);
    work(recorder);
    await this.#pipelines.compile(recorder.variants);
  }

  destroy(): void { this.#pipelines.destroy(); }
}

/** Rows of a part that one binding reaches. */
interface Piece extends Part { range: { buffer: GPUBuffer; offset: number; size: number }; base: number }

const none = (index: number | undefined) => index ?? -1;

export class Recorder {
  /** Of a dry run: what it would have dispatched. */
  readonly variants: Variant[] = [];
  readonly #pipelines: Pipelines;
  readonly #limits: GPUSupportedLimits;
  readonly #pass: GPUComputePassEncoder | null;
  readonly #memory: Memory;
  #dispatches = 0;

  /** @internal */
  constructor(pipelines: Pipelines, limits: GPUSupportedLimits, pass: GPUComputePassEncoder | null, memory: Memory) {
    this.#pipelines = pipelines;
    this.#limits = limits;
    this.#pass = pass;
    this.#memory = memory;
  }

  get dispatches(): number { return this.#dispatches; }

  end(): void {
    this.#pass?.end();
    if (this.#pass) this.#pipelines.write(this.#dispatches);
  }

  #run(variant: Variant, values: Values, size: readonly number[], buffers: GPUBufferBinding[] = []): void {
    if (size.includes(0)) return;
    if (!this.#pass) this.variants.push(variant);
    else {
      const all = [{ buffer: this.#memory.arena }, { buffer: this.#memory.vectors }, ...buffers];
      this.#pipelines.dispatch(this.#pass, this.#dispatches, this.#pipelines.get(variant), values, all, size);
    }
    ++this.#dispatches;
  }

  // --- products ----------------------------------------------------------------------------------

  /** Cut where one binding ends. */
  #pieces(part: Part, bytes: number, matrices = 1): Piece[] {
    const align = this.#limits.minStorageBufferOffsetAlignment;
    const most = Math.floor((this.#limits.maxStorageBufferBindingSize - align - 4) / bytes);
    const pieces: Piece[] = [];
    if (matrices > 1 && matrices * part.rows > most) throw new Error('experts larger than a binding');
    for (let row = 0; row < part.rows; row += most) {
      const rows = Math.min(most, part.rows - row);
      const begin = part.weights.offset + row * bytes;
      const offset = Math.floor(begin / align) * align;
      const size = Math.ceil((begin + matrices * rows * bytes - offset) / 4) * 4;
      pieces.push({
        ...part, rows, column: part.column + row, bias: part.bias === undefined ? undefined : part.bias + row,
        range: { buffer: part.weights.buffer, offset, size }, base: begin - offset,
      });
    }
    return pieces;
  }

  /** What all variants that read rows of a type have in common. */
  #decoder(type: number, cols: number, bindings: number, text: string, aligned: boolean) {
    return {
      texts: [pasted(weightsText, bindings), pasted(typeOf(type).decode, bindings), text],
      constants: { ALIGNED: aligned && rowBytes(type, cols) % 4 === 0 && typeOf(type).bytes % (typeOf(type).values > 1 ? 4 : 1) === 0, TAIL: cols % 8 !== 0 },
      bound: bindings as 1 | 2 | 3,
    };
  }

  matmul(op: Matmul): void {
    const { activation, parts } = op;
    const gated = activation !== undefined && parts.length === 2;
    const few = op.tokens <= kFewTokens || op.experts !== undefined;
    const together = !gated || parts[0]!.weights.type === parts[1]!.weights.type;
    if (activation && (!few || !together)) {
      this.matmul({ ...op, activation: undefined });
      const at = { at: op.out.at + parts[0]!.column, ld: op.out.ld };
      return this.activate({ ...activation, at, tokens: op.tokens, n: parts[0]!.rows });
    }
    if (op.norm && !few) {
      const { weight, eps, scratch } = op.norm;
      this.norm({ in: op.x, out: scratch, tokens: op.tokens, n: op.cols, kind: 0, weight, eps });
      return this.matmul({ ...op, x: scratch, norm: undefined });
    }
    const byType = new Map<number, Piece[]>();
    for (const part of parts) {
      const { type } = part.weights;
      byType.set(type, [...byType.get(type) ?? [], ...this.#pieces(part, rowBytes(type, op.cols), op.experts?.count)]);
    }
    for (const [type, pieces] of byType) {
      const half = pieces.length / 2; // of gate; as many of up
      const lists = gated ? pieces.slice(0, half).map((piece, i) => [piece, pieces[half + i]!])
        : Array.from({ length: Math.ceil(pieces.length / 3) }, (_, i) => pieces.slice(3 * i, 3 * i + 3));
      for (const list of lists) this.#product(op, type, list, few, gated);
    }
  }

  #product(op: Matmul, type: number, pieces: Piece[], few: boolean, gated: boolean): void {
    const rows = few ? kRows : kTileRows;
    const tokens = op.experts ? 1 : few ? (op.tokens > 2 ? 4 : op.tokens) : kTileTokens;
    const first: number[] = [];
    let groups = 0;
    for (const piece of gated ? pieces.slice(0, 1) : pieces) {
      first.push(groups);
      groups += Math.ceil(piece.rows / rows);
    }
    const call = (i: number, f: (i: number) => string): string => i + 1 === pieces.length ? f(i) : `if (part == ${i}u) { ${f(i)} } else { ${call(i + 1, f)} }`;
    const aligned = pieces.every((piece) => piece.base % 4 === 0);
    let text: string, variant: Variant;
    const xielu = op.activation?.xielu;
    if (few) {
      const results = rows * tokens * (gated ? 2 : 1);
      text = pasted(vectorText, pieces.length).replace('//@ accumulate', gated
        ? 'accumulate0(0u, row, token, at.lane, &sums); accumulate1(RESULTS, row, token, at.lane, &sums);'
        : call(0, (i) => `accumulate${i}(0u, row, token, at.lane, &sums);`));
      const decoder = this.#decoder(type, op.cols, pieces.length, text, aligned);
      variant = {
        ...decoder, name: `vector ${type}`, sums: true,
        constants: {
          ...decoder.constants, WG: 64, ROWS: rows, TOKENS: tokens, PARTS: pieces.length, GATED: gated,
          NORM: op.norm !== undefined, SUMS: results + (op.norm ? tokens : 0), EXPERTS: op.experts !== undefined,
        },
        words: { ACTIVATION: op.activation ? activations(op.activation.kind, ['gate', 'up', 'p.positive', 'p.negative', 'p.linear', 'p.below']) : 'gate' },
      };
    } else {
      text = pasted(tiledText, pieces.length).replace('//@ load', call(0, (i) => `load_weights${i}(row, unit, lane);`));
      const decoder = this.#decoder(type, op.cols, pieces.length, text, aligned);
      variant = { ...decoder, name: `tiled ${type}`, constants: { ...decoder.constants, PARTS: pieces.length } };
    }
    this.#run(variant, {
      base: pieces.map((piece) => piece.base), rows: pieces.map((piece) => piece.rows), first,
      column: pieces.map((piece) => piece.column), bias: pieces.map((piece) => none(piece.bias)),
      factor: pieces.map((piece) => none(piece.factor)),
      x: op.x.at, x_ld: op.x.ld, y: op.out.at, y_ld: op.out.ld, cols: op.cols, units: Math.ceil(op.cols / 8),
      row_bytes: rowBytes(type, op.cols), tokens: op.tokens, groups, gain: none(op.norm?.weight), eps: op.norm?.eps ?? 0,
      scale: op.scale ?? 1, add: Number(op.add ?? false),
      positive: xielu?.positive ?? 0, negative: xielu?.negative ?? 0, linear: xielu?.linear ?? 0, below: xielu?.below ?? 0,
      stride: pieces.map((piece) => piece.rows * rowBytes(type, op.cols)), ids: op.experts?.ids ?? 0,
      expert: op.experts?.first ?? 0, experts: op.experts?.count ?? 1, share: op.experts?.share ?? 1,
    }, [...this.#spread(groups), Math.ceil(op.tokens / tokens)], pieces.map((piece) => piece.range));
  }

  /** So many workgroups in two dimensions, the last row of which may not be full. */
  #spread(groups: number): [number, number] {
    const high = Math.ceil(groups / kGroupsOfOneDimension);
    return [Math.ceil(groups / Math.max(high, 1)), high];
  }

  route(op: Route): void {
    this.#run({ name: 'route', texts: [routeText] }, {
      logits: op.logits.at, ld: op.logits.ld, n: op.n, used: op.used, ids: op.ids, weights: op.weights, gating: op.gating,
      groups: op.groups, groups_used: op.groupsUsed, shared_by: op.sharedBy, normalize: Number(op.normalize), scale: op.scale, bias: none(op.bias),
    }, [op.tokens]);
  }

  combine(op: Combine): void {
    this.#run({ name: 'combine', texts: [combineText] }, {
      ids: op.ids, weights: op.weights, used: op.used, n: op.n, in: op.in, out: op.out.at, out_ld: op.out.ld,
      add: Number(op.add), scale: op.scale,
    }, [Math.ceil(op.n / 64), op.tokens]);
  }

  rows(op: Rows): void {
    const bytes = rowBytes(op.weights.type, op.cols);
    const [piece] = this.#pieces({ weights: op.weights, rows: op.count, column: 0 }, bytes);
    if (piece!.rows < op.count) throw new Error('a table larger than a binding');
    const units = Math.ceil(op.cols / 8);
    this.#run({ ...this.#decoder(op.weights.type, op.cols, 1, rowsText, piece!.base % 4 === 0), name: `rows ${op.weights.type}` }, {
      base: [piece!.base], ids: op.ids, y: op.out.at, y_ld: op.out.ld, cols: op.cols, units, row_bytes: bytes,
      first: op.column ?? 0, n: op.n, scale: op.scale ?? 1, add: Number(op.add ?? false),
    }, [Math.ceil(units / 64), op.tokens], [piece!.range]);
  }

  // --- attention ---------------------------------------------------------------------------------

  rope(op: Rope): void {
    const inPlace = op.heads + (op.owned && !op.store ? op.kvHeads : 0);
    this.#rotate(op, op.rot, inPlace * op.rot / 2, op.owned ? op.store : undefined, op);
  }

  store(op: Store): void {
    this.#rotate(op, 0, 0, op, { neox: false, column: 0, table: 0 });
  }

  #rotate(op: Heads & { qkv: Place; tokens: number }, rot: number, pairs: number, store: { cache: Cache; first: number } | undefined, by: { neox: boolean; column: number; table: number }): void {
    const cache = store?.cache;
    const kept = cache?.type === 'q8_0' ? 32 : 2;
    const keys = op.heads * op.dk, values = keys + op.kvHeads * op.dk;
    const keyRuns = store ? Math.ceil(op.dk / kept) : 0, valueRuns = store && !op.valuesInKeys ? Math.ceil(op.dv / kept) : 0;
    const { range, places } = this.#reach(cache);
    const storing = cacheText.replace('HOLD', 'read_write') + (kept === 2 ? keepF16 : keepQ8);
    this.#run({
      name: cache ? `rotate and store ${cache.type}` : 'rotate',
      texts: cache ? [storing, rotateText.replace('//@ store', storeText)] : [rotateText],
      bound: cache ? 'written' : 0,
    }, {
      x: op.qkv.at, x_ld: op.qkv.ld, pairs, rot, dk: op.dk, dv: op.dv, column: by.column, table: by.table, neox: Number(by.neox),
      kv_heads: op.kvHeads, keys, values, first: store?.first ?? 0, ...places, key_runs: keyRuns, value_runs: valueRuns,
    }, [Math.ceil((pairs + op.kvHeads * (keyRuns + valueRuns)) / 64), op.tokens], range);
  }

  /** A binding that holds the cache, and where in it, in words, things are. */
  #reach(cache: Cache | undefined) {
    if (!cache) return { range: [], places: { capacity: 1, key_at: 0, key_head: 0, key_row: 0, value_at: 0, value_head: 0, value_row: 0 } };
    const align = this.#limits.minStorageBufferOffsetAlignment;
    const offset = Math.floor(Math.min(cache.keys, cache.values) / align) * align;
    const size = Math.min(cache.buffer.size - offset, Math.floor(this.#limits.maxStorageBufferBindingSize / 4) * 4);
    return {
      range: [{ buffer: cache.buffer, offset, size }],
      places: {
        capacity: cache.capacity, key_at: (cache.keys - offset) / 4, key_head: cache.keyHead / 4, key_row: cache.keyRow / 4,
        value_at: (cache.values - offset) / 4, value_head: cache.valueHead / 4, value_row: cache.valueRow / 4,
      },
    };
  }

  attention(op: Attention): void {
    const group = op.heads / op.kvHeads, rows = op.tokens * group;
    const causal = op.causal ?? true, window = op.window ?? 0;
    const end = causal ? op.first + op.tokens : op.length!;
    const back = op.chunked ? op.first % window : causal ? window - 1 : Math.floor(window / 2);
    const begin = window === 0 ? 0 : Math.max(0, op.first - back);
    let split = kSplit;
    while (Math.ceil(end / split) > kMostParts) split *= 2;
    const part = Math.floor(begin / split), parts = Math.ceil(end / split) - part;
    const apart = op.tokens <= kSplitTokens && parts > 1;
    const quads = Math.ceil(op.dv / 4);
    const times = Math.ceil(quads / 64);
    const power = (n: number) => 2 ** Math.ceil(Math.log2(n));
    const tileRows = Math.max(2, Math.min(power(rows), quads <= 32 ? 16 : Math.floor(8 / power(times))));
    const side = Math.max(power(Math.ceil(quads / times)), 64 / tileRows);
    const even = 2 ** Math.floor(Math.log2(op.heads));
    const { range, places } = this.#reach(op.cache);
    this.#run({
      name: `attention ${op.cache.type}`,
      texts: [cacheText.replace('HOLD', 'read'), op.cache.type === 'f16' ? cacheF16 : cacheQ8, attentionText],
      constants: { ROWS: tileRows, QUADS: side, TIMES: Math.ceil(quads / side), SPLIT: apart },
      bound: 1,
    }, {
      q: op.qkv.at, q_ld: op.qkv.ld, out: op.out.at, out_ld: op.out.ld, dk: op.dk, dv: op.dv, group, tokens: op.tokens,
      first: op.first, window, chunked: Number(op.chunked ?? false), causal: Number(causal), length: end, heads: op.heads,
      split: apart ? split : 0x7fffffff, ...places, sinks: none(op.sinks), partials: op.scratch, scale: op.scale,
      softcap: op.softcap ?? 0, slope: (op.alibi ?? 0) / even, slope_heads: even, part: apart ? part : 0,
    }, [Math.ceil(rows / tileRows), op.kvHeads, apart ? parts : 1], range);
    if (!apart) return;
    this.#run({ name: 'merge', texts: [mergeText] }, {
      out: op.out.at, out_ld: op.out.ld, dv: op.dv, heads: op.heads, tokens: op.tokens, partials: op.scratch, parts, sinks: none(op.sinks),
    }, [op.heads, op.tokens]);
  }

  // --- rows of activations -----------------------------------------------------------------------

  /** A shader with a workgroup for each group of n values. */
  #byGroup(name: string, text: string, n: number, sums: number, constants: Record<string, number> = {}): Variant {
    return { name, texts: [text], sums: true, constants: { ...constants, WG: n > 512 ? 256 : 64, SUMS: sums } };
  }

  norm(op: Norm): void {
    const heads = op.heads ?? 1;
    this.#run(this.#byGroup('norm', normText, op.n, 1, { LAYER: 1, L2: 2, KIND: op.kind }), {
      in: op.in.at, in_ld: op.in.ld, out: op.out.at, out_ld: op.out.ld, n: op.n, heads, weight: none(op.weight),
      bias: none(op.bias), per_head: Number(op.perHead ?? false), eps: op.eps, scale: op.scale ?? 1,
    }, [heads, op.tokens]);
  }

  softmax(op: Groups): void {
    this.#run(this.#byGroup('softmax', softmaxText, op.n, 1), {
      in: op.in.at, in_ld: op.in.ld, out: op.out.at, out_ld: op.out.ld, n: op.n, in_step: op.inStep ?? op.n, out_step: op.outStep ?? op.n,
    }, [op.heads ?? 1, op.tokens]);
  }

  matchNorm(op: Groups): void {
    this.#run(this.#byGroup('match norm', matchNormText, op.n, 2), {
      in: op.in.at, in_ld: op.in.ld, out: op.out.at, out_ld: op.out.ld, n: op.n,
    }, [op.heads ?? 1, op.tokens]);
  }

  /** `expression` of x (in), y (out), z (other), v (a vector's), p.a to p.d. */
  #map(op: Groups, expression: string, more: Values = {}): void {
    const heads = op.heads ?? 1;
    this.#run({ name: 'map', texts: [mapText], words: { EXPRESSION: expression } }, {
      in: op.in.at, in_ld: op.in.ld, in_step: op.inStep ?? op.n, in_every: 1, out: op.out.at, out_ld: op.out.ld,
      out_step: op.outStep ?? op.n, n: op.n, other: op.out.at, other_ld: 0, other_step: 0, vector: 0, vector_step: 0, heads,
      a: 0, b: 0, c: 0, d: 0, ...more,
    }, [Math.ceil(op.n * heads / 64), op.tokens]);
  }

  /** In place on [gate n][up n] at op.at: gate = act(gate, up). */
  activate(op: Activate): void {
    const { positive: a = 0, negative: b = 0, linear: c = 0, below: d = 0 } = op.xielu ?? {};
    this.#map({ in: { at: op.at.at + op.n, ld: op.at.ld }, out: op.at, tokens: op.tokens, n: op.n },
      activations(op.kind, ['y', 'x', 'p.a', 'p.b', 'p.c', 'p.d']), { a, b, c, d });
  }

  /** out += scale * in */
  add(op: Groups & { scale?: number }): void { this.#map(op, 'y + p.a * x', { a: op.scale ?? 1 }); }
  /** out = scale * in; 0 whatever was there where scale is 0. */
  scale(op: Groups & { scale: number }): void { this.#map(op, op.scale === 0 ? '0.0' : 'p.a * x', { a: op.scale }); }
  copy(op: Groups): void { this.#map(op, 'x'); }
  softcap(op: Groups & { softcap: number }): void { this.#map(op, 'p.a * bounded_tanh(x / p.a)', { a: op.softcap }); }
  clamp(op: Groups & { softcap: number }): void { this.#map(op, 'clamp(x, -p.a, p.a)', { a: op.softcap }); }
  unary(op: Groups & { unary: number }): void { this.#map(op, unaries(op.unary, 'x')); }
  /** kGate: out *= sigmoid(in): `heads` values of in, each for n / heads values of out. */
  gate(op: Groups): void { this.#map({ ...op, heads: 1 }, 'y * sigmoid(x)', { in_every: op.n / (op.heads ?? 1) }); }
  /** out = in * unary(gate); the gates of heads are `stride` apart. */
  gated(op: Groups & { unary: number; gate: Place; stride: number }): void {
    this.#map(op, `x * ${unaries(op.unary, 'z')}`, { other: op.gate.at, other_ld: op.gate.ld, other_step: op.stride });
  }
  /** out = in * vec, of n values or one. */
  mulVec(op: Groups & { vec: number; one?: boolean }): void { this.#map(op, 'x * v', { vector: op.vec, vector_step: op.one ? 0 : 1 }); }
  /** out = in + vec: a type's or a position's embedding. */
  addVec(op: Groups & { vec: number }): void { this.#map(op, 'x + v', { vector: op.vec, vector_step: 1 }); }
}
