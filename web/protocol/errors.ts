// SluiceError, its stable codes, and helpers for call options and aborts. An aborted call rejects
// with the signal's reason or an AbortError, as in the web platform. Errors travel between threads
// as plain objects (serializeError), because structured clone drops the extra fields.

// Each comment of a code says what it means and how to fix it. web/scripts/errors.mjs makes the
// tables of docs/errors.md and of the API reference from them.

import { withoutSecrets } from './address.js';

/** Every code that a {@link SluiceError} can have. Codes never change meaning. */
export type ErrorCode =
  // Arguments and calls
  /** An argument or option cannot be used. Fix: correct what the message names. */
  | 'INVALID_ARGUMENT'
  /** The engine or session was disposed of. Fix: load the model or create the session again. */
  | 'DISPOSED'
  /**
   * The platform or the model lacks what was asked for, such as workers, a WebGPU adapter or an
   * operation on the GPU. Fix: omit the option that the message names.
   */
  | 'NOT_SUPPORTED'
  /**
   * This build of the engine omits a mode or type that the options or the file need. Fix: use a
   * complete build; with `wasmUrl`, an `engine.*-full.wasm`.
   */
  | 'NOT_IN_BUILD'
  /** The engine reached an unexpected state, which is a bug. Fix: report it with the message. */
  | 'INTERNAL'
  // Model files
  /** A model file, one of its parts or another file is not there. Fix: check the path or URL. */
  | 'NOT_FOUND'
  /**
   * The file is not a GGUF file; often it is a web page about the model. Fix: use the address of
   * the file itself.
   */
  | 'NOT_GGUF'
  /** The file ends before its header says. Fix: download or copy it again. */
  | 'TRUNCATED'
  /** A count, length, shape or offset in the header is impossible. Fix: get an intact file. */
  | 'BAD_HEADER'
  /** This version of GGUF or QSF is not supported. Fix: convert the model with a current tool. */
  | 'UNSUPPORTED_VERSION'
  /**
   * The model's family, or something its metadata asks for, is not supported. Fix: choose a model
   * of a supported family.
   */
  | 'UNSUPPORTED_ARCHITECTURE'
  /** A tensor's quantization type is not supported. Fix: choose a file of a supported type. */
  | 'UNSUPPORTED_TYPE'
  /** The file lacks a tensor that its architecture needs. Fix: convert or download it again. */
  | 'MISSING_TENSOR'
  /** A tensor's shape contradicts the metadata. Fix: convert or download the file again. */
  | 'BAD_SHAPE'
  /** A weight is NaN or infinite. Fix: convert or download the file again. */
  | 'BAD_WEIGHTS'
  /** The vocabulary or the merges contradict themselves. Fix: convert the model again. */
  | 'BAD_TOKENIZER'
  /** The tokenizer or its pre-tokenizer is not supported. Fix: choose another model. */
  | 'UNSUPPORTED_TOKENIZER'
  // Memory
  /**
   * The memory budget, or `gpuBudget`, is too small for this model and context. Fix: raise it to
   * the size that the message names, or shorten the context.
   */
  | 'BUDGET_TOO_SMALL'
  /**
   * The platform refused memory, or the rest of the budget is too small for this call. Fix: close
   * other programs or tabs, or load with another budget.
   */
  | 'OUT_OF_MEMORY'
  /**
   * The GPU is lost with the only KV cache, and `memoryBudget` has no room for this sequence. Fix: set a
   * larger one with `setMemoryBudget()`; the sequence is recomputed from its tokens.
   */
  | 'DEVICE_LOST'
  // Prompt and context
  /** There are no tokens to process. Fix: pass a prompt that is not empty. */
  | 'PROMPT_EMPTY'
  /** The prompt is longer than the context. Fix: shorten it, or load with a longer context. */
  | 'PROMPT_TOO_LONG'
  /**
   * The context has no position left. Fix: load with a longer context, start a new session, or use
   * a KV cache policy that evicts.
   */
  | 'CONTEXT_FULL'
  /**
   * A sequence with a picture must be computed again, and the picture was not passed. Fix: pass the
   * whole prompt with its pictures.
   */
  | 'MEDIA_MISSING'
  // Network, files and cache
  /** The server answered with an HTTP error status. Fix: check the URL and the access rights. */
  | 'HTTP_STATUS'
  /** No connection, or it broke and all retries failed. Fix: check network, address and CORS. */
  | 'NETWORK'
  /**
   * The server cannot serve byte ranges, and nothing else can hold the file. Fix: use another host,
   * or a cache with space for the file.
   */
  | 'NO_RANGE_SUPPORT'
  /** The file on the server changed while it was in use. Fix: load the model again. */
  | 'SOURCE_CHANGED'
  /**
   * Reading or writing a file failed, or a server's port is taken. Fix: check path, permissions,
   * free space and port.
   */
  | 'IO'
  /**
   * Data is damaged: a checksum is wrong, logits are NaN, or a saved state belongs to another
   * model. Fix: fetch the file again, or discard the saved state.
   */
  | 'CORRUPT'
  /** Another tab, engine or process uses this entry of the model cache. Fix: close it there. */
  | 'CACHE_LOCKED'
  /** The browser's storage for this site is full. Fix: delete cached models or saved sessions. */
  | 'QUOTA'
  // Structured output and chat templates
  /** A grammar, pattern or schema cannot be read. Fix: correct it at the position named. */
  | 'GRAMMAR_SYNTAX'
  /** A grammar rule can begin with itself. Fix: rewrite the rule as a repetition. */
  | 'GRAMMAR_LEFT_RECURSION'
  /** The grammar needs too many states. Fix: simplify it, or bound its repetitions. */
  | 'GRAMMAR_TOO_LARGE'
  /**
   * The JSON schema asks for something that cannot be enforced. Fix: remove the keyword that the
   * message points to.
   */
  | 'SCHEMA_UNSUPPORTED'
  /**
   * The chat template cannot be read, raised an error, or omits a message. Fix: check the messages,
   * or the model.
   */
  | 'CHAT_TEMPLATE'
  // Files and workers of the JavaScript package
  /** The worker script cannot be started. Fix: serve worker.js, or pass its `workerUrl`. */
  | 'WORKER_LOAD'
  /** The engine's WebAssembly file cannot be loaded. Fix: serve it, or pass its `wasmUrl`. */
  | 'WASM_LOAD'
  /** Another file of the package cannot be loaded. Fix: copy it beside the script. */
  | 'MODULE_LOAD'
  /** The engine's worker crashed or was ended. Fix: load the model again. */
  | 'WORKER_LOST';

