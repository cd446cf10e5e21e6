// Loads a model into memory with node-llama-cpp's prebuilt CPU library, for the scripts beside it.
import { LlamaLogLevel, getLlama } from 'node-llama-cpp';

export async function loadModel(modelPath, threads) {
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    maxThreads: threads,
    progressLogs: false,
    logLevel: LlamaLogLevel.error,
  });
  return llama.loadModel({ modelPath, useMmap: false });
}
