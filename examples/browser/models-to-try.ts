// Models that the page suggests: small ones that chat well, with the sizes of their files.

export interface SuggestedModel {
  name: string;
  url: string;
  bytes: number;
}

const suggest = (name: string, path: string, megabytes: number): SuggestedModel => ({
  name,
  url: `hf:${path}`,
  bytes: megabytes * 1e6,
});

export const kSuggested: readonly SuggestedModel[] = [
  suggest(
    'SmolLM2 360M',
    'HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/smollm2-360m-instruct-q8_0.gguf',
    386,
  ),
  suggest('Qwen3 0.6B', 'Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf', 639),
  suggest(
    'Llama 3.2 1B',
    'bartowski/Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q4_K_M.gguf',
    808,
  ),
  suggest('Gemma 2 2B', 'bartowski/gemma-2-2b-it-GGUF/gemma-2-2b-it-Q4_K_M.gguf', 1709),
  suggest('Qwen3 4B', 'Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf', 2497),
  suggest('Qwen3 8B', 'Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf', 5028),
];
