// Which of the binaries runs here, and runs best. Apart from wasm.ts, which brings the glue along,
// so that the inlined entry can choose on the page before it unpacks one.

// (func (export "d") (param i32 i32) (result i32)
//   (i32x4.extract_lane 0 (i32x4.relaxed_dot_i8x16_i7x16_add_s
//     (i8x16.splat (local.get 0)) (i8x16.splat (local.get 1)) (v128.const i32x4 0 0 0 0))))
const kProbe = new Uint8Array([
  0,
  0x61,
  0x73,
  0x6d,
  1,
  0,
  0,
  0,
  1,
  7,
  1,
  0x60,
  2,
  0x7f,
  0x7f,
  1,
  0x7f,
  3,
  2,
  1,
  0,
  7,
  5,
  1,
  1,
  0x64,
  0,
  0,
  0x0a,
  0x24,
  1,
  0x22,
  0,
  0x20,
  0,
  0xfd,
  0x0f,
  0x20,
  1,
  0xfd,
  0x0f,
  0xfd,
  0x0c,
  ...new Uint8Array(16),
  0xfd,
  0x93,
  2,
  0xfd,
  0x1b,
  0,
  0x0b,
]);

export type Variant = 'simd128' | 'relaxed' | 'relaxed16' | 'gpu';

/**
 * Whether four products with signed codes come of one instruction, which takes its second operand
 * for signed or for unsigned; else they are made of others that stop at 16-bit pairs, slower, and
 * wrong beyond codes of 0..127. WebAssembly does not say which, but products outside what it
 * promises do. The table asks more of them again (kernels/isa/wasmrelaxed.h) and is not available
 * where it would be wrong; relaxed16 runs everywhere.
 */
function hasWholeProduct(): boolean {
  try {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(kProbe));
    const product = (exports['d'] as (activation: number, weight: number) => number)(127, -1);
    return product === 4 * 127 * -1 || product === 4 * 127 * 255;
  } catch {
    return false; // a policy allows no wasm: compiling the binary will say so
  }
}

/** The binary for a kernel table's name; '' takes the best that runs here. */
export function variantFor(kernels: string): Variant {
  // The same kernels as simd128's, and a way to a GPU.
  if (kernels === 'gpu') return kernels;
  if (/relaxed/.test(kernels)) return /16/.test(kernels) ? 'relaxed16' : 'relaxed';
  if (kernels !== '' || !WebAssembly.validate(kProbe)) return 'simd128';
  return hasWholeProduct() ? 'relaxed' : 'relaxed16';
}
