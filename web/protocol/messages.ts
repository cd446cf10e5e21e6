// Types of the messages between the caller's thread, the engine's worker and the I/O worker. A call
// is { id, method, args }; its reply is { id, result } or { id, error }. Events have no id. All
// types can be structured-cloned.

import type { PlainError } from './errors.js';
import type {
  CacheMode,
  GpuKernels,
  Device,
  EngineStats,
  MemoryPlan,
  MemoryReport,
  GeneratedToken,
  PowerPreference,
  ProgressEvent,
  SamplingOptions,
} from './types.js';

/**
 * Source of a model as it is posted to the worker: a URL, a list of files (each a Blob or a URL), or
 * a path (Node).
 */
export type SourceSpec =
  | { kind: 'url'; url: string }
  | { kind: 'files'; files: (Blob | string)[]; names: string[] }
  | { kind: 'path'; path: string };

/** A LoRA adapter. */
export interface AdapterSpec {
  name: string;
  data: Blob;
  scale: number;
}

/** What requests for model files have beside the address. Never shown or stored. */
export interface RequestSpec {
  /** Sent to these origins. */
  headers: [string, string][];
  origins: string[];
  /** Bearer token for the origin `hub`. */
  token?: string | undefined;
  hub: string;
  /** Name of the channel that reaches the caller's fetch(); see io/fetch-channel.ts. */
  channel?: string | undefined;
}

export interface IoOptions {
  cache: CacheMode;
  /** Node: directory of the model cache, or 'none'; undefined: the default. */
  cacheDir?: string | undefined;
  /** undefined: requests have only an address. */
  request?: RequestSpec | undefined;
  /** Overrides for tests. */
  tuning?: IoTuning | undefined;
}

/** Parameters of the fetcher and the model cache that tests change; not part of the public API. */
export interface IoTuning {
  chunkSize?: number;
  streams?: number;
  streamBytes?: number;
  attempts?: number;
  retryMs?: number;
  retryMaxMs?: number;
  stallMs?: number;
  /** Time limit for the worker script's 'hello' message. */
  greetMs?: number;
}

/** Where the engine's wasm comes from; all optional. */
export interface WasmSource {
  url?: string | undefined;
  binary?: Uint8Array | ArrayBuffer | undefined;
  /** A compiled module, as passed between threads. */
  module?: WebAssembly.Module | undefined;
  /** The binary with all quantization types and the approximate modes. */
  full?: boolean | undefined;
}

/** Options that the engine takes as they are. */
export interface EngineSpec {
  /** Tokens; 0: the model's own, at most 4096. */
  contextLength: number;
  /** KV cache type. */
  kvType: string;
  /** KV cache eviction policy. */
  kvPolicy: string | undefined;
  /** Attention sinks; -1: the engine's default. */
  kvSinks: number;
  /** Positions; 0: the context length. */
  kvCapacity: number;
  /** Fraction of the skippable layers to skip, 0 (none) to 1, the least important first. */
  skipLayersRatio: number;
  /**
   * Clustered output head: a number of clusters, 'exact' or 'off'. '': off if no layer is skipped.
   */
  headClusters: string;
  /** Name of the kernel table; '': the fastest of this binary. */
  kernels: string;
  /** Why contextLength is what it is, if a plan chose it. */
  contextFrom?: MemoryPlan['contextFrom'];
  /** true: memory for constraints is set aside at load; false: never; undefined: when needed. */
  structuredOutput?: boolean;
  /** Measures where the time of forward passes goes. */
  timeBreakdown: boolean;
  /** Speculative decoding: from n-grams, and by the draft model if there is one. */
  draft: boolean;
  /** Number of slots, whose requests share a forward pass. */
  parallel: number;
}

export interface LoadSpec {
  engine: EngineSpec;
  source: SourceSpec;
  io: IoOptions;
  wasm: WasmSource;
  /** Bytes; 0: chosen automatically. */
  memoryBudget: number;
  /** 0: chosen automatically. */
  threads: number;
  /** Source of the draft model. */
  draftSource?: SourceSpec | undefined;
  /** Source of the vision projector. */
  projectorSource?: SourceSpec | undefined;
  /** Limits of the tokens of a picture; 0: the projector's own. */
  imageTokens: { minTokens: number; maxTokens: number };
  lora: AdapterSpec[];
  device: Device;
  powerPreference: PowerPreference;
  /** Bytes on the GPU; 0: chosen automatically. */
  gpuBudget: number;
  /**
   * Number of first layers on the GPU. Infinity: as many as fit. undefined: all, and weights that
   * do not fit stream.
   */
  gpuLayers: number | undefined;
  /** Smallest batch, in tokens, that runs on the GPU. Infinity: none does. */
  gpuMinBatch: number;
  /** Overrides the measured choice of optional GPU kernels, for tests. */
  gpuKernels?: GpuKernels;
  /** False keeps all I/O in the engine's worker. */
  ioWorker: boolean;
}

