/** How many tokens both begin with. */
export function sharedPrefix(a: Int32Array, b: Int32Array): number {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}
