// The Embind surface of the wasm engine, typed by hand: the one place where TypeScript and C++
// agree. One wasm instance holds one engine, or two of which one guesses for the other. No call
// blocks on I/O: the engine writes read requests into the fill queue (src/residency/fill_queue.h
// gives its layout) and step() says when it must wait for one.

import type { FinishReason, GeneratedToken, SamplingOptions } from '../protocol/types.js';
import type { FileRequestKind } from '../protocol/file-request.js';

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
  /** The pass is complete, its last token's logits are ready; the answer is, and says how. */
  Done = 2,
  /** See error(). */
  Failed = 3,
}

export const enum TokenizeFlags {
  AddSpecial = 1,
  ParseSpecial = 2,
  /** The text goes on from other text: no BOS, no space before its first word. */
  Continuation = 4,
  /** Between U+FDD0 and U+FDD1 no control token is recognized; the marks vanish. */
  LiteralSpans = 8,
}

export interface OpenOptions {
  /**
   * Bytes that weights, KV cache, activations, tokenizer and scratch may take together. 0: as much
   * as the model wants.
   */
  memoryBudget: number;
  /** Positions of the KV cache; 0: the model's own, at most 4096. */
  contextLength: number;
  /** What keys and values are kept as. */
  kvType: string;
  /**
   * What becomes of a full cache, and of one that forgets the first positions (-1: the engine's
   * choice) and the size.
   */
  kvPolicy: string | undefined;
  kvSinks: number;
  kvCapacity: number;
  /** From 1, the whole model, to 0: the least important layers are left out. */
  skipLayersRatio: number;
  /**
   * Clusters of the output head that are multiplied: a number, exact, off; empty: by the layers
   * skipped.
   */
  headClusters: string;
  /** 0: chosen by the engine. */
  threads: number;
  /** Kernel table by name; '': the best of this binary. */
  kernels: string;
  /** Answers may be bound to grammars: their memory is in the plan. */
  structuredOutput: boolean;
  /**
   * Answers are guessed ahead: from what their text repeats, and by the draft where there is one.
   */
  draft: boolean;
  /** Answers that are computed at once, each in a slot. */
  parallel: number;
  /** Bytes of the budget that reading files takes beside the memory. */
  held?: number;
  /**
   * The engine's threads have the model's files too (glue.d.ts) and may read units that a fill was
   * marked local for.
   */
  directReads?: boolean;
  /**
   * Bytes a second that weights would stream at, 0: unknown. inspect() then measures the kernels,
   * for tens of milliseconds, and predicts the speed.
   */
  storeBandwidth?: number;
}

/**
 * What an answer takes: sampling parameters by the names of SamplingOptions, where what is missing
 * takes defaults.
 */
export interface AnswerOptions extends Omit<SamplingOptions, 'seed'> {
  /** In decimal. */
  seed: string;
  /** Infinity: until the context is full. */
  maxTokens: number;
  stop: string[];
  logprobs?: number | undefined;
  skipSpecialTokens: boolean;
  cachePrompt: boolean;
  ignoreEos: boolean;
  constraint?: { kind: number; text: string } | undefined;
}

/** How texts are embedded. */
export interface EmbedOptions {
  /** 0 none, 1 mean, 2 CLS, 3 last, 4 rank; -1: the model's own. */
  pooling: number;
  normalize: boolean;
  /** 0: all. */
  dimensions: number;
}

/** What the model can do beside generating. */
export interface EmbedInfo {
  dimensions: number;
  /** Of its ranking head; 0: it has none. */
  scores: number;
  contextLength: number;
  /** It reads from left to right; else each token sees the whole text. */
  causal: boolean;
}

/** The state of an answer. */
export interface Answer {
  /** Why it ended; '' while it goes on. */
  finish: FinishReason | '';
  stopString: string;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  promptMs: number;
  /** 0: there was no token yet. */
  timeToFirstTokenMs: number;
  generateMs: number;
  inPrompt: boolean;
  /**
   * Tokens a second, of the prompt's that were computed and of the answer's; 0 where there were
   * none.
   */
  promptTokensPerSecond: number;
  tokensPerSecond: number;
}

/** Bytes of a state that travel at once; the binding has room for as many. */
export const kStageBytes = 1 << 16;

export interface FileRequest {
  want: FileRequestKind;
  file: number;
  /** A path or URL; of chosen files the name, and `choice` its number. */
  name: string;
  choice: number;
  offset: number;
  length: number;
}

