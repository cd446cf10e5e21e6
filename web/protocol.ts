// The typed messages between the caller's thread, the engine's worker and the I/O worker. A call is
// { id, method, args } and is answered by { id, result } or { id, error }; events carry no id. Only
// structured-clone types travel. Also the public shapes that both sides share.

import type { PlainError } from './errors.js';
import type { CacheMode } from './remote-file.js';

/** What the model is read from, in the form that travels: a URL, files, or a path (Node). */
export type SourceSpec =
  | { kind: 'url'; url: string }
  | { kind: 'blob'; blobs: Blob[]; names: string[] }
  | { kind: 'path'; path: string };

export interface IoOptions {
  cache: CacheMode;
  /** Node: the directory of the store; undefined: no store. */
  cacheDir?: string | undefined;
  /** Overrides for tests. */
  tuning?: IoTuning | undefined;
}

/** Knobs of the fetcher and the store that tests turn; not part of the public API. */
export interface IoTuning {
  chunkSize?: number;
  streams?: number;
  streamBytes?: number;
  attempts?: number;
  retryMs?: number;
  retryMaxMs?: number;
  stallMs?: number;
}

/** Where the engine's wasm comes from; all optional. */
export interface WasmSource {
  url?: string | undefined;
  binary?: Uint8Array | ArrayBuffer | undefined;
  /** A compiled module, as passed between threads. */
  module?: WebAssembly.Module | undefined;
}

export interface LoadSpec {
  source: SourceSpec;
  io: IoOptions;
  wasm: WasmSource;
  /** Bytes; 0: choose. */
  memoryBudget: number;
  contextLength: number;
  /** 0: choose. */
  threads: number;
  kernels: string;
  /** False keeps all I/O in the engine's worker. */
  ioWorker: boolean;
}

/** Events while loading and working; at most ten a second, phase changes and warnings at once. */
export type ProgressEvent =
  /** The model's header is being read. */
  | { phase: 'header'; bytesLoaded: number; bytesTotal: number }
  /** The file is on its way from the network into the store (and the engine). */
  | {
      phase: 'download';
      bytesLoaded: number;
      bytesTotal: number;
      bytesPerSecond: number;
      /** Undefined until a rate is known. */
      secondsLeft?: number | undefined;
    }
  /** Weights are on their way from the network or the store into memory. */
  | {
      phase: 'weights';
      source: 'network' | 'store';
      bytesLoaded: number;
      bytesTotal: number;
      layer: number;
    }
  /** The engine accepts work; the download may still go on. */
  | { phase: 'ready'; bytesTotal: number }
  /** The whole file is stored. */
  | { phase: 'stored'; bytesTotal: number }
  /** The prompt is being read; `layer` of `layers` is computing. */
  | { phase: 'prefill'; tokens: number; layer: number; layers: number }
  | { phase: 'generate'; tokens: number; tokensPerSecond: number }
  /** Something degraded, with a stable code: QUOTA, STORE_BUSY, CORRUPT, NETWORK, SOURCE_CHANGED … */
  | { phase: 'warning'; code: string; message: string };

export interface SamplingOptions {
  /** 0: greedy. Default 0.8. */
  temperature?: number;
  /** 0: all. Default 40. */
  topK?: number;
  /** 1: off. Default 0.95. */
  topP?: number;
  /** 0: off. Default 0.05. */
  minP?: number;
  /** 1: off. */
  repeatPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  /** Tokens that the penalties look back at; -1: all. Default 64. */
  penaltyLastN?: number;
  /** The same seed gives the same text. Default: random. */
  seed?: number;
  /** Added to the logits of these token ids. */
  logitBias?: Record<number, number>;
}

export interface GenerateSpec extends SamplingOptions {
  prompt: string | Int32Array;
  maxTokens: number;
  stop: string[];
  /** Number of alternatives to report; undefined: no log-probabilities. */
  logprobs?: number | undefined;
  addBos: boolean;
  parseSpecial: boolean;
  /** Emit the text of control tokens too. */
  special: boolean;
  /** Keep what the KV cache already holds of this prompt. */
  reusePrefix: boolean;
  ignoreEos: boolean;
}

export interface TokenLogprob {
  token: number;
  text: string;
  logprob: number;
}

/** One generated token. Its text may be empty (half a character) and is never half a character. */
export interface Piece {
  text: string;
  token: number;
  /** Natural logarithm of the token's probability; when `logprobs` was asked for. */
  logprob?: number;
  topLogprobs?: TokenLogprob[];
}