/**
 * Codes of warnings (`onProgress`, phase `warning`). A warning can also have an error code. Work
 * continues after a warning.
 */
export type WarningCode =
  /** The GPU is lost; the CPU continues at the same token. Fix: nothing, or load again later. */
  | 'DEVICE_LOST'
  /** The CPU computes something that the GPU path does not support. Fix: nothing. */
  | 'CPU_FALLBACK'
  /** A session's context is 90 % full. Fix: begin a new one, load with a larger `contextLength`. */
  | 'CONTEXT_NEARLY_FULL'
  /** The memory budget made the context shorter than the default. Fix: set `contextLength`. */
  | 'CONTEXT_REDUCED'
  /** The model has no chat template, so ChatML is used. Fix: choose a model tuned for chat. */
  | 'NO_CHAT_TEMPLATE';

/** Receives warnings. */
export type Warn = (code: ErrorCode | WarningCode, message: string) => void;

/** An error with a stable `code` and a message that says what is wrong and what to do. */
export class SluiceError extends Error {
  /** 'SluiceError'. */
  override readonly name = 'SluiceError';

  /**
   * `instanceof` also accepts errors of other entries of the package and of other realms.
   *
   * @example
   * ```ts
   * await Engine.load(model).catch((error: unknown) => {
   *   if (error instanceof SluiceError) console.log(`${error.message} [${error.code}]`);
   *   else throw error; // an abort, or a bug in this code
   * });
   * ```
   */
  static override [Symbol.hasInstance](value: unknown): boolean {
    const error = value as SluiceError | null | undefined;
    return error?.name === 'SluiceError' && typeof error.code === 'string';
  }
  /** Stable code; see ErrorCode. */
  readonly code: ErrorCode;

  /**
   * Creates an error with this code and message. `options.cause` is the underlying error.
   *
   * @example
   * ```ts
   * const cause = new Error('The connection was closed.');
   * const error = new SluiceError('NETWORK', 'The model cannot be downloaded.', { cause });
   * console.log(error.code, error.message);
   * ```
   */
  constructor(code: ErrorCode | (string & {}), message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code as ErrorCode;
  }
}

/** Throws INVALID_ARGUMENT. */
export function invalid(message: string): never {
  throw new SluiceError('INVALID_ARGUMENT', message);
}

