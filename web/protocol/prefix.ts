/** Length of the common prefix of two token lists. */
export function sharedPrefix(a: Int32Array, b: Int32Array): number {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}
