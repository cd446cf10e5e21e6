// Hand-written types of the Embind interface of the wasm engine (src/bindings). A wasm instance
// holds one engine, or a model and its draft model. No call blocks on I/O: the engine writes read
// requests into the fill queue (layout in src/residency/fill_queue.h), and step() returns Blocked
// when it must wait for one.

import type { FinishReason, GeneratedToken, SamplingOptions } from '../protocol/types.js';
import type { EngineSpec } from '../protocol/messages.js';
import type { FileRequestKind } from '../protocol/file-request.js';

/** Error of a failed call: stable code and a message of one sentence. */
export interface BindingError {
  code: string;
  message: string;
}

export const enum Step {
  /** The next operation needs a unit that is missing: serve the fill queue, then call again. */
  Blocked = 0,
  /** The limit of operations was reached; call again. */
  Progress = 1,
  /** The forward pass is complete and the logits are ready, or the generation has ended. */
  Done = 2,
  /** See error(). */
  Failed = 3,
}

export const enum TokenizeFlags {
  AddSpecial = 1,
  ParseSpecial = 2,
  /** The text continues earlier text: no BOS, no space before its first word. */
  Continuation = 4,
  /** Control tokens are not parsed between U+FDD0 and U+FDD1; the marks are removed. */
  LiteralSpans = 8,
}

export interface OpenOptions extends EngineSpec {
  /** Bytes for weights, KV cache, activations, tokenizer and scratch together. 0: unlimited. */
  memoryBudget: number;
  /** 0: chosen by the engine. */
  threads: number;
  /** How many a budget gets that is too small for `threads`; 0: no fewer. */
  minThreads?: number;
  /** The budget is at least so many bytes, whatever the plan needs. */
  minBudget?: number;
  /** Bytes of the budget that reading files takes, outside the wasm memory. */
  held?: number;
  /**
   * The engine's threads have opened the model's files (runtime.ts) and may read units whose fill is
   * marked local.
   */
  directReads?: boolean;
  /** Only in engine.gpu*.wasm: the GPU has the KV cache, and memory holds none. */
  kvOnGpu?: boolean;
  /**
   * Bytes per second at which weights would stream; 0: unknown. If set, inspect() times the kernels
   * for tens of milliseconds and predicts the speed.
   */
  storeBandwidth?: number;
}

/** Options of a generation. Sampling parameters have the names and defaults of SamplingOptions. */
export interface AnswerOptions extends Omit<SamplingOptions, 'seed'> {
  /** Decimal digits. */
  seed: string;
  /** Infinity: until the context is full. */
  maxTokens: number;
  stop: string[];
  stopTokenIds: Int32Array;
  logprobs?: number | undefined;
  postSamplingProbs?: boolean | undefined;
  skipSpecialTokens: boolean;
  cachePrompt: boolean;
  ignoreEos: boolean;
  constraint?: { kind: number; text: string } | undefined;
}

/** Options of an embedding request. */
export interface EmbedOptions {
  /** 0 none, 1 mean, 2 CLS, 3 last, 4 rank; -1: the model's own. */
  pooling: number;
  normalize: boolean;
  /** 0: all. */
  dimensions: number;
}

/** What the model offers for embeddings and reranking. */
export interface EmbedInfo {
  /** The model's own, as in EmbedOptions. */
  pooling: number;
  /** Values per embedding. */
  dimensions: number;
  /** Values per document of the ranking head; 0: the model has none. */
  scores: number;
  contextLength: number;
  /** Causal attention; otherwise bidirectional. */
  causal: boolean;
}

/** Progress of a generation. */
export interface Answer {
  /** Finish reason; '' while it is running. */
  finish: FinishReason | '';
  stopString: string;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  promptMs: number;
  /** 0: there is no token yet. */
  timeToFirstTokenMs: number;
  generateMs: number;
  inPrompt: boolean;
  /** Rates of prefill (without cached tokens) and of decoding; 0 if there were no tokens. */
  promptTokensPerSecond: number;
  tokensPerSecond: number;
}

/** Chunk size in bytes for saving and restoring states; the binding's staging buffer. */
export const kStageBytes = 1 << 16;

export interface FileRequest {
  want: FileRequestKind;
  file: number;
  /** A path or URL. For files that the user chose: the file name, with `choice` as its index. */
  name: string;
  choice: number;
  offset: number;
  length: number;
}

