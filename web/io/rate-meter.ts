// Bytes per second over the last few seconds, for the download's progress.

const kWindowMs = 3_000;

export class RateMeter {
  readonly #samples: { at: number; bytes: number }[] = [];

  /** Takes the bytes so far; returns the rate. */
  add(bytes: number): number {
    const at = performance.now();
    this.#samples.push({ at, bytes });
    while (this.#samples.length > 2 && at - this.#samples[0]!.at > kWindowMs) this.#samples.shift();
    const first = this.#samples[0]!;
    return at > first.at ? ((bytes - first.bytes) * 1000) / (at - first.at) : 0;
  }
}
