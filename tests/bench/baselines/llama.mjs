// llama.cpp with node-llama-cpp's prebuilt CPU library: prefill and decode rates of one model.
//   node llama.mjs MODEL THREADS PROMPT_TOKENS GENERATED_TOKENS REPEATS [KV_TYPE]    → one JSON line
// Runs as a process of its own, without any of our code. It measures with and without flash
// attention and reports the faster; a quantized V cache needs flash attention. A prompt of 4096
// tokens or more needs no warm-up round.
import { loadModel } from './load.mjs';

const [modelPath, ...numbers] = process.argv.slice(2);
const [threads, nPrompt, nGenerate, repeats] = numbers.map(Number);
const kvType = (numbers[4] ?? 'f16').toUpperCase();
const first = nPrompt < 4096 ? 0 : 1; // round 0 warms up

const model = await loadModel(modelPath, threads);
const vocabulary = model.fileInfo.metadata.tokenizer?.ggml?.tokens?.length ?? 256;
const prompt = Array.from({ length: nPrompt }, (_, i) => 3 + ((i * 7919) % (vocabulary - 3)));

async function measure(flashAttention) {
  const context = await model.createContext({
    contextSize: nPrompt + nGenerate + 8,
    batchSize: first === 0 ? Math.max(512, nPrompt) : 512,
    flashAttention,
    experimentalKvCacheKeyType: kvType,
    experimentalKvCacheValueType: kvType,
    threads: { ideal: threads, min: threads },
  });
  const sequence = context.getSequence();
  const best = { prefill: 0, decode: 0 };
  for (let i = first; i <= repeats; i++) {
    await sequence.clearHistory();
    let start = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(0, -1));
    const prefill = ((nPrompt - 1) * 1000) / (performance.now() - start);
    // The clock starts after the first token, because that token finishes the prompt.
    let generated = -1;
    for await (const _ of sequence.evaluate(prompt.slice(-1), {
      temperature: 0,
      yieldEogToken: true,
    })) {
      if (++generated === 0) start = performance.now();
      if (generated === nGenerate) break;
    }
    const decode = (generated * 1000) / (performance.now() - start);
    if (i > 0) {
      best.prefill = Math.max(best.prefill, prefill);
      best.decode = Math.max(best.decode, decode);
    }
  }
  await context.dispose();
  return best;
}

const plain = kvType === 'F16' ? await measure(false) : { prefill: 0, decode: 0 };
const flash = await measure(true);
console.log(
  JSON.stringify({
    name: 'llama.cpp',
    threads,
    prefill: Math.max(plain.prefill, flash.prefill),
    decode: Math.max(plain.decode, flash.decode),
    plain,
    flash,
  }),
);
process.exit(0);
