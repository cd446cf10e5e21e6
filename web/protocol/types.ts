// The public shapes that several rooms share: what is asked of a model, what it says, and what is
// told of it on the way. Only structured-clone types: all of them travel between threads as they
// are.

/** default: revalidate, then use; only: never the network; reload: fetch anew; none: no store. */
export type CacheMode = 'default' | 'only' | 'reload' | 'none';

/** What computes: the CPU, a GPU, or whichever of them is faster here. */
export type Device = 'wasm' | 'webgpu' | 'auto';

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
      source: 'network' | 'cache';
      bytesLoaded: number;
      bytesTotal: number;
      layer: number;
    }
  /** The engine accepts work; the download may still go on. */
  | { phase: 'ready'; bytesTotal: number }
  /** The whole file is stored. */
  | { phase: 'cached'; bytesTotal: number }
  /** The prompt is being read; `layer` of `layers` is computing. */
  | { phase: 'prefill'; tokens: number; layer: number; layers: number }
  | { phase: 'generate'; tokens: number; tokensPerSecond: number }
  /**
   * Something degraded, with a stable code: QUOTA, CACHE_LOCKED, CORRUPT, NETWORK, SOURCE_CHANGED …
   */
  | { phase: 'warning'; code: string; message: string };

/** How the next token is chosen. */
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
  /** Lowers tokens by how often they have come. 0: off. */
  frequencyPenalty?: number;
  /** Lowers tokens that have come at all. 0: off. */
  presencePenalty?: number;
  /** Tokens that the penalties look back at; -1: all. Default 64. */
  penaltyLastN?: number;
  /**
   * The same seed gives the same text: a whole number from -2^63 to 2^64-1, taken modulo 2^64.
   * Default: random.
   */
  seed?: number | bigint;
  /** Added to the logits of these token ids; -Infinity bans one. */
  logitBias?: Record<number, number>;
}

/** A token that was likely in a place. */
export interface TokenLogprob {
  /** Its id. */
  token: number;
  /** Its text. */
  text: string;
  /** Natural logarithm of its probability. */
  logprob: number;
}

/** One generated token. Its text may be empty (half a character) and is never half a character. */
export interface GeneratedToken {
  /** What became complete with this token. */
  text: string;
  /** Its id. */
  token: number;
  /** Natural logarithm of the token's probability; when `logprobs` was asked for. */
  logprob?: number;
  /** The likeliest tokens in its place, when `logprobs` asked for a number of them. */
  topLogprobs?: TokenLogprob[];
}

/** Why a generation ended: the model or a stop string, a limit, or cancel(). */
export type FinishReason = 'stop' | 'length' | 'cancelled';

/** A generation that has ended. */
export interface GenerationResult {
  /** All of its text. */
  text: string;
  /** Why it ended. */
  finishReason: FinishReason;
  /** The stop string that ended it. */
  stopString?: string | undefined;
  /** Tokens read and written. */
  usage: {
    promptTokens: number;
    /** Prompt tokens that the KV cache already held. */
    cachedTokens: number;
    completionTokens: number;
    totalTokens: number;
  };
  /** Durations in milliseconds, and rates. */
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
  /** Tokens of the prompt. */
  promptTokens: number;
  /** Those of them that the KV cache already held. */
  cachedTokens: number;
  /** Time that the prompt took. */
  promptMs: number;
  /** Tokens generated. */
  generatedTokens: number;
  /** Time that they took. */
  generateMs: number;
  /** From the call to the first token. */
  timeToFirstTokenMs: number;
  /** Rate of generation. */
  tokensPerSecond: number;
  /** Bytes that came over the network. */
  bytesFetched: number;
  /** Bytes that came from the store or the local file. */
  bytesFromCache: number;
  /** Bytes of the model that are in the store, and its whole size. */
  bytesCached: number;
  /** Size of the model, and of the one that guesses for it. */
  bytesTotal: number;
  /** Time that Engine.load took in the worker. */
  loadMs: number;
  /** Tokens in the KV cache. */
  kvTokens: number;
  /**
   * Tokens that were guessed ahead and checked, since the engine was loaded; see the option
   * `draft`.
   */
  draftedTokens: number;
  /** Those of them that were right: each saved a pass. */
  acceptedTokens: number;
  /** Passes over the weights. */
  forwardPasses: number;
  /** Threads that compute. */
  threads: number;
  /** The kernel table that runs. */
  kernels: string;
  /** What computes; a GPU that is lost leaves it to the CPU. */
  device: 'wasm' | 'webgpu';
  /** The GPU that computes, by the name that the browser gives it. */
  gpuName?: string;
  /** How it computes. */
  gpuKernels?: GpuKernels;
  /** First layers that it computes; the CPU computes the others. */
  gpuLayers?: number;
  /** The engine's own counters. */
  engine: Record<string, number>;
}

