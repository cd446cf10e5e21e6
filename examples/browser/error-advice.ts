// Explains errors to people: what happened and what to do, by the error's stable code. The code and
// the engine's own message stand in a folded line, for reports of bugs.

import { SluiceError, type ErrorCode } from 'sluice-llm';

import type { Problem } from './conversation.js';
import { make } from './dom.js';
import { bytes } from './format.js';

/** What happened, where the engine's message is for programmers. */
const kWhat: Partial<Record<string, string>> = {
  INTERNAL: 'The engine failed. This is a bug.',
  DISPOSED: 'The model was unloaded.',
  NOT_GGUF: 'This is not a model file.',
  TRUNCATED: 'The file is not complete.',
  BAD_HEADER: 'The file is damaged.',
  OUT_OF_MEMORY: 'The browser has no memory left for this.',
  NETWORK: 'The server cannot be reached.',
  CACHE_LOCKED: 'This model is in use, here or in another tab.',
  QUOTA: "The browser's storage for this page is full.",
  CORRUPT: 'Stored data of this model is damaged.',
  IO: 'The file cannot be read.',
  GRAMMAR_TOO_LARGE: 'The JSON schema is too complicated.',
  WORKER_LOST: 'The engine stopped working.',
  WORKER_LOAD: 'The engine cannot be started.',
  MODULE_LOAD: 'A file of this page cannot be loaded.',
  WASM_LOAD: 'A file of this page cannot be loaded.',
};

const kReloadPage = "The page's own files are missing or too old: reload the page.";
const kSchema = 'Change the JSON schema in the settings.';
/** What to do. */
const kAdvice: Partial<Record<string, string>> = {
  INVALID_ARGUMENT: 'Check the address and the settings.',
  NOT_GGUF:
    'The address must be that of the file itself. On Hugging Face, use a link with /resolve/, or ' +
    'hf:owner/repository/file.gguf.',
  TRUNCATED: 'Download it again, or use another copy.',
  BAD_HEADER: 'It was damaged on its way, or a broken tool has written it: try another copy.',
  UNSUPPORTED_VERSION: 'Convert the model again with a current tool.',
  UNSUPPORTED_ARCHITECTURE:
    'Choose another model: Llama, Qwen, Gemma, Phi, Mistral and many others are supported.',
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
  NOT_FOUND: 'Check the address, or choose all files of the model.',
  CORRUPT: 'Delete the cached model and load it again.',
  IO: 'Choose the file again.',
  CACHE_LOCKED: 'Unload it, and close other tabs that use it.',
  QUOTA: 'Delete cached models.',
  WORKER_LOST: 'The tab may have run out of memory. Load the model again, with a smaller budget.',
  WORKER_LOAD: kReloadPage,
  MODULE_LOAD: kReloadPage,
  WASM_LOAD: kReloadPage,
  NOT_SUPPORTED: 'Use a current browser.',
  SCHEMA_UNSUPPORTED: kSchema,
  GRAMMAR_SYNTAX: kSchema,
  GRAMMAR_TOO_LARGE: kSchema,
  CHAT_TEMPLATE:
    "The model's chat template does not accept this conversation: use Text instead of Chat.",
};

export function isAbort(error: unknown): boolean {
  return (error as Error | null)?.name === 'AbortError';
}

export function problemOf(error: unknown): Problem {
  const { name = '', message = String(error) } = (error ?? {}) as Partial<Error>;
  return { message, code: error instanceof SluiceError ? error.code : name || 'Error' };
}

const kReload: (ErrorCode | string)[] = [
  'WORKER_LOST',
  'OUT_OF_MEMORY',
  'INTERNAL',
  'CORRUPT',
  'IO',
  'DISPOSED',
];

/** Whether loading the model again can help, because the engine may be unusable. */
export const reloadHelps = ({ code }: Problem): boolean => kReload.includes(code);

/** What happened, in a sentence: sizes with units, no names of options. */
export function sentence({ message, code }: Problem): string {
  const status = code === 'HTTP_STATUS' && /answered (\d{3})/.exec(message)?.[1];
  if (status) return httpSentence(Number(status));
  if (code === 'NOT_SUPPORTED' && /GPU/.test(message))
    return 'There is no GPU that this page can use: choose the CPU as device.';
  if (/^SCHEMA|^GRAMMAR_SYN/.test(code)) return `The JSON schema cannot be used: ${plain(message)}`;
  if (code === 'BUDGET_TOO_SMALL' && /structured output/.test(message))
    return 'A JSON schema needs more memory than the budget has: raise it.';
  return kWhat[code] ?? plain(message);
}

const kNoFile = 'There is no file at this address.';

function httpSentence(status: number): string {
  if (status === 401 || status === 403) return 'The server does not give this file to everyone.';
  if (status === 404 || status === 410) return kNoFile;
  if (status === 429) return 'The server got too many requests. Wait a few minutes.';
  return status >= 500 ? 'The server has a problem. Try again later.' : 'The server refuses this.';
}

/** The message with units, a capital letter and a full stop. */
function plain(message: string): string {
  const text = message
    .trim()
    .replace(/; see docs\/\S+$/, '')
    .replace(/\b(\d{4,}) bytes/g, (_, n: string) => bytes(Number(n)))
    .replace(/^\p{Ll}(?=\p{Ll}* )/u, (letter) => letter.toUpperCase()); // no address or name
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/**
 * What happened, what to do, and a folded line for reports of bugs. The page's own sentences have no
 * more to say.
 */
export const explain = (error: unknown): HTMLElement => explained(problemOf(error));

export function explained(problem: Problem): HTMLElement {
  const { code, message } = problem;
  const told = sentence(problem);
  const advice = told === kNoFile ? 'Check the address.' : kAdvice[code];
  return make(
    'div',
    {},
    make('p', {}, told),
    advice && make('p', { class: 'advice' }, advice),
    code !== 'Error' &&
      make(
        'details',
        { class: 'report' },
        make('summary', {}, 'Details for a bug report'),
        make('code', {}, `${code}: ${message}`),
      ),
  );
}
