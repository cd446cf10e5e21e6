// Plans the weights on the GPU within a byte budget. Weights are divided into units, each read by
// one kernel call. As many units as fit are pinned, spread evenly over a forward pass so that the
// others can be read meanwhile. The others stream through staging buffers into one slot. This
// module only plans; it does not use the device.

import { SluiceError } from '../protocol/errors.js';
import { Mix, OpKind, type Op, type Program } from './program.js';

/** Rows of a matrix, at byte `at` of its unit. */
export interface Chunk {
  part: number;
  mat: number;
  row0: number;
  rows: number;
  at: number;
  bytes: number;
}

export interface Unit {
  /** Index of the operation that it belongs to. */
  op: number;
  pieces: Chunk[];
  /**
   * Experts of a mixture: their gate matrices, then up, then down, each kind contiguous. Or heads with a
   * matrix each.
   */
  experts?: { first: number; count: number };
  bytes: number;
  pinned: boolean;
}

export interface GpuPlan {
  units: Unit[];
  /** First unit of each operation; the last entry is the number of units. */
  firstUnit: number[];
  /**
   * Units with the rows of the token embedding, if all weights and these fit and steps are to be
   * queued; they may be those of a tied output head. Otherwise none.
   */
  table: number[];
  pinnedBytes: number;
  /** Size of the slot. */
  streamSlotBytes: number;
  /** Size of each staging buffer, and their number. */
  stagingBytes: number;
  staging: number;
  /** All bytes for weights. */
  bytes: number;
  /** Bytes read in each forward pass. */
  streamedBytes: number;
}

export interface Limits {
  /** Maximum size of one unit: that of a buffer. */
  unitBytes: number;
  /** What queued steps need besides the embedding; undefined: steps are not queued. */
  queueBytes?: number | undefined;
}

/** Default of gpuBudget. */
export const kMaxBytes = 4 * 2 ** 30;

const kStaging = 3;
const kMinSlot = 1 << 16;
const kMaxSlot = 8 << 20;

export const align = (bytes: number, to = 4): number => Math.ceil(bytes / to) * to;

/** Activations with one input; the others have gate and up. Numbers of model/op.h. */
const kPlain = [2, 4, 6, 7, 9, 10];

/** Whether the next operation activates exactly this one's parts: gate and up, or a single one. */
export function activated(ops: Op[], i: number, mats: Program['mats']): boolean {
  const [op, next] = [ops[i]!, ops[i + 1]];
  if (next?.kind !== OpKind.Activate || next.in !== op.out || op.add) return false;
  if (op.parts.length !== (next.up || kPlain.includes(next.act) ? 1 : 2)) return false;
  const { type } = mats[op.parts[0]!.mat]!;
  return op.parts.every(
    ({ mat, outCol }, part) =>
      mats[mat]!.type === type &&
      mats[mat]!.rows === next.n &&
      outCol === next.inCol + part * next.n,
  );
}

/** Divides the matrices of an operation into units of at most `most` bytes. */
function cut(program: Program, index: number, most: number, units: Unit[]): void {
  const op = program.ops[index]!;
  const { mats } = program;
  const together = activated(program.ops, index, mats);
  const bytesOf = (part: number, rows: number): number =>
    align(mats[op.parts[part]!.mat]!.rowBytes * rows, 16);
  const all = op.parts.map((_, part) => part);
  const rowsOf = (part: number): number => mats[op.parts[part]!.mat]!.rows;
  const add = (parts: number[], row0: number, rows: (part: number) => number): void => {
    const unit: Unit = { op: index, pieces: [], bytes: 0, pinned: false };
    for (const part of parts) {
      const bytes = mats[op.parts[part]!.mat]!.rowBytes * rows(part);
      unit.pieces.push({
        part,
        mat: op.parts[part]!.mat,
        row0,
        rows: rows(part),
        at: unit.bytes,
        bytes,
      });
      unit.bytes += align(bytes, 16);
    }
    units.push(unit);
  };
  if (all.reduce((sum, part) => sum + bytesOf(part, rowsOf(part)), 0) <= most)
    return add(all, 0, rowsOf);
  for (const parts of together ? [all] : all.map((part) => [part])) {
    const total = rowsOf(parts[0]!);
    const one = parts.reduce((sum, part) => sum + mats[op.parts[part]!.mat]!.rowBytes, 0);
    const rows = Math.max(1, Math.floor((most - 16 * parts.length) / one));
    for (let row0 = 0; row0 < total; row0 += rows)
      add(parts, row0, () => Math.min(rows, total - row0));
  }
}

/**
 * The first of each kind of an operation's matrices, one for each of `count` experts or heads. Of a
 * mixture: gate, up, down; gate is -1 if there is none. undefined: another operation.
 */
export function severalOf(
  { moes }: Program,
  { kind, moe, mat, heads, whole }: Op,
): { first: number[]; count: number } | undefined {
  if (whole) return { first: whole, count: 1 };
  if (kind === OpKind.HeadMatmul) return { first: [mat!], count: heads };
  if (kind !== OpKind.Moe) return undefined;
  const { numbers } = moes[moe]!;
  return { first: numbers.slice(Mix.Gate, Mix.Down + 1), count: numbers[Mix.Matrices]! };
}

const expertBytes = ({ mats }: Program, mat: number): number =>
  mat < 0 ? 0 : mats[mat]!.rows * mats[mat]!.rowBytes;

