// The Embind surface of the wasm engine, typed by hand: the one place where TypeScript and C++ agree.
// One wasm instance holds one engine. No call blocks on I/O: the engine writes read requests into the
// fill queue (src/residency/fill_queue.h gives its layout) and step() says when it must wait for one.

/** A failed call: stable code and one sentence. */
export interface BindingError {
  code: string;
  message: string;
}

export const enum Step {
  /** A unit that the next operation needs is not there yet: serve the fill queue, call again. */
  Blocked = 0,
  /** Worked up to its limit; call again. */
  Progress = 1,
  /** The pass is complete; logits of its last token are ready. */
  Done = 2,
  /** See error(). */
  Failed = 3,
}

export interface OpenOptions {
  /** Bytes that weights, KV cache, activations, tokenizer and scratch may take together. 0: as much as the model wants. */
  memoryBudget: number;
  /** Positions of the KV cache; 0: the model's own, at most 4096. */
  contextLength: number;
  /** 0: chosen by the engine. */
  threads: number;
  /** Kernel table by name; '': the best of this binary. */
  kernels: string;
  /** The engine's threads have the model's files too (glue.d.ts) and may read units that a fill was marked local for. */
  ownReads?: boolean;
  /** Bytes a second that weights would stream at, 0: unknown. inspect() then measures the kernels, for tens of milliseconds, and predicts the speed. */
  storeBandwidth?: number;
}

export const enum Want {
  /** Open the file `name`, which is number `file` of the model: opened(). */
  File = 0,
  /** `length` bytes from `offset` of file `file`. */
  Bytes = 1,
  /** All of the small file `name`, of at most `length` bytes. */
  Text = 2,
  /** Nothing: the header is there. */
  Done = 3,
}

export interface Need {
  want: Want;
  file: number;
  /** A path or URL; of chosen files the name, and `choice` its number. */
  name: string;
  choice: number;
  offset: number;
  length: number;
  /** It may be absent. */
  optional: boolean;
}

export interface EngineBinding {
  // --- header: the engine says what it wants next of the model's files (web/opening.ts) ---------
  /** Begins with a model at this address, or among chosen files of these names, each followed by a slash. */
  source(address: string, names: string): void;
  /** What is wanted next, until it is answered; null: error(), which is final. */
  need(): Need | null;
  /** Answers Want.File: its size. false: error(). */
  opened(bytes: number): boolean;
  /** Answers Want.Text where there is no such file; `why` says how that is known. false: error(). */
  absent(why: string): boolean;
  /** Address where `bytes` that answer Want.Bytes or Want.Text are written before supply(); 0: error(). */
  reserve(bytes: number): number;
  supply(): boolean;
  /** The content of one more file, after the last one, that was computed; mostly empty. */
  synthesizedFile(): Uint8Array;
  /** JSON of what the header says (architecture, sizes, types, chat template, special tokens) and of the memory plan; needs no weights. Before open() only. On failure {"error": {code, message}}. */
  inspect(options: OpenOptions): string;
  /** Allocates everything within the budget. false: error(). */
  open(options: OpenOptions): boolean;
  error(): BindingError;

  // --- I/O ---------------------------------------------------------------------------------------
  /** Address of the FillQueue. */
  fillQueue(): number;
  /** Lets the engine take over completed fills and push further requests (also done by step). */
  pump(): void;

  // --- text ----------------------------------------------------------------------------------------
  tokenize(text: string, addBos: boolean, parseSpecial: boolean): Int32Array;
  /** Whole-sequence decode. */
  detokenize(tokens: Int32Array, special: boolean): string;
  /**
   * Streaming decode of generated text: what became complete with this token. The text continues a
   * prompt, so a leading space stays. decodeFinish() ends it and starts afresh.
   */
  decodePush(token: number, special: boolean): string;
  decodeFinish(): string;
  isEndOfGeneration(token: number): boolean;

  // --- one timeline ----------------------------------------------------------------------------------
  /** Tokens in the KV cache. */
  position(): number;
  /** Forgets all after the first n tokens (also aborts a pass under way). */
  rewind(n: number): void;
  /** Begins a pass over these tokens, appended at position(). false: error(). */
  prefill(tokens: Int32Array): boolean;
  /** Runs up to maxOps operations (about ten a layer); returns a Step. */
  step(maxOps: number): number;
  /**
   * Parameters of the sampler; resets its random state. JSON with the names of sample::Params
   * (temperature, top_k, …, seed a whole number below 2^53, logit_bias [[token, bias]…]); missing
   * fields take defaults. false: error().
   */
  setSampler(paramsJson: string): boolean;
  /** Chooses the next token from the logits of the finished pass, by the sampler. < 0: error(). */
  sample(): number;
  /** JSON [[token, logprob]…] of the n likeliest and, last, of `chosen`, from the raw logits. */
  topLogprobs(n: number, chosen: number): string;
  /** Copy of the raw logits of the finished pass's last token. */
  logits(): Float32Array;
  /** Serialised KV cache of the first position() tokens, and its way back. */
  saveState(): Uint8Array;
  restoreState(state: Uint8Array): boolean;

  // --- insight -----------------------------------------------------------------------------------------
  /** JSON: budget, weights, pinned, ring, kv, activations, tokenizer, scratch, other, total, heap. */
  memory(): string;
  /** JSON of counters: tokens, bytes per pass, stalls, compute and wait milliseconds. */
  stats(): string;
  /** One byte a unit, in order: 0 absent, 1 loading, 2 resident in the ring, 3 pinned and there, 4 pinned, not there yet; +16 computing now. */
  unitStates(): Uint8Array;
  kernelName(): string;
  threads(): number;
  delete(): void;
}

export interface EngineModule {
  Engine: new () => EngineBinding;
}