export interface EngineBinding {
  // --- header: the engine says what it wants next of the model's files (header-loader.ts) --------
  /**
   * Begins with a model at this address, or among chosen files of these names, each followed by a
   * slash; where `described` is not 0, with a header that names as many files (io/directory.ts).
   */
  source(address: string, names: string, described: number): void;
  /** What is wanted next, until it is answered; null: error(), which is final. */
  need(): FileRequest | null;
  /** Answers Want.File: its size. false: error(). */
  opened(bytes: number): boolean;
  /** Address where `bytes` that answer Want.Bytes are written before supply(); 0: error(). */
  reserve(bytes: number): number;
  supply(): boolean;
  /** One more LoRA adapter for inspect(), open() or setAdapters(), a GGUF file. false: error(). */
  adapter(bytes: Uint8Array, scale: number): boolean;
  /**
   * In place of those before. No read may be under way. false: error(), and everything is as
   * before.
   */
  setAdapters(): boolean;
  forgetAdapters(): void;
  /**
   * The binding of a smaller model that guesses for this one, and goes with it: its header is read
   * before inspect() and open() of this one, which then are of both under one budget.
   */
  draft(): EngineBinding;
  /**
   * JSON of what the header says (architecture, sizes, types, chat template, special tokens) and of
   * the memory plan; needs no weights. Before open() only. On failure {"error": {code, message}}.
   */
  inspect(options: OpenOptions): string;
  /** Allocates everything within the budget. false: error(). */
  open(options: OpenOptions): boolean;
  error(): BindingError;

  // --- I/O ---------------------------------------------------------------------------------------
  /** Address of the FillQueue. */
  fillQueue(): number;
  /**
   * Lets the engine and its draft take over completed fills and push further requests (also done by
   * step).
   */
  poll(): void;
  /** The last step is blocked for weights of the draft. */
  drafting(): boolean;

  // --- text --------------------------------------------------------------------------------------
  /** Of UTF-8; `how`: the sum of TokenizeFlags. null: error(), after which nothing is held. */
  tokenize(text: Uint8Array, how: number): Int32Array | null;
  /** Of a query and a document, in UTF-8, as a reranker reads them. null: error(). */
  pairTokens(query: Uint8Array, document: Uint8Array): Int32Array | null;
  /** JSON: the texts that become control tokens, and must not where a user wrote them. */
  controlTexts(): string;
  /** Whole-sequence decode. */
  detokenize(tokens: Int32Array, special: boolean): string;

  // --- slots, as many as the plan's `parallel` ---------------------------------------------------
  /** Which slot all that follows is about: its sequence, its answer. */
  select(slot: number): void;

  // --- the sequence that a slot holds ------------------------------------------------------------
  /** Number of tokens in its KV cache, and the tokens. */
  position(): number;
  tokens(): Int32Array;
  /** Forgets them, and what is under way. */
  clear(): void;
  /** Begins a pass over these tokens, behind those there are. false: error(). */
  append(tokens: Int32Array): boolean;
  /**
   * Begins a pass over a text that the model reads whole, for the logits of its token `row`. false:
   * error().
   */
  appendWhole(tokens: Int32Array, row: number): boolean;
  /** Copy of the raw logits of the finished pass's last token. */
  logits(): Float32Array;
  /**
   * Begins the answer to `prompt`, which becomes the sequence; what the two share stays. false:
   * error().
   */
  begin(prompt: Int32Array, options: AnswerOptions): boolean;
  /**
   * Works on the answers of all slots, or on the pass: up to maxOps operations (about ten a layer);
   * returns a Step.
   */
  step(maxOps: number): number;
  /** Step.Done where the slot's answer has ended, Failed where by error(), else Progress. */
  outcome(): number;
  /** Ends the answer where it stands. */
  cancel(): void;
  /** The pieces that have become certain since the last call. */
  takePieces(): GeneratedToken[];
  /** How far the answer is. */
  answer(): Answer;
  // Its state, tokens included, in pieces through one place of kStageBytes:
  stateStage(): number;
  stateBytes(): number;
  /** Copies [offset, offset + length) of the state to the stage. false: error(). */
  readState(offset: number, length: number): boolean;
  /**
   * Empties the sequence, for a state of so many bytes; writeState() takes it from the stage, in
   * order. The last piece completes it. false: error(), and the sequence is empty.
   */
  beginRestore(bytes: number): boolean;
  writeState(length: number): boolean;

  // --- embeddings, for which the engine must hold no sequence ------------------------------------
  /** Begins texts of at most the context's tokens together, and where each ends. false: error(). */
  embed(tokens: Int32Array, ends: Int32Array, options: EmbedOptions): boolean;
  /** Begins the next pass over them, for step(): 1; 0 when all are done; -1: error(). */
  embedNext(): number;
  /** The rows of the pass that is done: of each text, or of each token where nothing is pooled. */
  embedResults(): Float32Array;
  /** JSON of EmbedInfo. */
  embedInfo(): string;

  // --- insight -----------------------------------------------------------------------------------
  /**
   * JSON: budget, weights, pinned, ring, kv, activations, tokenizer, scratch, draft, other, total,
   * heap.
   */
  memory(): string;
  /** JSON of counters: tokens, bytes per pass, stalls, compute and wait milliseconds. */
  stats(): string;
  /**
   * One byte a unit, in order: 0 absent, 1 loading, 2 resident in the ring, 3 pinned and there, 4
   * pinned, not there yet; +16 computing now.
   */
  unitStates(): Uint8Array;
  kernelName(): string;
  threads(): number;
  /**
   * Of engine.gpu.wasm: a GPU computes from now on (gpu/gpu.ts); JSON of what it has to
   * know.
   */
  attachGpu?(): string;
  /** Memory is for the weights of the layers behind so many first ones; false: see error(). */
  offloadLayers?(layers: number): boolean;
  delete(): void;
}

export interface EngineModule {
  Engine: new () => EngineBinding;
}
