// Entry sluice-llm/huggingface.

export * from './io/huggingface.js';
