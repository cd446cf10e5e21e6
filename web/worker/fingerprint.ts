// Saved states belong to one model. Its header is part of the engine's fingerprint; its weights are
// added here, from samples of the file (src/session/fingerprint.h).

import type { Io } from '../io/io.js';
import type { EngineBinding } from './binding.js';

const kAtOnce = 16; // reads in flight

/** Returns a function that adds the weights once. Call it before a state is saved or restored. */
export function identifier(
  binding: EngineBinding,
  memory: WebAssembly.Memory,
  io: Io,
): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () =>
    (done ??= identify(binding, memory, io).catch((error: unknown) => {
      done = undefined; // the next call tries again
      throw error;
    }));
}

async function identify(binding: EngineBinding, memory: WebAssembly.Memory, io: Io): Promise<void> {
  const { bytesLocal, bytesTotal, held } = io.stats;
  // Elsewhere a read costs a request, or (`held`) decompresses a whole layer.
  const all = bytesLocal >= bytesTotal && !held;
  // Records of session::WeightSample: file, length, and the offset's two halves.
  const words = new Uint32Array(binding.weightSamples(all).buffer);
  for (let at = 0; at < words.length; at += 4 * kAtOnce) {
    const reads: Promise<Uint8Array>[] = [];
    for (let i = at; i < Math.min(words.length, at + 4 * kAtOnce); i += 4)
      reads.push(io.read(words[i]!, words[i + 3]! * 2 ** 32 + words[i + 2]!, words[i + 1]!, true));
    for (const sample of await Promise.all(reads)) {
      new Uint8Array(memory.buffer, binding.stateStage()).set(sample);
      binding.identify(sample.length);
    }
  }
}
