// Embeddings with node-llama-cpp's prebuilt CPU library: texts per second, the best of REPEATS
// rounds.
//   node embedding.mjs MODEL THREADS TEXTS TOKENS REPEATS    → one JSON line
import { loadModel } from './load.mjs';

const [modelPath, ...numbers] = process.argv.slice(2);
const [threads, texts, tokens, repeats] = numbers.map(Number);
const model = await loadModel(modelPath, threads);
const vocabulary = model.fileInfo.metadata.tokenizer?.ggml?.tokens?.length ?? 256;
// Two tokens fewer, because the library adds one at each end.
const inputs = Array.from({ length: texts }, (_, t) =>
  Array.from({ length: tokens - 2 }, (_, i) => 5 + (((t * tokens + i) * 7919) % (vocabulary - 5))),
);
const context = await model.createEmbeddingContext({
  contextSize: tokens + 8,
  batchSize: 512,
  threads,
});
let best = 0;
for (let round = 0; round <= repeats; round++) {
  // Round 0 warms up.
  const start = performance.now();
  for (const input of inputs) await context.getEmbeddingFor(input);
  if (round > 0) best = Math.max(best, (texts * 1000) / (performance.now() - start));
}
console.log(JSON.stringify({ name: 'llama.cpp', threads, textsPerSecond: best }));
process.exit(0);
