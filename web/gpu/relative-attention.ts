// Entry of gpu-relative.js: attention with relative positions (T5). Each head adds a bias to a score,
// by the bucket of the distance from query to key. In an encoder-decoder model, the first positions of
// the KV cache are the encoder's: the decoder's own attention begins behind them, and its
// cross-attention sees nothing else.

import type { Attention, Recorder } from './kernels.js';
import { bucketWords, relativeAttention, type BucketWords } from './kernels/relative.js';
import { Encoded, Word, type Op, type Program } from './program.js';
import type { OwnAttention } from './record.js';

export class RelativeAttention implements OwnAttention {
  readonly #decoder: number;
  readonly #words: BucketWords[];
  /** The encoder's positions. Until the first pass, only pipelines are compiled. */
  #source = 1;
  /** Steps are not replayed: a replay would keep the number of these. */
  readonly observes = true;

  constructor({ decoder, buckets }: Program) {
    this.#decoder = decoder;
    this.#words = buckets.map(bucketWords);
  }

  kindOf(): string {
    return '';
  }

  begin(_queue: GPUQueue, words: Uint32Array): void {
    this.#source = words[Word.Source]!;
  }

  attention(to: Recorder, op: Op, _row: number, call: Attention): void {
    if (op.encoded === Encoded.Stored) return;
    const read = op.encoded === Encoded.Read;
    const causal = op.att.causal && !read;
    relativeAttention(to, {
      ...call,
      causal,
      begin: causal && this.#decoder ? this.#source : 0,
      length: read ? this.#source : call.first + call.tokens,
      sinks: undefined,
      ...(!read && { biases: call.sinks }),
      words: this.#words[read ? 0 : op.relative!]!,
    });
  }

  download(): number {
    return 0;
  }

  settle(): void {}
}
