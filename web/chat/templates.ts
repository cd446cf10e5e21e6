// Entry of templates.js: chat template rendering by chat.wasm, and the OpenAI-compatible API. A
// separate bundle that is loaded at the first chat (prompt.ts), so other pages do without it.

export { answer } from './answers.js';
export { embeddings } from './embeddings.js';
export { PartialJson } from './partial-json.js';
export { PromptRenderer } from './renderer.js';