export type FinishReason = 'stop' | 'length' | 'cancelled';

export interface GenerationResult {
  text: string;
  finishReason: FinishReason;
  /** The stop string that ended it. */
  stopString?: string | undefined;
  usage: {
    promptTokens: number;
    /** Prompt tokens that the KV cache already held. */
    cachedTokens: number;
    completionTokens: number;
    totalTokens: number;
  };
  timings: {
    promptMs: number;
    generateMs: number;
    timeToFirstTokenMs: number;
    promptTokensPerSecond: number;
    tokensPerSecond: number;
  };
}

/** Counters since the engine was loaded; rates of the generation under way or the last one. */
export interface EngineStats {
  promptTokens: number;
  cachedTokens: number;
  promptMs: number;
  generatedTokens: number;
  generateMs: number;
  timeToFirstTokenMs: number;
  tokensPerSecond: number;
  bytesFetched: number;
  bytesFromStore: number;
  /** Bytes of the model that are in the store, and its whole size. */
  bytesStored: number;
  bytesTotal: number;
  loadMs: number;
  /** Tokens in the KV cache. */
  position: number;
  threads: number;
  kernels: string;
  /** The engine's own counters. */
  engine: Record<string, number>;
}

/** Bytes by purpose. `heap` is what the wasm memory holds now, `budget` its hard maximum. */
export interface MemoryReport {
  budget: number;
  total: number;
  weights: number;
  pinned: number;
  ring: number;
  kv: number;
  activations: number;
  tokenizer: number;
  scratch: number;
  other: number;
  heap: number;
}

export type UnitState = 'absent' | 'loading' | 'resident' | 'pinned' | 'pinned-absent';

/** Bytes by purpose as planned from the header, and how the weights would be kept. */
export interface MemoryPlan {
  /** 0 when unlimited. */
  budget: number;
  total: number;
  /** The smallest budget for this context. */
  minimum: number;
  contextLength: number;
  batch: number;
  threads: number;
  weights: number;
  pinned: number;
  ring: number;
  slots: number;
  slotBytes: number;
  kv: number;
  activations: number;
  tokenizer: number;
  vectors: number;
  scratch: number;
  other: number;
  units: number;
  /** Bytes that every token reads from the store, once the pinned units are there. */
  bytesPerPass: number;
  embeddingHeld: boolean;
  /** Everything stays in memory. */
  resident: boolean;
}

/** What the header says of the model and how it would run; see Engine.inspect. */
export interface ModelInfo {
  architecture: string;
  name: string;
  parameters: number;
  /** Of all tensors. */
  bytes: number;
  /** Bytes by tensor type. */
  types: Record<string, number>;
  layers: number;
  embedding: number;
  feedForward: number;
  heads: number;
  kvHeads: number;
  headSize: number;
  vocabulary: number;
  trainedContext: number;
  experts: number;
  expertsUsed: number;
  tiedHead: boolean;
  files: number;
  tensors: number;
  macsPerToken: number;
  bytesPerToken: number;
  kernels: string;
  chatTemplate?: string;
  bosToken?: string;
  eosToken?: string;
  unkToken?: string;
  padToken?: string;
  plan: MemoryPlan;
}

export interface Snapshot {
  stats: EngineStats;
  memory: MemoryReport;
  units: Uint8Array;
}

// --- messages ---------------------------------------------------------------------------------

export interface Call {
  id: number;
  method: string;
  args: unknown[];
}
export type Reply = { id: number; result: unknown } | { id: number; error: PlainError };

export type WorkerEvent =
  | { event: 'progress'; progress: ProgressEvent }
  | { event: 'snapshot'; snapshot: Snapshot }
  | { event: 'piece'; generation: number; pieces: Piece[] }
  | { event: 'downloaded'; error?: PlainError | undefined }
  | { event: 'crash'; error: PlainError };

/** What the two kinds of workers and their owners talk through. */
export interface Port {
  postMessage(message: unknown, transfer?: Transferable[]): void;
  onmessage: ((event: { data: any }) => void) | null;
}

/** The owner's side of a worker. */
export interface WorkerPort extends Port {
  onerror: ((event: any) => void) | null;
  onmessageerror: ((event: any) => void) | null;
  terminate(): void;
}

/** The part that a worker plays; its name when it is started. */
export type Role = 'sluice-engine' | 'sluice-io' | 'sluice-thread';
