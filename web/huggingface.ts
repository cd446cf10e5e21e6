// The entry sluice-llm/huggingface.

export * from './io/huggingface.js';
