// The two error classes that callers meet. A SluiceError has a stable `code` to switch on and a
// message that says what to do; an abort is always a DOMException-like AbortError, as everywhere in
// the platform. Errors cross worker borders as plain objects (serializeError) because structured
// clone drops the extra fields.

/**
 * Every code that a {@link SluiceError} can carry. Codes never change meaning.
 *
 * From the engine: INVALID_ARGUMENT, NOT_GGUF, TRUNCATED, BAD_HEADER, UNSUPPORTED_VERSION,
 * UNSUPPORTED_ARCHITECTURE, UNSUPPORTED_TYPE, MISSING_TENSOR, BAD_SHAPE, BAD_WEIGHTS,
 * BAD_TOKENIZER, UNSUPPORTED_TOKENIZER, BUDGET_TOO_SMALL, OUT_OF_MEMORY, PROMPT_EMPTY,
 * PROMPT_TOO_LONG, CONTEXT_FULL, HTTP_STATUS, NETWORK, NO_RANGE_SUPPORT, SOURCE_CHANGED, NOT_FOUND,
 * IO, CORRUPT, GRAMMAR_SYNTAX, GRAMMAR_LEFT_RECURSION, GRAMMAR_TOO_LARGE, SCHEMA_UNSUPPORTED,
 * INTERNAL. From the web side alone: ENGINE_GONE (the worker crashed), DISPOSED (the
 * engine was disposed of), WORKER_LOAD, WASM_LOAD, MODULE_LOAD (a file of the package's own could not
 * be loaded: the worker's script, the engine's wasm, templates.js), NOT_SUPPORTED (the platform lacks
 * something, named), STORE_BUSY (the entry is in use by another engine or tab), QUOTA (the store is
 * full), TEMPLATE (a chat template failed or raised).
 */
export type ErrorCode =
  | 'INVALID_ARGUMENT'
  | 'NOT_GGUF'
  | 'TRUNCATED'
  | 'BAD_HEADER'
  | 'UNSUPPORTED_VERSION'
  | 'UNSUPPORTED_ARCHITECTURE'
  | 'UNSUPPORTED_TYPE'
  | 'MISSING_TENSOR'
  | 'BAD_SHAPE'
  | 'BAD_WEIGHTS'
  | 'BAD_TOKENIZER'
  | 'UNSUPPORTED_TOKENIZER'
  | 'BUDGET_TOO_SMALL'
  | 'OUT_OF_MEMORY'
  | 'PROMPT_EMPTY'
  | 'PROMPT_TOO_LONG'
  | 'CONTEXT_FULL'
  | 'HTTP_STATUS'
  | 'NETWORK'
  | 'NO_RANGE_SUPPORT'
  | 'SOURCE_CHANGED'
  | 'NOT_FOUND'
  | 'IO'
  | 'CORRUPT'
  | 'GRAMMAR_SYNTAX'
  | 'GRAMMAR_LEFT_RECURSION'
  | 'GRAMMAR_TOO_LARGE'
  | 'SCHEMA_UNSUPPORTED'
  | 'INTERNAL'
  | 'ENGINE_GONE'
  | 'DISPOSED'
  | 'WORKER_LOAD'
  | 'WASM_LOAD'
  | 'MODULE_LOAD'
  | 'NOT_SUPPORTED'
  | 'STORE_BUSY'
  | 'QUOTA'
  | 'TEMPLATE';

/** An error with a stable `code` and a sentence that says what happened and what to do. */
export class SluiceError extends Error {
  /** 'SluiceError'. */
  override readonly name = 'SluiceError';

  /** Also one that another entry of the package made, or another realm. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    const error = value as SluiceError | null | undefined;
    return error?.name === 'SluiceError' && typeof error.code === 'string';
  }
  /** What went wrong; see ErrorCode. */
  readonly code: ErrorCode;

  /** Made by the package; the cause is kept where there is one. */
  constructor(code: ErrorCode | (string & {}), message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code as ErrorCode;
  }
}

/** What the caller passed cannot be used. */
export function invalid(message: string): never {
  throw new SluiceError('INVALID_ARGUMENT', message);
}

/** The platform's abort error; an AbortSignal's own reason wins when it carries one. */
export function abortError(signal?: AbortSignal): unknown {
  if (signal?.aborted && signal.reason !== undefined) return signal.reason;
  return new DOMException('The operation was aborted.', 'AbortError');
}

export function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

export function throwIfAborted(signal?: AbortSignal): void {
  if (signal?.aborted) throw abortError(signal);
}

/** What every call takes that can last. */
export interface CallOptions {
  /** Aborts the waiting: the promise rejects at once, and the engine works on. */
  signal?: AbortSignal | undefined;
}

/** The signal among a call's options; refuses what is no options, or no signal. */
export function signalOf(options: object = {}): AbortSignal | undefined {
  if (typeof options !== 'object' || options === null)
    invalid('Options are an object; leave them out where there are none.');
  const signal = (options as CallOptions).signal ?? undefined;
  if (signal && typeof signal.addEventListener !== 'function')
    invalid("signal must be an AbortSignal: an AbortController's .signal, say.");
  return signal;
}

/**
 * Refuses an option that is not among `names` (words) by its own name, with what was probably meant:
 * the name that shares most pairs of letters with it.
 */
export function onlyKnown(call: string, options: object | undefined, names: string): void {
  signalOf(options);
  const list = names.split(' ');
  for (const [name, value] of Object.entries(options ?? {})) {
    if (value == null || list.includes(name)) continue;
    const given = pairs(name);
    const shared = (other: string): number => {
      const theirs = pairs(other);
      return (
        given.filter((pair) => theirs.includes(pair)).length / Math.min(given.length, theirs.length)
      );
    };
    const [near] = list
      .filter((other) => shared(other) >= 0.75)
      .sort((a, b) => shared(b) - shared(a));
    invalid(
      `'${name}' is not an option of ${call}: ${near ? `use ${near}` : `it takes ${list.join(', ')}`}.`,
    );
  }
}

function pairs(name: string): string[] {
  const letters = name.toLowerCase().replace(/[^a-z]/g, '');
  return Array.from({ length: letters.length - 1 }, (_, i) => letters.slice(i, i + 2));
}

/** What `work` gives, or a rejection as soon as the signal aborts; what has begun goes on to its end. */
export async function abortable<T>(
  options: CallOptions | undefined,
  work: () => Promise<T>,
): Promise<T> {
  onlyKnown('this call', options, 'signal');
  const signal = signalOf(options);
  if (!signal) return work();
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(abortError(signal));
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort);
    work()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/** An error as it travels between threads. */
export interface PlainError {
  name: string;
  code?: string;
  message: string;
  stack?: string | undefined;
}

export function serializeError(error: unknown): PlainError {
  if (error instanceof SluiceError) {
    return { name: 'SluiceError', code: error.code, message: error.message, stack: error.stack };
  }
  if (error instanceof Error) {
    return { name: error.name, message: error.message, stack: error.stack };
  }
  return { name: 'Error', message: String(error) };
}

export function deserializeError(plain: PlainError): Error {
  if (plain.name === 'AbortError') return new DOMException(plain.message, 'AbortError');
  const error = new SluiceError(plain.code ?? 'INTERNAL', plain.message);
  return error;
}