export interface EngineBinding {
  // --- header: the engine requests parts of the model's files (header-loader.ts) -----------------
  /**
   * Starts with a model at this address, or with chosen files: their names, each followed by a
   * slash. If `described` is not 0, a header that names that many files will be supplied
   * (io/directory.ts).
   */
  source(address: string, names: string, described: number): void;
  /** The pending request, the same until it is answered. null: error(), which is final. */
  need(): FileRequest | null;
  /** Answers FileRequestKind.File with the file's size. false: error(). */
  opened(bytes: number): boolean;
  /** Address to write the `bytes` of FileRequestKind.Bytes to before supply(). 0: error(). */
  reserve(bytes: number): number;
  supply(): boolean;
  /** Adds a LoRA adapter (a GGUF file) for inspect(), open() or setAdapters(). false: error(). */
  adapter(bytes: Uint8Array, scale: number): boolean;
  /**
   * Replaces the adapters in use. No read may be pending. false: error(), and everything is as
   * before.
   */
  setAdapters(): boolean;
  forgetAdapters(): void;
  /** Sets memory aside for constraints. No generation and no read may be pending. false: error(). */
  reserveStructuredOutput(): boolean;
  /**
   * The binding of the draft model, which this one owns. Its header is read before inspect() and
   * open() of this one; both models then share one budget.
   */
  draft(): EngineBinding;
  /**
   * JSON of the metadata (architecture, sizes, types, chat template, special tokens) and the memory
   * plan. Needs no weights. Only before open(). On failure {"error": {code, message}}.
   */
  inspect(options: OpenOptions): string;
  /** Allocates all memory within the budget. false: error(). */
  open(options: OpenOptions): boolean;
  error(): BindingError;

  // --- I/O ---------------------------------------------------------------------------------------
  /** Address of the FillQueue. */
  fillQueue(): number;
  /**
   * Lets the engine and its draft model take over completed fills and push further requests.
   * step() also does this.
   */
  poll(): void;
  /** The last step is blocked on weights of the draft model. */
  drafting(): boolean;

  // --- text --------------------------------------------------------------------------------------
  /**
   * Token ids of UTF-8; `how`: sum of TokenizeFlags. null: error(), and nothing stays allocated.
   */
  tokenize(text: Uint8Array, how: number): Int32Array | null;
  /** Token ids of a query and a document, in UTF-8, in a reranker's format. null: error(). */
  pairTokens(query: Uint8Array, document: Uint8Array): Int32Array | null;
  /**
   * JSON array: ids and texts of control tokens, one behind another: the text must be escaped in
   * user input.
   */
  controlTokens(): string;
  /** Bytes of a token, or a control token's name. */
  tokenBytes(token: number): Uint8Array;
  /** Decodes a whole sequence. */
  detokenize(tokens: Int32Array, special: boolean): string;

  // --- slots, as many as the plan's `parallel` ---------------------------------------------------
  /** Selects the slot whose sequence and generation the calls below refer to. */
  select(slot: number): void;

  // --- the sequence in a slot --------------------------------------------------------------------
  /** Number of tokens in its KV cache, and the tokens. */
  position(): number;
  tokens(): Int32Array;
  /** Empties the sequence and drops work in progress. */
  clear(): void;
  /** Starts a forward pass that appends these tokens. false: error(). */
  append(tokens: Int32Array): boolean;
  /**
   * Starts a forward pass with bidirectional attention over these tokens, for the logits of token
   * `row`. false: error().
   */
  appendWhole(tokens: Int32Array, row: number): boolean;
  /** Copy of the raw logits of the last token of the finished pass. */
  logits(): Float32Array;
  /**
   * Starts a generation. The sequence becomes `prompt`; the common prefix stays in the KV cache.
   * false: error().
   */
  begin(prompt: Int32Array, options: AnswerOptions): boolean;
  /**
   * Runs the generations of all slots, or the forward pass, for up to maxOps operations (about ten
   * per layer). Returns a Step.
   */
  step(maxOps: number): number;
  /** Done if the slot's generation has ended, Failed if with error(), otherwise Progress. */
  outcome(): number;
  /** Ends the generation at its current token. */
  cancel(): void;
  /** Tokens that became ready since the last call. */
  takePieces(): GeneratedToken[];
  /** Progress of the generation. */
  answer(): Answer;
  /**
   * Which bytes of the files tell models with equal headers apart: of every tensor, or only few.
   * Used by fingerprint.ts.
   */
  weightSamples(all: boolean): Uint8Array;
  /** Adds the next sample, from the stage, to the engine's fingerprint. */
  identify(length: number): void;
  // State of the sequence, tokens included, in chunks through a buffer of kStageBytes:
  stateStage(): number;
  stateBytes(): number;
  /** Copies [offset, offset + length) of the state to the stage. false: error(). */
  readState(offset: number, length: number): boolean;
  /**
   * Empties the sequence and prepares for a state of `bytes` bytes. writeState() takes the chunks
   * from the stage, in order; the last one completes it. false: error(), and the sequence is empty.
   */
  beginRestore(bytes: number): boolean;
  writeState(length: number): boolean;

