// Writes a LoRA adapter as GGUF, with values that depend on nothing but the shapes.
import { ggufHeader } from '../bench/gpu/gguf.mjs';
import { random } from './random.mjs';

const kRank = 3;

/** A file for models of `arch`. `matrices`: [name, columns, rows, slices], slices of experts or heads. */
export function writeAdapter(arch, matrices) {
  const tensors = matrices.flatMap(([name, cols, rows, slices]) => {
    const more = slices ? [slices] : [];
    return [
      { name: `${name}.weight.lora_a`, type: 'F32', ne: [cols, kRank, ...more] },
      { name: `${name}.weight.lora_b`, type: 'F32', ne: [kRank, rows, ...more] },
    ];
  });
  const { header, size } = ggufHeader(
    [
      ['general.architecture', 'string', arch.replace(/-moe$/, '')],
      ['general.type', 'string', 'adapter'],
      ['adapter.type', 'string', 'lora'],
      ['adapter.lora.alpha', 'f32', 2 * kRank],
    ],
    tensors,
  );
  const bytes = new Uint8Array(size);
  bytes.set(header);
  const numbers = new Float32Array(bytes.buffer, header.length);
  const next = random(7);
  // Padding between tensors has values, too.
  for (let i = 0; i < numbers.length; i++) numbers[i] = next() / 2 - 1 / 4;
  return new Blob([bytes]);
}