/** Throws MODULE_LOAD for a file of the package that is loaded on demand. */
export const moduleError =
  (file: string) =>
  (cause: Error): never => {
    throw new SluiceError(
      'MODULE_LOAD',
      `The package's ${file} cannot be loaded: copy it beside its other files (${cause.message}).`,
      { cause },
    );
  };

/** The signal's reason if it is aborted and has one, otherwise the platform's AbortError. */
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

/** Options of every asynchronous call. */
export interface CallOptions {
  /** Rejects the promise immediately when aborted. The engine finishes work that has started. */
  signal?: AbortSignal | undefined;
}

/** The `signal` of a call's options. Throws INVALID_ARGUMENT if either has the wrong type. */
export function signalOf(options: object = {}): AbortSignal | undefined {
  if (typeof options !== 'object' || options === null) invalid('Options must be an object.');
  const signal = (options as CallOptions).signal ?? undefined;
  if (signal && typeof signal.addEventListener !== 'function')
    invalid('signal must be an AbortSignal.');
  return signal;
}

/**
 * Throws INVALID_ARGUMENT for an option that is not in `names` (separated by spaces). The message
 * suggests the name that shares the most letter pairs with it, or lists all names.
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
      `'${name}' is not an option of ${call}: ` +
        `${near ? `use ${near}` : `it takes ${list.join(', ')}`}.`,
    );
  }
}

function pairs(name: string): string[] {
  const letters = name.toLowerCase().replace(/[^a-z]/g, '');
  return Array.from({ length: letters.length - 1 }, (_, i) => letters.slice(i, i + 2));
}

/**
 * Appends the stack of `at` to an error of this package, unless it has a part of it: an error of the
 * worker, or of a later step, does not know who called.
 */
export function traced(error: unknown, at: Error): unknown {
  const frames = at.stack?.split('\n').filter((frame) => !/^Error|node.internal/.test(frame));
  frames?.shift(); // of the function that captured it
  if (error instanceof SluiceError && !frames?.some((frame) => error.stack?.includes(frame)))
    error.stack += `\n${frames?.join('\n')}`;
  return error;
}

/**
 * Result of `work`, or a rejection as soon as the signal aborts. `work` itself is not stopped. From
 * its call of `commit` on, the signal has no effect.
 */
export async function abortable<T>(
  options: CallOptions | undefined,
  work: (commit: () => void) => Promise<T>,
): Promise<T> {
  onlyKnown('this call', options, 'signal');
  const signal = signalOf(options);
  const at = new Error();
  const run = (commit = (): void => {}): Promise<T> => {
    const over = work(commit);
    over.catch((error) => traced(error, at)); // before any other reaction
    return over;
  };
  if (!signal) return run();
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(abortError(signal));
    if (signal.aborted) return onAbort();
    const commit = (): void => signal.removeEventListener('abort', onAbort);
    signal.addEventListener('abort', onAbort);
    run(commit).then(resolve, reject).finally(commit);
  });
}

/** A serialized error, for postMessage. */
export interface PlainError {
  name: string;
  code?: string;
  message: string;
  cause?: PlainError | undefined;
}

export function serializeError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) };
  const { name, message, cause } = error;
  const { code } = error as { code?: unknown };
  return {
    name,
    message: error instanceof SluiceError ? message : withoutSecrets(message),
    ...(typeof code === 'string' && { code }),
    ...(cause instanceof Error && { cause: serializeError(cause) }),
  };
}

export function deserializeError(plain: PlainError): Error {
  if (plain.name === 'AbortError') return new DOMException(plain.message, 'AbortError');
  const error = new SluiceError(
    (plain.name === 'SluiceError' && plain.code) || 'INTERNAL',
    plain.message,
    causeOf(plain),
  );
  error.stack = error.stack?.replace(/\n    at .*/s, ''); // of a message handler; see traced()
  return error;
}

/**
 * What caused the error in the other thread: an error with the same name and code. Its stack has no
 * frames, because those of this thread only receive it.
 */
function causeOf({ cause }: PlainError): { cause?: unknown } {
  if (!cause) return {};
  const { name, message, code } = cause;
  const Type = name === 'TypeError' ? TypeError : Error; // fetch() throws the former
  const stack = `${name}: ${message}`;
  const error = Object.assign(new Type(message, causeOf(cause)), { name, stack });
  return { cause: code ? Object.assign(error, { code }) : error };
}
