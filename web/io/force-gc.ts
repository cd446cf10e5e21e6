// Memory that nobody refers to any more but that the browser collects only a hundred megabytes or
// some seconds later, which is as much as a small budget: bodies of downloads, the memory of an
// engine that has moved to another one.

const kRefusedBytes = 2 ** 34;

/**
 * Asks for more memory than is ever granted, which makes V8 collect before it refuses; engines that
 * refuse at once lose nothing.
 */
export function collectGarbage(): void {
  try {
    new ArrayBuffer(kRefusedBytes);
  } catch {
    // as expected
  }
}
