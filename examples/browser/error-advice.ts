// Explains errors: the engine's message, and advice by the error's stable code.

import { SluiceError, type ErrorCode } from 'sluice-llm';

import { make } from './dom.js';

const kAdvice: Partial<Record<ErrorCode, string>> = {
  INVALID_ARGUMENT: 'Check the URL and the settings.',
  NOT_GGUF:
    'The address must be that of the file itself. On Hugging Face, use a link with /resolve/, or ' +
    'hf:owner/repository/file.gguf.',
  TRUNCATED: 'The file is shorter than its header says: download it again, or use another copy.',
  BAD_HEADER: 'The file is damaged, or was written by a broken tool: try another copy.',
  UNSUPPORTED_VERSION: 'Convert the model again with a current tool.',
  UNSUPPORTED_ARCHITECTURE:
    'This model family is not supported yet. Llama, Qwen, Gemma, Phi, Mistral and many others are.',
  UNSUPPORTED_TYPE: 'Choose another quantization of the model: for example Q4_K_M, Q4_0 or Q8_0.',
  UNSUPPORTED_TOKENIZER: 'Choose another model: this tokenizer is not supported yet.',
  BAD_WEIGHTS:
    'The file contains weights that are not numbers: download it again, or try another copy.',
  BUDGET_TOO_SMALL: 'Raise the budget, or choose a shorter context.',
  OUT_OF_MEMORY: 'Close other tabs, or choose a smaller budget.',
  PROMPT_TOO_LONG: 'Shorten it, start a new conversation, or load the model with a longer context.',
  CONTEXT_FULL: 'Start a new conversation, or load the model with a longer context.',
  HTTP_STATUS:
    'The model may be available only if you are signed in: download the file there and drop it ' +
    'here.',
  NETWORK:
    'Check the connection. If the host does not let other pages read its files (CORS), download ' +
    'the file and drop it here.',
  NO_RANGE_SUPPORT: 'Download the file and drop it here, or use a host that serves byte ranges.',
  SOURCE_CHANGED: 'Load it again to download the new version.',
  NOT_FOUND: 'It may have been deleted; load it from its URL.',
  CORRUPT: 'Delete the cached model and load it again.',
  IO: 'The file cannot be read any more: choose it again.',
  CACHE_LOCKED: 'Another tab uses this model: close it there first.',
  WORKER_LOST: 'The tab may have run out of memory. Load the model again, with a smaller budget.',
  WORKER_LOAD: "The page's own files are missing or too old: reload the page.",
  MODULE_LOAD: "The page's own files are missing or too old: reload the page.",
  WASM_LOAD: "The page's own files are missing or too old: reload the page.",
  NOT_SUPPORTED: 'Use a current browser.',
  CHAT_TEMPLATE:
    "The model's chat template does not accept this conversation: use Text instead of Chat.",
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

/** Whether loading the model again can help, because the engine may be unusable. */
export function reloadHelps(error: unknown): boolean {
  return error instanceof SluiceError && kReload.includes(error.code);
}

/** The message, and the advice on a separate line. */
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