  // --- embeddings; the selected slot must be empty -----------------------------------------------
  /**
   * Starts a batch of inputs: their tokens, at most a context's length in total, and where each
   * input ends. false: error().
   */
  embed(tokens: Int32Array, ends: Int32Array, options: EmbedOptions): boolean;
  /** Starts the next forward pass, for step(): 1. All passes are done: 0. error(): -1. */
  embedNext(): number;
  /** Rows of the finished pass: one per input, or one per token without pooling. */
  embedResults(): Float32Array;
  /** JSON of EmbedInfo. */
  embedInfo(): string;

  // --- statistics --------------------------------------------------------------------------------
  /** JSON of the fields of MemoryReport that the engine knows. */
  memory(): string;
  /** JSON of counters: tokens, bytes per pass, stalls, compute and wait milliseconds. */
  stats(): string;
  /**
   * One byte per unit, in order: 0 absent, 1 loading, 2 resident in the stream buffer, 3 pinned, 4
   * pinned but not loaded yet; +16 while computing.
   */
  unitStates(): Uint8Array;
  kernelName(): string;
  threads(): number;
  /**
   * Only in engine.gpu*.wasm: from now on the GPU computes (gpu/gpu.ts). Returns JSON of the
   * program that it runs.
   */
  attachGpu?(): string;
  /** Keeps no weights in memory for the first `layers` layers. false: error(). */
  offloadLayers?(layers: number): boolean;
  /** What memory lacks of the selected sequence's recurrent states (gpu/recurrent-states.ts); 0: nothing. */
  missingStates?(): number;
  delete(): void;
}

/** Pictures for an engine (src/bindings/pictures). Only in the full engines. false: error() of it. */
export interface PicturesBinding {
  /** Reads the projector's header. */
  header(): EngineBinding;
  /** After both headers were read, before inspect() and open() of the engine. */
  open(options: PicturesOptions): boolean;
  /** After open() of the engine. */
  attach(): void;
  /** JSON of the tokens and bytes that a picture takes, or {"error": {code, message}}. */
  cost(width: number, height: number): string;

  // --- a prompt, in this order; no read of the model's weights may be pending
  /** Address for the RGB bytes of a picture. 0: error(). */
  room(width: number, height: number): number;
  add(): boolean;
  /** In place of the two: address for the bytes of a GIF or BMP file. 0: error(). */
  file(length: number): number;
  addFile(): boolean;
  /**
   * Tokens of the prompt, in which each <__media__> is the next picture. `known`: tokens of its
   * beginning, with its first `images` pictures, and behind them the text `rest`. null: error().
   */
  layout(
    prompt: Uint8Array,
    how: number,
    known: Int32Array,
    images: number,
    rest: Uint8Array,
  ): Int32Array | null;
  /** Begins to encode what the selected slot does not hold; without `reuse`, everything. */
  begin(reuse: boolean): boolean;
  /**
   * The two parts of begin(), only used with a GPU: between them it encodes as many inputs as it can,
   * each described at gpuInput() (web/gpu/pictures/input.ts). 0: none is left, or it does not fit.
   */
  prepare(reuse: boolean): boolean;
  beginRest(): boolean;
  gpuInput(): number;
  /** The rows of that input are in memory. */
  markEncoded(): void;
  /** Returns a Step. */
  step(): number;
  /** Address of the encoder's FillQueue; 0: there is nothing to encode. */
  queue(): number;
  /** Gives the encoder's memory back. Its queue must not be served any more. */
  closeEncoder(): boolean;
  /** Whether none of the encoder's reads are pending; otherwise end() must wait. */
  idle(): boolean;
  /** After the prompt of the selected slot's generation: gives the pictures' memory back. */
  release(): boolean;
  /** Gives the pictures' memory back, and ends the selected slot's work. */
  end(): boolean;
}

export interface PicturesOptions {
  kernels: string;
  /** Limits of the tokens of a picture; 0: the projector's own. */
  minTokens: number;
  maxTokens: number;
}

export interface EngineModule {
  Engine: new () => EngineBinding;
  Pictures?: new (engine: EngineBinding) => PicturesBinding;
}
