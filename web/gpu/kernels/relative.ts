// Attention with relative positions, in gpu-relative.js: one workgroup passes over all positions, since
// the contexts of such models are short.

import type { Attention } from './calls.js';
import { reach } from './attention.js';
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
  const power = (n: number): number => 2 ** Math.ceil(Math.log2(n));
  const group = op.heads / op.kvHeads,
    rows = op.tokens * group;
  const quads = Math.ceil(op.dv / 4);
  const times = Math.ceil(quads / 64);
  const most = quads <= 32 ? 16 : Math.floor(8 / power(times));
  const tileRows = Math.max(2, Math.min(power(rows), most));
  const side = Math.max(power(Math.ceil(quads / times)), 64 / tileRows);
  const { range, places } = reach(to, op.cache);
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
      constants: { ROWS: tileRows, QUADS: side, TIMES: Math.ceil(quads / side), SPLIT: false },
      bound: 1,
    },
    {
      q: op.qkv.at,
      q_ld: op.qkv.ld,
      out: op.out.at,
      out_ld: op.out.ld,
      dk: op.dk,
      dv: op.dv,
      group,
      tokens: op.tokens,
      first: op.first,
      window: 0,
      chunked: op.begin ?? 0,
      causal: Number(op.causal),
      length: op.length ?? op.first + op.tokens,
      heads: op.heads,
      split: 0x7fffffff,
      ...places,
      sinks: -1,
      partials: op.scratch,
      scale: op.scale,
      softcap: op.softcap ?? 0,
      slope: 0,
      slope_heads: 1,
      part: 0,
      biases: none(op.biases),
    },
    [Math.ceil(rows / tileRows), op.kvHeads],
    range,
  );
}
