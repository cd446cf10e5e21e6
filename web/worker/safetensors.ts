// What reads Hugging Face directories, from the package's files beside the worker.

import type { Safetensors } from '../io/directory.js';
import { asset } from './asset.js';

export async function safetensors(): Promise<Safetensors> {
  const { load } = await asset('safetensors.js', new URL('./safetensors.js', import.meta.url));
  return load(() => fetch(new URL('./safetensors.wasm', import.meta.url)));
}
