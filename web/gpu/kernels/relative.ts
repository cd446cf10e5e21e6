// Attention with relative positions, in gpu-relative.js: one workgroup passes over all positions, since
// the contexts of such models are short.

import type { Attention } from './calls.js';
import { attentionValues, reach } from './attention.js';
import { tilesOf } from './attention-tiles.js';
import { none, type Dispatcher } from './dispatcher.js';
import attentionText from '../../../kernels/wgsl/attention.wgsl';
import cacheText from '../../../kernels/wgsl/cache.wgsl';
import cacheF16 from '../../../kernels/wgsl/cache_f16.wgsl';
import relativeText from '../../../kernels/wgsl/attention_relative.wgsl';

/** Words of attention_relative.wgsl. */
export type BucketWords = Record<'REACH' | 'AHEAD' | 'BEHIND', string>;

/** `buckets`: of the distances from query to key, of which 0 is in the middle. */
export function bucketWords(buckets: readonly number[]): BucketWords {
  const reach = (buckets.length - 1) / 2;
  const sum = (bucketOf: (far: number) => number): string => {
    let text = `${bucketOf(0)}u`;
    for (let far = 1; far <= reach; far++) {
      const grown = bucketOf(far) - bucketOf(far - 1);
      if (grown) text += ` + select(0u, ${grown}u, far >= ${far}u)`;
    }
    return text;
  };
  return {
    REACH: `${reach}u`,
    AHEAD: sum((far) => buckets[reach + far]!),
    BEHIND: sum((far) => buckets[reach - far]!),
  };
}

/** `biases`: vector [bucket][heads]; without it, there are none. */
export interface RelativeAttention extends Attention {
  biases?: number | undefined;
  words: BucketWords;
}

const kBias = `
      if (p.biases >= 0) {
        let biases = u32(p.biases) + bucket_of(position, seen) * p.heads;
        score += vectors[biases + kv_head * p.group + (row0 + row) % p.group];
      }`;

export function relativeAttention(to: Dispatcher, op: RelativeAttention): void {
  const rows = (op.tokens * op.heads) / op.kvHeads;
  const tiles = tilesOf(rows, op.dv);
  const { range, places } = reach(to, op.cache);
  const end = op.length ?? op.first + op.tokens;
  const all = { end, split: 0x7fffffff, part: 0, parts: 1, merged: false };
  to.run(
    {
      name: 'attention relative',
      texts: () => [
        cacheText.replace('HOLD', 'read') + cacheF16 + relativeText,
        attentionText
          .replace('//@ visible', kBias)
          .replace(/part: ?u32,/, 'part: u32, biases: i32,'),
      ],
      words: { HELD: 'f32', DV: `${op.dv}u`, ...op.words },
      constants: { ...tiles, SPLIT: false },
      bound: 1,
    },
    { ...attentionValues(op, all, places), biases: none(op.biases) },
    [Math.ceil(rows / tiles.ROWS), op.kvHeads],
    range,
  );
}
