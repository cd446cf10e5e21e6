// Download rate over the last few seconds.

const kWindowMs = 3_000;

export class RateMeter {
  readonly #samples: { at: number; bytes: number }[] = [];

  /** Adds the total number of bytes so far. Returns the rate in bytes per second. */
  add(bytes: number): number {
    const at = performance.now();
    this.#samples.push({ at, bytes });
    while (this.#samples.length > 2 && at - this.#samples[0]!.at > kWindowMs) this.#samples.shift();
    const first = this.#samples[0]!;
    return at > first.at ? ((bytes - first.bytes) * 1000) / (at - first.at) : 0;
  }
}
