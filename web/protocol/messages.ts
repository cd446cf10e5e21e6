// The typed messages between the caller's thread, the engine's worker and the I/O worker. A call is
// { id, method, args } and is answered by { id, result } or { id, error }; events carry no id. Only
// structured-clone types travel.

import type { PlainError } from './errors.js';
import type {
  CacheMode,
  GpuKernels,
  Device,
  EngineStats,
  MemoryReport,
  GeneratedToken,
  ProgressEvent,
  SamplingOptions,
} from './types.js';

/** What the model is read from, in the form that travels: a URL, files, or a path (Node). */
export type SourceSpec =
  | { kind: 'url'; url: string }
  | { kind: 'blob'; blobs: Blob[]; names: string[] }
  | { kind: 'path'; path: string };

/** A LoRA adapter. */
export interface AdapterSpec {
  name: string;
  data: Blob;
  scale: number;
}

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
  /** How long the worker's script may take until it says that it is there. */
  greetMs?: number;
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
  kvType: string;
  kvPolicy: string | undefined;
  kvSinks: number;
  kvCapacity: number;
  skipLayersRatio: number;
  headClusters: string;
  /** 0: choose. */
  threads: number;
  kernels: string;
  structuredOutput: boolean;
  draft: boolean;
  parallel: number;
  /** Of a smaller model that guesses. */
  draftSource?: SourceSpec | undefined;
  lora: AdapterSpec[];
  device: Device;
  /** Bytes on the GPU; 0: choose. */
  gpuBudget: number;
  /**
   * First layers that are the GPU's, Infinity: as many as fit; undefined: all, and weights stream.
   */
  gpuLayers: number | undefined;
  /** Tokens of the smallest pass that is the GPU's; Infinity: none is. */
  gpuMinBatch: number;
  /**
   * What the GPU's kernels are to do, where it can, instead of what is measured: tests try each
   * way.
   */
  gpuKernels?: GpuKernels;
  /** False keeps all I/O in the engine's worker. */
  ioWorker: boolean;
}

export interface GenerateSpec extends Omit<SamplingOptions, 'seed'> {
  /**
   * 0: the engine's own; a session's; below: whichever of the engine's knows most of the prompt.
   */
  sequence: number;
  /** In decimal. */
  seed: string;
  prompt: string | Int32Array;
  maxTokens: number;
  stop: string[];
  /** Number of alternatives to report; undefined: no log-probabilities. */
  logprobs?: number | undefined;
  addSpecial: boolean;
  parseSpecial: boolean;
  /** Stretches of the prompt between U+FDD0 and U+FDD1 hold no control tokens. */
  literalSpans: boolean;
  /** The prompt goes on from other text. */
  continuation: boolean;
  /** Control tokens have no text. */
  skipSpecialTokens: boolean;
  /** Keep what the KV cache already holds of this prompt. */
  cachePrompt: boolean;
  ignoreEos: boolean;
  constraint?: Constraint | undefined;
}

/**
 * What an answer is bound to: GBNF, a regular expression, one of a JSON list of texts, any JSON, or
 * a JSON Schema.
 */
export interface Constraint {
  kind: 0 | 1 | 2 | 3 | 4;
  text: string;
}

/** How texts are embedded, by the numbers of the engine. */
export interface EmbedSpec {
  pooling: number;
  normalize: boolean;
  /** 0: all. */
  dimensions: number;
  /** Of a reranker, which reads each text behind this one. */
  query?: string | undefined;
}

/** Rows of `width` values: `rows[i]` of text i. */
export interface Embedded {
  values: Float32Array;
  width: number;
  rows: Int32Array;
  /** Of all texts. */
  tokens: number;
}

/** How a text becomes tokens. */
export type TokenizeSpec = Pick<
  GenerateSpec,
  'addSpecial' | 'parseSpecial' | 'literalSpans' | 'continuation'
>;

export interface Snapshot {
  stats: EngineStats;
  memory: MemoryReport;
  units: Uint8Array;
}

// --- messages ---------------------------------------------------------------------------------

export type WorkerEvent =
  /** The first thing that a worker says: that its script is the right one. */
  | { event: 'hello' }
  | { event: 'progress'; progress: ProgressEvent }
  | { event: 'snapshot'; snapshot: Snapshot }
  | { event: 'piece'; generation: number; pieces: GeneratedToken[] }
  | { event: 'embedded'; call: number; done: number }
  | { event: 'downloaded'; error?: PlainError | undefined }
  /** The engine wants one more worker, and talks to it through the other end of `port`. */
  | { event: 'start'; role: Role; port: MessagePort };

/** What the two kinds of workers and their owners talk through. */
export interface Port {
  postMessage(message: unknown, transfer?: Transferable[]): void;
  onmessage: ((event: { data: unknown }) => void) | null;
}

/** Why a worker fails: a SluiceError of ours, or what its platform has for it. */
export type WorkerFailure =
  Partial<Pick<ErrorEvent, 'message' | 'error' | 'preventDefault'>> | undefined;

/** The owner's side of a worker. */
export interface WorkerPort extends Port {
  onerror: ((event: WorkerFailure) => void) | null;
  onmessageerror: ((event: unknown) => void) | null;
  terminate(): void;
}

/**
 * What a worker becomes at the engine's wish; the first message to it, without one, makes it the
 * engine.
 */
export type Role = 'io' | 'thread';
