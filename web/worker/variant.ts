// Which of the two binaries runs here. Apart from wasm.ts, which brings the glue along, so that the
// inlined entry can choose on the page before it unpacks one.

// (func (param v128 v128 v128) (result v128) (i32x4.relaxed_dot_i8x16_i7x16_add_s …))
const kRelaxedProbe = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, 3, 2, 1, 0, 0x0a,
  0x0d, 1, 0x0b, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x93, 2, 0x0b,
]);

export type Variant = 'simd128' | 'relaxed';

/** The binary for a kernel table's name; '' takes the best that runs here. */
export function variantFor(kernels: string): Variant {
  if (/relaxed/.test(kernels)) return 'relaxed';
  if (kernels !== '') return 'simd128';
  return WebAssembly.validate(kRelaxedProbe) ? 'relaxed' : 'simd128';
}
