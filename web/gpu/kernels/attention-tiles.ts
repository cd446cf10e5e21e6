// How attention.wgsl divides its work among the threads of a workgroup.

const power = (n: number): number => 2 ** Math.ceil(Math.log2(n));

/**
 * Constants of attention.wgsl for values of length dv. A workgroup computes ROWS of the `rows` of queries
 * that share keys.
 */
export function tilesOf(rows: number, dv: number): Record<'ROWS' | 'QUADS' | 'TIMES', number> {
  const quads = Math.ceil(dv / 4);
  const times = Math.ceil(quads / 64);
  const most = quads <= 32 ? 16 : Math.floor(8 / power(times));
  const tileRows = Math.max(2, Math.min(power(rows), most));
  const side = Math.max(power(Math.ceil(quads / times)), 64 / tileRows);
  return { ROWS: tileRows, QUADS: side, TIMES: Math.ceil(quads / side) };
}
