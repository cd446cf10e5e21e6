// Rows of a quantized KV cache on the GPU (kv-cache.ts) and in the engine's memory (kernels/kernels.h). A row has the blocks of all heads, keys before values. A block of 32 values has
// two bytes more than the engine's: its scale is a float with the bits of the bfloat16. The engine
// interleaves keys of q4_0 by runs of 16 positions; here they are like values. Rows of halves have the
// latest positions of q4_0.

import { copyHalves, kBlock, move, type RowFormat } from './kv-cache.js';
import { groupsOf } from './kernels/quantized-kv.js';
import { KvType, type CacheShape } from './program.js';

/** Positions whose keys the engine interleaves in q4_0. */
const kRun = 16;

const blocksOf = (n: number): number => Math.ceil(n / kBlock);
/** Bytes of a block in the engine's memory. */
const ownBlock = ({ type }: CacheShape): number => (type === KvType.Q8 ? 34 : 18);

export const quantizedRows: RowFormat = {
  describe({ shape, rows, recent }) {
    const { heads, dk, dv, type } = shape;
    const block = ownBlock(shape) + 2;
    return {
      type: type === KvType.Q8 ? 'q8_0' : 'q4_0',
      capacity: rows.capacity,
      keys: 0,
      keyHead: blocksOf(dk) * block,
      keyRow: rows.row,
      values: heads * blocksOf(dk) * block,
      valueHead: blocksOf(dv) * block,
      valueRow: rows.row,
      recent: { recent_at: recent.at / 4, recent_capacity: recent.capacity || 1 },
    };
  },

  spans({ shape, rows, recent }, first, n) {
    if (shape.type === KvType.Q8) return [[rows, first, n]];
    const { from, count } = groupsOf(first, n);
    return [
      [recent, first, n],
      [rows, from, count],
    ];
  },

  copy(own, begin, layer, rows, place, bytes, toGpu) {
    const { shape } = layer;
    const block = ownBlock(shape);
    const ring = (n: number): number => blocksOf(n) * block * layer.rows.capacity;
    const values = ring(shape.dk);
    if (rows === layer.recent) {
      const copies = begin + values + ring(shape.dv);
      copyHalves(own, copies, shape, rows, place, bytes, toGpu);
      return;
    }
    const { heads, dk, dv, headBytes } = shape;
    const [kb, vb] = [blocksOf(dk), blocksOf(dv)];
    for (let h = 0; h < heads; h++)
      for (let t = 0; t < bytes.length / rows.row; t++) {
        const head = begin + h * headBytes;
        const to = t * rows.row + 2;
        const p = place + t;
        for (let b = 0; b < kb; b++)
          copyKeys(own, head, shape, p, b, bytes, to + (h * kb + b) * (block + 2), toGpu);
        for (let b = 0; b < vb; b++) {
          const at = to + (heads * kb + h * vb + b) * (block + 2);
          move(own, head + values + (p * vb + b) * block, bytes, at, block, toGpu);
        }
      }
  },
};

/** Copies block `b` of the keys of position `p`. `head`: address of the head's keys. */
function copyKeys(
  own: Uint8Array,
  head: number,
  shape: CacheShape,
  p: number,
  b: number,
  bytes: Uint8Array,
  at: number,
  toGpu: boolean,
): void {
  const block = ownBlock(shape);
  const blocks = blocksOf(shape.dk);
  if (shape.type === KvType.Q8) {
    move(own, head + (p * blocks + b) * block, bytes, at, block, toGpu);
    return;
  }
  const inRun = p % kRun;
  const run = head + ((p - inRun) * blocks + b * kRun) * block;
  move(own, run + 2 * inRun, bytes, at, 2, toGpu);
  for (let w = 0; w < 4; w++)
    move(own, run + 2 * kRun + 4 * (w * kRun + inRun), bytes, at + 2 + 4 * w, 4, toGpu);
}
