// Entry sluice-llm/huggingface.

export {
  findHuggingFaceFile,
  huggingFaceUrl,
  listHuggingFaceFiles,
  quantizationOf,
  type HubFile,
  type HuggingFaceOptions,
} from './io/huggingface.js';
