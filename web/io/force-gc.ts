// Triggers garbage collection. Browsers collect download buffers, and the memory of an engine that
// has moved to another worker, only after about a hundred megabytes or some seconds. That is as
// much as a small budget.

const kRefusedBytes = 2 ** 34;

/**
 * Requests more memory than is ever granted. V8 collects garbage before it refuses. JavaScript
 * engines that refuse immediately lose nothing.
 */
export function collectGarbage(): void {
  try {
    new ArrayBuffer(kRefusedBytes);
  } catch {
    // always thrown
  }
}
