// Measures wllama, in a page that has loaded it as `peer`.

/* global peer */
export async function measureWllama({ prompt, n }) {
  const { timings } = await peer.createCompletion({
    prompt,
    max_tokens: n,
    temperature: 0,
    ignore_eos: true,
    cache_prompt: false,
  });
  return {
    prefill: timings.prompt_per_second,
    decode: timings.predicted_per_second,
    promptTokens: timings.prompt_n,
    generated: timings.predicted_n,
    threads: peer.getNumThreads(),
  };
}
