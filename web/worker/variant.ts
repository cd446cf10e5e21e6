// Chooses the fastest wasm binary that runs on this machine. Separate from engine-wasm.ts, which imports
// the glue, so that the inline entry can choose in the page before it unpacks a binary.

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

type Table = 'simd128' | 'relaxed' | 'relaxed16';
/** With '-full': also the quantization types of few files, and the approximate modes. */
export type Variant = Table | `${Table}-full` | 'gpu' | 'gpu-full';

/**
 * Whether the relaxed dot product is one machine instruction, which treats its second operand as
 * signed or as unsigned. Otherwise it is composed of instructions that saturate at 16-bit pairs:
 * slower, and wrong for codes beyond 0..127. WebAssembly does not reveal which, but the results
 * outside its guaranteed range do. The kernel table repeats this test with more products
 * (kernels/isa/wasmrelaxed.h) and is unavailable if they would be wrong. relaxed16 runs everywhere.
 */
function hasWholeProduct(): boolean {
  try {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(kProbe));
    const product = (exports['d'] as (activation: number, weight: number) => number)(127, -1);
    return product === 4 * 127 * -1 || product === 4 * 127 * 255;
  } catch {
    return false; // a policy forbids wasm; compiling the binary reports that
  }
}

function tableFor(kernels: string): Table {
  if (/relaxed/.test(kernels)) return /16/.test(kernels) ? 'relaxed16' : 'relaxed';
  if (kernels !== '' || !WebAssembly.validate(kProbe)) return 'simd128';
  return hasWholeProduct() ? 'relaxed' : 'relaxed16';
}

/** The binary that contains a kernel table; '' is the fastest that runs here. */
export function variantFor(kernels: string, full?: boolean): Variant {
  // These have the kernels of simd128 and the interface to the GPU.
  if (kernels === 'gpu') return full ? 'gpu-full' : 'gpu';
  const table = tableFor(kernels);
  return full ? `${table}-full` : table;
}