/** Divides a mixture or the matrices of heads into units of as many whole experts or heads as fit. */
function cutExperts(program: Program, index: number, most: number, units: Unit[]): void {
  const { first, count: total } = severalOf(program, program.ops[index]!)!;
  const one = first.reduce((sum, mat) => sum + expertBytes(program, mat), 0);
  const fitting = Math.max(1, Math.floor((most - 16 * first.length) / one));
  for (let expert = 0; expert < total; expert += fitting) {
    const count = Math.min(fitting, total - expert);
    const unit: Unit = {
      op: index,
      pieces: [],
      experts: { first: expert, count },
      bytes: 0,
      pinned: false,
    };
    for (const [part, mat] of first.entries()) {
      const bytes = expertBytes(program, mat);
      for (let e = 0; mat >= 0 && e < count; e++) {
        unit.pieces.push({
          part,
          mat: mat + expert + e,
          row0: 0,
          rows: program.mats[mat]!.rows,
          at: unit.bytes + e * bytes,
          bytes,
        });
      }
      unit.bytes += align(count * bytes, 16);
    }
    units.push(unit);
  }
}

function unitsOf(program: Program, most: number): { units: Unit[]; firstUnit: number[] } {
  const units: Unit[] = [];
  const firstUnit: number[] = [];
  program.ops.forEach((op, i) => {
    firstUnit.push(units.length);
    if (op.kind === OpKind.Matmul && i < program.pool) cut(program, i, most, units);
    if (severalOf(program, op)) cutExperts(program, i, most, units);
  });
  firstUnit.push(units.length);
  return { units, firstUnit };
}

/** Adds the units of the embedding to those of all operations, unless a tied output head has it. */
function tableOf(program: Program, units: Unit[], most: number): number[] {
  const { embedding, mats } = program;
  const { rows, rowBytes } = mats[embedding]!;
  const holds = ({ pieces }: Unit): boolean => pieces.some(({ mat }) => mat === embedding);
  if (!units.some(holds)) {
    const fitting = Math.max(1, Math.floor((most - 16) / rowBytes));
    for (let row0 = 0; row0 < rows; row0 += fitting) {
      const count = Math.min(fitting, rows - row0);
      const bytes = count * rowBytes;
      const piece = { part: 0, mat: embedding, row0, rows: count, at: 0, bytes };
      units.push({ op: 0, pieces: [piece], bytes: align(bytes, 16), pinned: false });
    }
  }
  return units.flatMap((unit, i) => (holds(unit) ? [i] : []));
}

/** Size of the smallest possible unit: the largest row, or the largest expert. */
function widest(program: Program): number {
  let most = 0;
  program.ops.slice(0, program.pool).forEach((op, i) => {
    const rows = op.parts.map(({ mat }) => program.mats[mat]!.rowBytes + 16);
    const need = activated(program.ops, i, program.mats)
      ? rows.reduce((a, b) => a + b, 0)
      : Math.max(0, ...rows);
    most = Math.max(most, need);
    const several = severalOf(program, op)?.first ?? [];
    most = Math.max(
      most,
      several.reduce((sum, mat) => sum + expertBytes(program, mat) + 16, 0),
    );
  });
  return align(most, 16);
}

/** Plans the weights in `room` bytes. Throws BUDGET_TOO_SMALL if they cannot even stream. */
export function planWeights(
  program: Program,
  room: number,
  { unitBytes, queueBytes }: Limits,
  fixed = 0,
): GpuPlan {
  const least = widest(program);
  for (const queued of queueBytes === undefined ? [false] : [true, false]) {
    const whole = unitsOf(program, unitBytes);
    const table = queued ? tableOf(program, whole.units, unitBytes) : [];
    const total = whole.units.reduce((sum, { bytes }) => sum + bytes, 0);
    const staged = Math.min(4 << 20, Math.max(kMinSlot, ...whole.units.map(({ bytes }) => bytes)));
    if (total + kStaging * staged + (queued ? queueBytes! : 0) > room) continue;
    for (const unit of whole.units) unit.pinned = true;
    return {
      ...whole,
      table,
      pinnedBytes: total,
      streamSlotBytes: 0,
      stagingBytes: staged,
      staging: kStaging,
      bytes: total + kStaging * staged,
      streamedBytes: 0,
    };
  }
  const share = 1 + kStaging;
  const slot = align(
    Math.max(
      least,
      Math.min(kMaxSlot, unitBytes, Math.max(kMinSlot, room / 16), room / (2 * share)),
    ),
    16,
  );
  if (share * slot > room) {
    const needed = fixed + share * least;
    throw new SluiceError(
      'BUDGET_TOO_SMALL',
      `A gpuBudget of ${fixed + room} bytes is too small for this model: the smallest that ` +
        `works is ${needed} bytes.`,
    );
  }
  const { units, firstUnit } = unitsOf(program, slot);
  // Spreads pinned units evenly: each unit adds its share of the bytes, and is pinned once the sum
  // is large enough for it.
  const all = units.reduce((sum, { bytes }) => sum + bytes, 0);
  const forPins = room - share * slot;
  let saved = 0;
  let pinnedBytes = 0;
  for (const unit of units) {
    saved += (unit.bytes * forPins) / all;
    if (saved < unit.bytes || pinnedBytes + unit.bytes > forPins) continue;
    unit.pinned = true;
    pinnedBytes += unit.bytes;
    saved -= unit.bytes;
  }
  return {
    units,
    firstUnit,
    table: [],
    pinnedBytes,
    streamSlotBytes: slot,
    stagingBytes: slot,
    staging: kStaging,
    bytes: pinnedBytes + share * slot,
    streamedBytes: all - pinnedBytes,
  };
}
