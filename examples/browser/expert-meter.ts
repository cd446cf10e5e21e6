// How the cache of a mixture's experts does: hit rate and bytes per token, over the last moments in
// which tokens were computed. While the engine is idle, the last values stay.

import { bytes, percent } from './format.js';

const kSnapshots = 16;
const kCounters = ['expertHits', 'expertMisses', 'expertBytesRead', 'tokens'] as const;

export class ExpertMeter {
  private seen: number[][] = [];

  /** The figure's value and note, from `EngineStats.engine`. */
  read(counters: Record<string, number>): [string, string] {
    const now = kCounters.map((name) => counters[name] ?? 0);
    const last = this.seen.at(-1);
    if (last && now.some((count, i) => count < last[i]!)) this.seen = []; // another engine
    if (now[3] !== this.seen.at(-1)?.[3]) this.seen.push(now);
    while (this.seen.length > kSnapshots) this.seen.shift();
    const [hits, misses, read, tokens] = now.map((_, i) =>
      this.seen.length > 1 ? this.seen.at(-1)![i]! - this.seen[0]![i]! : now[i]!,
    ) as [number, number, number, number];
    if (hits + misses === 0) return ['–', ''];
    return [
      `${percent(hits / (hits + misses))} hits`,
      `${bytes(Math.round(read / tokens))} read per token`,
    ];
  }
}
