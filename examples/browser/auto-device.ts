// What went wrong, in the engine's words, and what to do about it, by the error's stable code.

import { SluiceError, type ErrorCode } from 'sluice-llm';

import { make } from './dom.js';

const kAdvice: Partial<Record<ErrorCode, string>> = {
  INVALID_ARGUMENT: 'Check the address and the settings.',
  NOT_GGUF:
    'The address must be that of the file itself. On Hugging Face that is a link with ' +
    '/resolve/, or hf:owner/repository/file.gguf.',
  TRUNCATED: 'The file is shorter than its header says: download it again, or ask who hosts it.',
  BAD_HEADER: 'The file is damaged, or was written by a broken tool: try another copy.',
  UNSUPPORTED_VERSION: 'Convert the model again with a current tool.',
  UNSUPPORTED_ARCHITECTURE:
    'This engine does not know the family yet. Llama, Qwen, Gemma, Phi, Mistral and their kin run.',
  UNSUPPORTED_TYPE: 'Choose another quantization of the model: Q4_K_M, Q4_0 and Q8_0 run.',
  UNSUPPORTED_TOKENIZER: 'Choose another model: this vocabulary cannot be read yet.',
  BAD_WEIGHTS:
    'The file holds weights that are no numbers: download it again, or try another copy.',
  BUDGET_TOO_SMALL: 'Move the budget up, or choose a shorter context.',
  OUT_OF_MEMORY: 'Close other tabs, or choose a smaller budget.',
  PROMPT_TOO_LONG: 'Shorten it, begin a new conversation, or load the model with a longer context.',
  CONTEXT_FULL: 'Begin a new conversation, or load the model with a longer context.',
  HTTP_STATUS:
    'Some models are only for those who are signed in where they lie: download the file there ' +
    'and drop it here.',
  NETWORK:
    'Check the connection. If the host forbids other pages to read its files (CORS), download ' +
    'the file and drop it here.',
  NO_RANGE_SUPPORT: 'Download the file and drop it here, or host it where byte ranges are served.',
  SOURCE_CHANGED: 'Load it again: the new version is fetched then.',
  NOT_FOUND: 'It may have been deleted; load it from its address.',
  CORRUPT: 'Delete the stored model and load it again.',
  IO: 'The file cannot be read any more: choose it again.',
  CACHE_LOCKED: 'Another tab uses this model: close it there first.',
  WORKER_LOST: 'The tab may have run out of memory. Load the model again, with a smaller budget.',
  WORKER_LOAD: "The page's own files are missing or too old: reload the page.",
  MODULE_LOAD: "The page's own files are missing or too old: reload the page.",
  WASM_LOAD: "The page's own files are missing or too old: reload the page.",
  NOT_SUPPORTED: 'A current browser is needed.',
  CHAT_TEMPLATE:
    'The model brings a chat template that does not take this conversation: use Text in place ' +
    'of Chat.',
};

export function isAbort(error: unknown): boolean {
  return (error as Error | null)?.name === 'AbortError';
}

const kReload: ErrorCode[] = [
  'WORKER_LOST',
  'OUT_OF_MEMORY',
  'INTERNAL',
  'CORRUPT',
  'IO',
  'DISPOSED',
];

/** True where the engine may be of no more use, and a new one may be. */
export function reloadHelps(error: unknown): boolean {
  return error instanceof SluiceError && kReload.includes(error.code);
}

/** The message and, on a line of its own, the advice. */
export function explain(error: unknown): HTMLElement {
  const { message = String(error) } = (error ?? {}) as Partial<Error>;
  const code = error instanceof SluiceError ? error.code : undefined;
  return make(
    'div',
    {},
    make('p', {}, message, code && make('code', { class: 'code-name' }, code)),
    code && kAdvice[code] ? make('p', { class: 'advice' }, kAdvice[code]) : null,
  );
}