/** How a GPU computes: what it offers and is used, and what was measured to be worth it. */
export interface GpuKernels {
  /** Sums by subgroups. */
  subgroups: boolean;
  /** Halves (weights, keys and values) as numbers of the GPU's own. */
  f16: boolean;
  /** Activations as codes of eight bits: in products of few tokens, and of many. */
  int8: { gemv: boolean; gemm: boolean };
}

/** Bytes by purpose. `heap` is what the wasm memory holds now, `budget` its hard maximum. */
export interface MemoryReport {
  /** The hard maximum. */
  budget: number;
  /** All of the below together. */
  total: number;
  /** Room for weights: pinned ones, and the ring that the others pass through. */
  weights: number;
  /** Weights that stay. */
  pinned: number;
  /** The ring of slots. */
  streamBuffer: number;
  /** Keys and values. */
  kv: number;
  /** Activations of a pass. */
  activations: number;
  /** Vocabulary and merges. */
  tokenizer: number;
  /** Working memory of the kernels. */
  scratch: number;
  /** LoRA adapters. */
  adapters: number;
  /** All that the model holds which guesses for it; 0: there is none. */
  draft: number;
  /** Everything else. */
  other: number;
  /** What the wasm memory holds now. */
  heap: number;
  /** Bytes on the GPU, apart from `total`; 0 where it does not compute. */
  gpu: number;
}

/** Where a unit of weights is. pinned-pending: it will be pinned and has not arrived yet. */
export type UnitState = 'absent' | 'loading' | 'resident' | 'pinned' | 'pinned-pending';

/** Bytes by purpose as planned from the header, and how the weights would be kept. */
export interface MemoryPlan {
  /** 0 when unlimited. */
  budget: number;
  /** All of the below together. */
  total: number;
  /** The smallest budget for this context. */
  minimum: number;
  /** Positions of the KV cache. */
  contextLength: number;
  /** Tokens of a prompt that are computed in one pass. */
  batch: number;
  /** Threads that compute. */
  threads: number;
  /** Answers that can be computed at once. */
  parallel: number;
  /** Room for weights: pinned ones and the ring. */
  weights: number;
  /** Weights that stay. */
  pinned: number;
  /** The ring of slots that the others pass through. */
  streamBuffer: number;
  /** Slots of the ring. */
  streamSlots: number;
  /** Size of one. */
  streamSlotBytes: number;
  /** Keys and values. */
  kv: number;
  /** What keys and values are kept as. */
  kvType: string;
  /** Positions that there is memory for; fewer than `contextLength` where the cache forgets. */
  kvCapacity: number;
  /** Activations of a pass. */
  activations: number;
  /** Vocabulary and merges. */
  tokenizer: number;
  /** Norms, biases and other small tensors. */
  smallTensors: number;
  /** Working memory of the kernels. */
  scratch: number;
  /** All that the model would hold which guesses for it; 0: there is none. */
  draft: number;
  /** Everything else. */
  other: number;
  /** Units that the weights are loaded in. */
  units: number;
  /** The first unit of each layer; one more entry: the first unit of the output. */
  layerUnits: number[];
  /** Bytes that every token reads from the store, once the pinned units are there. */
  bytesPerPass: number;
  /** The token embedding stays in memory. */
  embeddingResident: boolean;
  /** Everything stays in memory. */
  resident: boolean;
}

