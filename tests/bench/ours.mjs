// This package in a page, as the benchmarks run it. The functions are sent to the page as text; they
// keep the engine in `globalThis.ours`.

export async function loadOurs({ url, threads, budget, context, kernels, kvType }) {
  const { Engine } = await import('/dist/index.js');
  globalThis.ours = await Engine.load(new URL(url, location.href), {
    memoryBudget: budget,
    contextLength: context,
    threads,
    kernels,
    kvType,
    cache: 'none',
  });
  return ours.stats().kernels;
}

/** The longest prompt of the words with at most n tokens. */
export async function fitPrompt({ words, n }) {
  let low = 1;
  let high = words.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((await ours.countTokens(words.slice(0, middle).join(' '))) <= n) low = middle;
    else high = middle - 1;
  }
  return words.slice(0, low).join(' ');
}

/** `options`: of the generation, beside those that the measurement sets. */
export async function measureOurs({ prompt, n, options = { cachePrompt: false } }) {
  const generation = ours.generate(prompt, {
    maxTokens: n,
    temperature: 0,
    ignoreEos: true,
    ...options,
  });
  const { usage, timings } = await generation.result;
  // The forward pass of the prompt yields the first token.
  return {
    prefill: (usage.promptTokens * 1000) / timings.promptMs,
    decode: ((usage.completionTokens - 1) * 1000) / timings.generateMs,
    promptTokens: usage.promptTokens,
    generated: usage.completionTokens,
    kernels: ours.stats().kernels,
    threads: ours.stats().threads,
  };
}
