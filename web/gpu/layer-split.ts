// Splits a model's layers between GPU and CPU. The first layers run on the GPU, with their KV cache
// and recurrent states, and all of their weights stay there. The residual stream is read back in
// place of logits, and the CPU computes the other layers and the output head
// (src/gpu/gpu_executor.h). So a model that does not fit on the GPU needs no upload of weights per
// token, unlike streaming. This module only plans; it does not use the device.

import { SluiceError } from '../protocol/errors.js';
import { observedBytes } from './eviction-plan.js';
import { cacheBytes } from './kv-cache.js';
import { kFewTokens } from './kernels.js';
import { align, planWeights } from './plan.js';
import { Buf, Mix, OpKind, type Op, type Program } from './program.js';
import { layOut, tableBytes, tablesOf, type Layout } from './record.js';
import { kQueueFloats } from './queue-plan.js';
import { missing } from './fusion.js';

/** GPU memory of a program without its weights, in bytes. */
export interface Room {
  layout: Layout;
  cache: ReturnType<typeof cacheBytes>;
  /** Int8 activations. */
  acts: number;
  /** Results of the largest pass, which are read back. */
  readback: number;
  /** Everything together. */
  fixed: number;
}

/** `dots`: int8 activations are possible. */
export function roomOf(program: Program, dots: boolean): Room {
  const layout = layOut(program, program.nBatch);
  const acts = dots ? layout.actBytes : 0;
  const { nBatch, logitsRows, widths, cut } = program;
  const cache = cacheBytes(program, nBatch);
  // Results of the largest pass.
  const rows = cut
    ? nBatch * widths[Buf.X]!
    : Math.max(logitsRows * widths[Buf.Logits]!, nBatch * widths[Buf.H]!, kQueueFloats);
  const observed = observedBytes(program, layout.eviction);
  const readback = align(4 * rows + cache.changed + layout.states.due + observed, 16);
  const tables = tablesOf(program).reduce((sum, table) => sum + tableBytes(program, table), 0);
  // Kernels take 256 bytes of parameters per dispatch, in buffers of 128 kB. An attention takes two for
  // each input of a batch.
  let dispatches = 0;
  for (const { kind, heads } of program.ops)
    dispatches += kind === OpKind.HeadMatmul ? heads + kFewTokens : 1;
  dispatches = Math.max(2 * program.parallel * dispatches, 3 * nBatch);
  const numbers = align(dispatches * 256, 1 << 17);
  return {
    layout,
    cache,
    acts,
    readback,
    fixed:
      4 * layout.floats +
      align(4 * layout.vecFloats, 16) +
      acts +
      readback +
      layout.states.beside +
      cache.total +
      cache.stateChunk +
      tables +
      numbers,
  };
}

export const layersOf = ({ ops }: Program): number =>
  Math.max(...ops.map(({ layer }) => layer)) + 1;

/** The program of the first `layers` layers; the whole program if there are no more. */
function firstLayers(program: Program, layers: number): Program {
  const cut = program.ops.findIndex(({ layer }) => layer >= layers);
  if (cut < 0) return program;
  const caches = program.caches.map((cache, layer) =>
    layer < layers ? cache : { ...cache, heads: 0, state: 0 },
  );
  return { ...program, ops: program.ops.slice(0, cut), pool: cut, cut, logitsRows: 0, caches };
}

/** Operations that read and modify their output. */
const kOnto = new Set([
  OpKind.Add,
  OpKind.Gate,
  OpKind.MatchNorm,
  OpKind.MixStreams,
  OpKind.CorrectStreams,
  OpKind.Sparsify,
]);

/** Why the CPU needs more than the residual stream to continue; null: it does not. */
function inseparable({ ops, pool, decoder }: Program, cut: number | undefined): string | null {
  if (!cut) return null;
  if (ops.slice(0, cut).some(({ kind }) => kind === OpKind.Select))
    return 'layers that process only some rows';
  const made = new Set([Buf.X]);
  for (const { kind, in: from, out, add, gate, up } of ops.slice(cut, pool)) {
    if (kind === OpKind.Rows || up) return 'per-layer embeddings';
    const reads = [
      from,
      ...(kind === OpKind.Gated ? [gate[0]] : []),
      ...(add || kOnto.has(kind) ? [out] : []),
    ];
    if (decoder || !reads.every((buf) => made.has(buf)))
      return 'layers that exchange more than the residual stream';
    made.add(out);
  }
  return null;
}

/**
 * The part of the program that the GPU computes in `bytes` bytes. If `layers` is undefined: the
 * whole program, with weights that may stream. Otherwise the first `layers` layers, whose weights
 * all stay; Infinity: as many as fit. Errors: NOT_SUPPORTED, BUDGET_TOO_SMALL.
 */
export function partFor(
  program: Program,
  layers: number | undefined,
  bytes: number,
  dots: boolean,
  unitBytes: number,
): Program {
  const refused = (part: Program): string | null => missing(part) ?? inseparable(program, part.cut);
  const lacks = (part: Program): number => {
    const { fixed } = roomOf(part, dots);
    const { bytes: weights } = planWeights(part, Infinity, { unitBytes });
    return Math.max(0, fixed + weights - bytes);
  };
  const all = layersOf(program);
  let count = Math.min(layers ?? all, all);
  let part = firstLayers(program, count);
  if (layers === Infinity)
    while (count > 1 && (refused(part) || lacks(part))) part = firstLayers(program, --count);
  const what = refused(part);
  if (what)
    throw new SluiceError(
      'NOT_SUPPORTED',
      'This model cannot ' +
        `${part.cut ? 'be split between GPU and CPU' : 'run on the GPU'} ` +
        `(unsupported: ${what}); load it with device 'wasm'.`,
    );
  const more = layers === undefined ? 0 : lacks(part);
  if (more)
    throw new SluiceError(
      'BUDGET_TOO_SMALL',
      `A gpuBudget of ${bytes} bytes is too small for ${count} of the model's ${all} layers: ` +
        `they need ${bytes + more} bytes.`,
    );
  return part;
}

/** Bytes of weights that one token reads. */
export function tokenBytes({ ops, pool, mats, moes }: Program): number {
  const bytesOf = ({ kind, parts, moe, mat, heads }: Op): number => {
    const size = (mat: number): number => (mat < 0 ? 0 : mats[mat]!.rows * mats[mat]!.rowBytes);
    if (kind === OpKind.HeadMatmul) return heads * size(mat!);
    if (kind !== OpKind.Moe) return parts.reduce((sum, { mat }) => sum + size(mat), 0);
    const { numbers } = moes[moe]!;
    return (
      numbers[Mix.Used]! *
      numbers.slice(Mix.Gate, Mix.Down + 1).reduce((sum, mat) => sum + size(mat), 0)
    );
  };
  return ops.slice(0, pool).reduce((sum, op) => sum + bytesOf(op), 0);
}