/**
 * A picture: a file, pixels with alpha, or what the browser has decoded: an ImageBitmap, which
 * projects without the DOM library lack.
 */
export type ImageSpec =
  | Blob
  | Uint8Array
  | { width: number; height: number; data: Uint8Array | Uint8ClampedArray }
  | { readonly width: number; readonly height: number; close(): void };

/** The beginning of a prompt with pictures, and what follows it. */
export interface KnownPrompt {
  tokens: Int32Array;
  /** Number of pictures among the tokens. */
  images: number;
  /** The rest of the prompt. */
  rest: string;
}

export interface GenerateSpec extends Omit<SamplingOptions, 'seed'> {
  /**
   * 0: the engine's own sequence. Positive: a session's. Negative: whichever of the engine's
   * sequences shares the longest prefix with the prompt.
   */
  sequence: number;
  /** Decimal digits. */
  seed: string;
  prompt: string | Int32Array;
  maxTokens: number;
  stop: string[];
  stopTokenIds: Int32Array;
  /** Number of most likely tokens to report; undefined: no log-probabilities. */
  logprobs?: number | undefined;
  postSamplingProbs?: boolean | undefined;
  addSpecial: boolean;
  parseSpecial: boolean;
  /** Control tokens are not parsed between U+FDD0 and U+FDD1. */
  literalSpans: boolean;
  /** The prompt continues earlier text. */
  continuation: boolean;
  /** Control tokens produce no text. */
  skipSpecialTokens: boolean;
  /** Reuse the part of the prompt that is already in the KV cache. */
  cachePrompt: boolean;
  ignoreEos: boolean;
  constraint?: Constraint | undefined;
  /** Pictures, in the order of the marks in the prompt. */
  images?: ImageSpec[] | undefined;
  /** With pictures: the prompt begins with these tokens' text, and the first pictures are theirs. */
  known?: KnownPrompt | undefined;
  /** Names the sequence that a chat continues. '': none. */
  cacheKey?: string;
  /** Tokens are posted with the counts so far. */
  reportCounts?: boolean;
}

/**
 * Constraint of structured output. `kind`: 0 GBNF grammar, 1 regular expression, 2 JSON array of
 * choices, 3 any JSON, 4 JSON Schema.
 */
export interface Constraint {
  kind: 0 | 1 | 2 | 3 | 4;
  text: string;
}

/** Texts to embed, or their tokens. */
export type EmbedTexts = (string | Int32Array)[];

/** Options of an embedding request, in the engine's numbering. */
export interface EmbedSpec {
  /** 0 none, 1 mean, 2 CLS, 3 last, 4 rank; -1: the model's own. */
  pooling: number;
  normalize: boolean;
  /** Values per embedding; 0: all. */
  dimensions: number;
  /** Query of a reranker: each input is read as the document that follows it. */
  query?: string | undefined;
}

/** Embeddings: input i has `rows[i]` rows of `width` values, one input after another. */
export interface Embedded {
  values: Float32Array;
  width: number;
  rows: Int32Array;
  /** Number of tokens of all inputs. */
  tokens: number;
}

/** How text is tokenized. */
export type TokenizeSpec = Pick<
  GenerateSpec,
  'addSpecial' | 'parseSpecial' | 'literalSpans' | 'continuation'
>;

/** How a prompt with pictures is tokenized. */
export type LayoutSpec = TokenizeSpec & Pick<GenerateSpec, 'images' | 'known'>;

export interface Snapshot {
  stats: EngineStats;
  memory: MemoryReport;
  units: Uint8Array;
}

// --- messages ---------------------------------------------------------------------------------

export type WorkerEvent =
  /** First message of a worker. It shows that the script is this package's. */
  | { event: 'hello' }
  | { event: 'progress'; progress: ProgressEvent }
  | { event: 'snapshot'; snapshot: Snapshot }
  | { event: 'piece'; generation: number; pieces: GeneratedToken[] }
  | { event: 'embedded'; call: number; done: number }
  | { event: 'downloaded'; error?: PlainError | undefined }
  /** Requests one more worker. The engine communicates with it over the other end of `port`. */
  | { event: 'start'; role: Role; port: MessagePort };

/** Message port: the subset that browser workers and Node's worker threads share. */
export interface Port {
  postMessage(message: unknown, transfer?: Transferable[]): void;
  onmessage: ((event: { data: unknown }) => void) | null;
}

/** Argument of a worker's onerror: a SluiceError, or the platform's error event. */
export type WorkerFailure =
  Partial<Pick<ErrorEvent, 'message' | 'error' | 'preventDefault'>> | undefined;

/** A worker as its owner sees it. */
export interface WorkerPort extends Port {
  onerror: ((event: WorkerFailure) => void) | null;
  onmessageerror: ((event: unknown) => void) | null;
  terminate(): void;
  /** In place of terminate(): another engine may take the worker over. */
  keep?(): void;
}

/** Role of an extra worker. A worker whose first message names no role becomes the engine. */
export type Role = 'io' | 'thread';