/** Estimates from short measurements, made by Engine.inspect; what was not measured is left out. */
export interface SpeedEstimate {
  /**
   * Tokens a second of generation, early in a context: what computing and reading allow together.
   * Left out when weights would stream from a store whose speed is not known.
   */
  tokensPerSecond?: number;
  /**
   * What computing alone allows: the kernels, timed on weights of the model's main type with
   * `plan.threads` threads.
   */
  computeTokensPerSecond?: number;
  /**
   * Bytes a second that weights would stream at: of what is stored of the model (or of the local
   * file), timed; without a store, the network's.
   */
  cacheBytesPerSecond?: number;
  /** Bytes a second that the header came at over the network. */
  networkBytesPerSecond?: number;
  /** Seconds that the rest of the download takes at that rate; 0: nothing is missing. */
  downloadSeconds?: number;
}

/** What the header says of the model and how it would run; see Engine.inspect. */
export interface ModelInfo {
  /** Family, as general.architecture names it. */
  architecture: string;
  /** The model's own name. */
  name: string;
  /** Number of weights. */
  parameters: number;
  /** Of all tensors. */
  bytes: number;
  /** Bytes by tensor type. */
  types: Record<string, number>;
  /** Number of layers. */
  layers: number;
  /** Those of them that are skipped: `approximate.skipLayersRatio`. */
  layersSkipped: number;
  /** Width of the residual stream. */
  embeddingLength: number;
  /** Width of the feed-forward layers. */
  feedForwardLength: number;
  /** Attention heads. */
  attentionHeads: number;
  /** Heads of keys and values. */
  kvHeads: number;
  /** Width of a head. */
  headDim: number;
  /** Number of tokens. */
  vocabSize: number;
  /** Positions that the model was trained for. */
  trainContextLength: number;
  /** Experts of a layer; 0: not a mixture. */
  experts: number;
  /** Experts that a token uses. */
  expertsUsed: number;
  /** The output head is the token embedding. */
  tiedEmbeddings: boolean;
  /** Files that the model is split into. */
  files: number;
  /** Number of tensors. */
  tensors: number;
  /** Multiplications that a token takes. */
  macsPerToken: number;
  /** Bytes of weights that a token reads. */
  bytesPerToken: number;
  /** The kernel table that would run. */
  kernels: string;
  /** The Jinja template of its chats. */
  chatTemplate?: string;
  /** Begins a text. */
  bosToken?: string;
  /** Ends a text. */
  eosToken?: string;
  /** Stands for what it cannot write. */
  unkToken?: string;
  /** Fills batches. */
  padToken?: string;
  /** Bytes that the plan's KV cache would take, by `kvType`. */
  kvBytes: Record<string, number>;
  /** The longest context that would fit, by `kvType`. */
  maxContextByKvType: Record<string, number>;
  /** How it would lie in memory under the budget. */
  plan: MemoryPlan;
  /** How fast it would run here; of Engine.inspect only. */
  speed?: SpeedEstimate;
  /**
   * What `device: 'auto'` would take, and why; of Engine.inspect where a device other than wasm is
   * asked for.
   */
  device?: DeviceSelection;
}

/** Which of CPU and GPU computes a model better here, as both were measured. */
export interface DeviceSelection {
  /** What reads prompts. */
  prefill: 'wasm' | 'webgpu';
  /** What writes tokens, one at a time. */
  decode: 'wasm' | 'webgpu';
  /** Tokens of the smallest pass that is the GPU's; Infinity: none is. */
  gpuMinBatch: number;
  /** First layers that are the GPU's where they are not all; the CPU computes the others. */
  gpuLayers?: number;
  /** Why, in a sentence. */
  reason: string;
  /** The GPU, by the name that the browser gives it. */
  gpuName?: string;
  /** How it would compute. */
  gpuKernels?: GpuKernels;
  /** Tokens a second to expect of each, where they were measured. */
  rates?: Record<'wasm' | 'webgpu', { prefill: number; decode: number }>;
  /** Bytes that the GPU moves in a second, as a copy on it shows. */
  gpuBytesPerSecond?: number;
}

/** A KV cache and its tokens, for restoreState(). */
export interface SavedState {
  /** The tokens, in order. */
  tokens: Int32Array;
  /** Their keys and values; only the same model can read them. */
  state: Uint8Array;
}
