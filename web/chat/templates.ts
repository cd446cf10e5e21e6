// What only pages that chat need: the renderer of templates with its library inside, and the
// answers in OpenAI's shapes. A bundle of its own, imported when a chat begins (prompt.ts).

export { answerChat, answerText } from './answers.js';
export { PartialJson } from './partial-json.js';
export { PromptRenderer } from './renderer.js';
export { ChatTemplate, strftime } from './template.js';
