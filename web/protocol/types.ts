// Public types that several directories of web/ share: sampling options, results, statistics and
// progress events. All of them are structured-clone types, because they are posted between threads
// unchanged.

import type { ErrorCode, WarningCode } from './errors.js';

/**
 * How the model cache is used. 'default': revalidate with the server, then use the cached file.
 * 'only': never use the network. 'reload': download again. 'none': cache nothing.
 */
export type CacheMode = 'default' | 'only' | 'reload' | 'none';

/** Compute device: 'wasm' (CPU), 'webgpu' (GPU), or 'auto' (the faster one, measured). */
export type Device = 'wasm' | 'webgpu' | 'auto';

/** Which GPU to use where there are several: WebGPU's `powerPreference`. */
export type PowerPreference = 'low-power' | 'high-performance';

/** KV cache type: how the values of the KV cache are stored. */
export type KvType = 'f16' | 'q8_0' | 'q4_0' | 'q2';

/** One KV cache type for keys and values, or one each, such as 'q8_0,q4_0'. */
export type KvTypes = KvType | `${KvType},${KvType}`;

/**
 * Events during loading and generation. At most ten per second; phase changes and warnings are
 * sent immediately.
 */
export type ProgressEvent =
  /** The model's header is being read. */
  | { phase: 'header'; bytesLoaded: number; bytesTotal: number }
  /** The file is being downloaded into the model cache (and the engine). */
  | {
      phase: 'download';
      bytesLoaded: number;
      bytesTotal: number;
      bytesPerSecond: number;
      /** Undefined until a rate has been measured. */
      secondsLeft?: number | undefined;
    }
  /** Weights are being read from the network or the model cache into memory. */
  | {
      phase: 'weights';
      source: 'network' | 'cache';
      bytesLoaded: number;
      bytesTotal: number;
      layer: number;
    }
  /** The engine accepts requests. The download may still continue. */
  | { phase: 'ready'; bytesTotal: number }
  /** The complete file is in the model cache. */
  | { phase: 'cached'; bytesTotal: number }
  /**
   * A request for a model file failed, the `attempt`th time in a row. It is repeated after
   * `secondsLeft`. `message` says what happened.
   */
  | { phase: 'retry'; attempt: number; secondsLeft: number; message: string }
  /** Prefill: the prompt is being processed. Unit `layer` of `layers` weight units is computing. */
  | { phase: 'prefill'; tokens: number; layer: number; layers: number }
  /** Decoding: `tokens` have been generated. */
  | { phase: 'generate'; tokens: number; tokensPerSecond: number }
  /**
   * Something degraded but work continues. `code` is stable: QUOTA, CACHE_LOCKED, CORRUPT, NETWORK,
   * SOURCE_CHANGED …
   */
  | { phase: 'warning'; code: ErrorCode | WarningCode; message: string };

/** Sampling parameters: how the next token is chosen. */
export interface SamplingOptions {
  /** Sampling temperature. 0: greedy. Default 0.8. */
  temperature?: number;
  /** Sample from the k most likely tokens. 0: all. Default 40. */
  topK?: number;
  /** Nucleus sampling: the smallest set with this total probability. 1: off. Default 0.95. */
  topP?: number;
  /** Minimum probability, relative to the most likely token. 0: off. Default 0.05. */
  minP?: number;
  /** Divides positive and multiplies negative logits of recent tokens. 1: off. Default 1. */
  repeatPenalty?: number;
  /** Subtracted from a token's logit for each recent occurrence. 0: off. Default 0. */
  frequencyPenalty?: number;
  /** Subtracted once from the logit of a token that occurred recently. 0: off. Default 0. */
  presencePenalty?: number;
  /** Number of recent tokens that the penalties apply to. -1: all. Default 64. */
  penaltyLastN?: number;
  /**
   * The same seed gives the same text. An integer from -2^63 to 2^64-1, taken modulo 2^64. Default:
   * random.
   */
  seed?: number | bigint;
  /** Added to the logits of these token ids. -Infinity bans a token. */
  logitBias?: Record<number, number>;
}

/** A candidate for one position, with its probability. */
export interface TokenLogprob {
  /** Token id. */
  token: number;
  /** Text of the token. */
  text: string;
  /** Bytes of the token, which may be part of a character. */
  bytes: Uint8Array;
  /** Natural logarithm of its probability. */
  logprob: number;
}

/** One generated token. */
export interface GeneratedToken {
  /**
   * Text that became complete with this token: whole characters only. Empty while a character is
   * incomplete.
   */
  text: string;
  /**
   * Part of the text that is content, not reasoning. Only from session.send(). Text that may begin a
   * mark follows later, at the latest in the result.
   */
  content?: string;
  /** Part of the text that is reasoning. Only from session.send(). */
  reasoning?: string;
  /** Token id. */
  token: number;
  /**
   * Bytes of the token alone: part of a character, or a control token's name. Present if `logprobs`
   * was set.
   */
  bytes?: Uint8Array;
  /**
   * Natural logarithm of the token's probability, in the model's own distribution unless
   * `postSamplingProbs` was set. Present if `logprobs` was set.
   */
  logprob?: number;
  /** The most likely tokens at this position. Present if `logprobs` was a number. */
  topLogprobs?: TokenLogprob[];
  /** @internal Counts and durations so far, if they were asked for. */
  counts?: Pick<GenerationResult, 'usage' | 'timings'>;
}

/**
 * Why a generation ended. 'stop': end token or stop string. 'length': `maxTokens` or the context
 * was reached. 'cancelled': cancel().
 */
export type FinishReason = 'stop' | 'length' | 'cancelled';

/** Result of a finished generation. */
export interface GenerationResult {
  /** The generated text. */
  text: string;
  /** The text without reasoning and tool calls. Only from session.send(). */
  content?: string;
  /** The reasoning in the text; '' if there is none. Only from session.send(). */
  reasoning?: string;
  /** Why it ended. */
  finishReason: FinishReason;
  /** The stop string that ended it, if one did. */
  stopString?: string | undefined;
  /** Token counts. */
  usage: {
    promptTokens: number;
    /** Prompt tokens that were already in the KV cache. */
    cachedTokens: number;
    completionTokens: number;
    totalTokens: number;
  };
  /** Durations in milliseconds; rates in tokens per second. */
  timings: {
    promptMs: number;
    generateMs: number;
    timeToFirstTokenMs: number;
    promptTokensPerSecond: number;
    tokensPerSecond: number;
  };
}

/**
 * Statistics of an engine. Prompt, generation and rate fields describe the current or last
 * generation; the others count since the engine was loaded.
 */
export interface EngineStats {
  /** Tokens of the prompt. */
  promptTokens: number;
  /** Prompt tokens that were already in the KV cache. */
  cachedTokens: number;
  /** Prefill time in milliseconds. */
  promptMs: number;
  /** Tokens generated. */
  generatedTokens: number;
  /** Decoding time in milliseconds. */
  generateMs: number;
  /** Milliseconds from the call to the first token. */
  timeToFirstTokenMs: number;
  /** Decoding rate, in tokens per second. */
  tokensPerSecond: number;
  /** Bytes read over the network. */
  bytesFetched: number;
  /** Bytes read from the model cache or the local file. */
  bytesFromCache: number;
  /** Bytes of the model that are in the model cache. */
  bytesCached: number;
  /** Size of the model in bytes, draft model included. */
  bytesTotal: number;
  /** Milliseconds that Engine.load took in the worker. */
  loadMs: number;
  /** Tokens in the KV cache. */
  kvTokens: number;
  /** Draft tokens that were verified; see the option `draft`. */
  draftedTokens: number;
  /** Draft tokens that were accepted. Each saved a forward pass. */
  acceptedTokens: number;
  /** Forward passes. */
  forwardPasses: number;
  /** Compute threads. */
  threads: number;
  /** Name of the kernel table in use. */
  kernels: string;
  /** Compute device. Becomes 'wasm' if the GPU is lost. */
  device: 'wasm' | 'webgpu';
  /** Name of the GPU, as the browser reports it. */
  gpuName?: string;
  /** Optional kernels that the GPU uses. */
  gpuKernels?: GpuKernels;
  /** Number of first layers on the GPU. The CPU computes the others. */
  gpuLayers?: number;
  /**
   * Where the vision encoder ran for the latest prompt with new pictures: `'wasm'` if the CPU encoded
   * any of them.
   */
  visionDevice?: 'wasm' | 'webgpu';
  /** Where the time of forward passes went since loading, with the option `timeBreakdown`. */
  timeBreakdown?: TimeBreakdown;
  /** The engine's internal counters. */
  engine: Record<string, number>;
}

/** Milliseconds. The parts add up to `total`, the time of the model's forward passes. */
export interface TimeBreakdown {
  /** Waiting for bytes of weights, and reading them on compute threads. */
  wait: number;
  /** Decompressing layers of QSF files on compute threads. */
  decompress: number;
  /** Matrix multiplications before and after attention, and those of recurrent layers. */
  attentionProjections: number;
  /** Matrix multiplications of dense feed-forward networks. */
  ffn: number;
  /** Mixtures of experts, with their routers. */
  experts: number;
  /** The output head. */
  output: number;
  /** Attention over the KV cache, RoPE, and recurrences. */
  attention: number;
  /** Operations on the GPU. */
  gpu: number;
  /** The rest: norms, activations, embeddings, and pauses between steps. */
  other: number;
  /** All of them: the time of the forward passes. */
  total: number;
}

/** Optional GPU kernels in use: what the GPU offers, and what was measured to be faster. */
export interface GpuKernels {
  /** Sums over a workgroup use subgroup operations. */
  subgroups: boolean;
  /** F16 weights and KV caches are read as native halves (shader-f16). */
  f16: boolean;
  /** Int8 activations, for few tokens (GEMV) and for many tokens (GEMM). */
  int8: { gemv: boolean; gemm: boolean };
}

/**
 * State of a weight unit. 'resident': in the stream buffer. 'pinned-pending': will be pinned, has
 * not arrived yet.
 */
export type UnitState = 'absent' | 'loading' | 'resident' | 'pinned' | 'pinned-pending';

/** Memory plan, computed from the header: bytes by purpose, and where the weights go. */
export interface MemoryPlan {
  /** Budget in bytes. 0: unlimited. */
  budget: number;
  /**
   * All bytes that are planned: the sum of `pinned`, `streamBuffer`, `smallTensors`, `kv`,
   * `activations`, `scratch`, `tokenizer`, `generation`, `grammar`, `adapters`, `nextn`, `draft`,
   * `reserve` and `other`.
   */
  total: number;
  /** Smallest budget that works with the same options and this context. */
  minimum: number;
  /** Tokens that a sequence can hold. */
  contextLength: number;
  /**
   * Why: `option` (the caller chose it), `model` (as long as the model was trained with), `default`
   * (the model could have more than 4,096), or `budget` (a quarter of the memory budget holds no
   * longer KV cache).
   */
  contextFrom: 'option' | 'model' | 'default' | 'budget';
  /** Prompt tokens per forward pass. */
  batch: number;
  /** Compute threads. */
  threads: number;
  /** Number of sequences that share a forward pass. */
  parallel: number;
  /** `pinned` plus `streamBuffer`. */
  weights: number;
  /** Weights that stay in memory. */
  pinned: number;
  /** Buffer that all other weights stream through. 0 if all are pinned. */
  streamBuffer: number;
  /** Number of slots in the stream buffer. */
  streamSlots: number;
  /** Bytes per slot. */
  streamSlotBytes: number;
  /** KV caches and recurrent states of all sequences. */
  kv: number;
  /**
   * KV caches that only the GPU has, because `kv` has no room for them: part of `gpuBudget`, not of
   * `total`. 0: memory has all.
   */
  kvOnGpu: number;
  /** KV cache type. */
  kvType: KvTypes;
  /** Positions that the KV cache can hold. Less than `contextLength` with eviction. */
  kvCapacity: number;
  /** Activations of a forward pass. */
  activations: number;
  /** Vocabulary and merges. */
  tokenizer: number;
  /** Norm weights, biases and other small tensors. */
  smallTensors: number;
  /** LoRA adapters. */
  adapters: number;
  /** Working memory of the kernels. */
  scratch: number;
  /** State of generations: sampler, token lists, n-gram index. */
  generation: number;
  /** Vocabulary for structured output, and grammars. */
  grammar: number;
  /** KV cache and states of a multi-token prediction head. 0 in the package. */
  nextn: number;
  /** Everything that the draft model would hold. 0: there is none. */
  draft: number;
  /** Left free for the browser's own use, never allocated. 0 if the budget is small. */
  reserve: number;
  /** Everything else: stacks, directories, queues, the program's constants. */
  other: number;
  /** Number of units that the weights are divided into. */
  units: number;
  /** First unit of each layer; the last entry is the first unit of the output head. */
  layerUnits: number[];
  /** Bytes read from storage in each forward pass, once the pinned units are loaded. */
  bytesPerPass: number;
  /** The token embedding stays in memory. */
  embeddingResident: boolean;
  /** All weights stay in memory; none stream. */
  resident: boolean;
}

/** The plan of the running engine in bytes, and two measured sizes: `heap` and `gpu`. */
export interface MemoryReport extends Omit<MemoryPlan, 'layerUnits'> {
  /** Measured size of the WebAssembly memory: it grows up to `budget` less `reserve`. */
  heap: number;
  /** Measured bytes on the GPU, not part of `total` or of the budget. 0 if the GPU is not used. */
  gpu: number;
}

/** Speed estimates of Engine.inspect, from short measurements. Values not measured are omitted. */
export interface SpeedEstimate {
  /**
   * Decoding rate early in a context, in tokens per second, limited by compute and by reading.
   * Omitted if weights would stream from storage of unknown speed.
   */
  tokensPerSecond?: number;
  /**
   * Decoding rate if only compute limited it, in tokens per second. Measured with `plan.threads`
   * threads: the matrix multiplications of a token on synthetic weights, and sampling.
   */
  computeTokensPerSecond?: number;
  /**
   * Bytes per second at which weights would stream. Measured on the cached part of the model or the
   * local file; without a cache, the network's rate.
   */
  cacheBytesPerSecond?: number;
  /** Bytes per second over the network while the header was read. */
  networkBytesPerSecond?: number;
  /** Seconds that the rest of the download takes at that rate. 0: the model is complete. */
  downloadSeconds?: number;
  /** Share of a mixture's experts that stays in memory, by bytes: 0 to 1. Only for mixtures. */
  expertsInMemory?: number;
  /**
   * Share of a token's experts that are found in memory, 0 to 1. The estimate assumes that every
   * expert is as likely, the worst case.
   */
  expertHitRate?: number;
  /** Bytes that a token of a mixture reads from storage at this hit rate. */
  bytesReadPerToken?: number;
}

/** What a picture takes: tokens of the context, and memory while it is read. */
export interface ImageCost {
  /** Tokens, without the text that its family writes around a picture. */
  tokens: number;
  /** Bytes of the budget, which the model gives up and gets back. */
  bytes: number;
}

/** Metadata of a model and how it would run; see Engine.inspect. */
export interface ModelInfo {
  /** What prompts may have: 'text', and 'image' with a projector. */
  modalities: ('text' | 'image')[];
  /** Model family, from general.architecture. */
  architecture: string;
  /** Name of the model. */
  name: string;
  /** Number of weights. */
  parameters: number;
  /** Bytes of all tensors. */
  bytes: number;
  /** Bytes by quantization type. */
  types: Record<string, number>;
  /** Number of layers. */
  layers: number;
  /** Number of layers that are skipped; see `approximate.skipLayersRatio`. */
  layersSkipped: number;
  /** Width of the residual stream. */
  embeddingLength: number;
  /** Width of the feed-forward layers. */
  feedForwardLength: number;
  /** Number of attention heads. */
  attentionHeads: number;
  /** Number of KV heads. */
  kvHeads: number;
  /** Width of an attention head. */
  headDim: number;
  /** Number of tokens in the vocabulary. */
  vocabSize: number;
  /** Context length that the model was trained for. */
  trainContextLength: number;
  /** Experts per layer. 0: not a mixture of experts. */
  experts: number;
  /** Experts that each token uses. */
  expertsUsed: number;
  /** The output head shares its weights with the token embedding. */
  tiedEmbeddings: boolean;
  /** The model generates text. */
  generates: boolean;
  /** The model was trained for embeddings. engine.embed() works with other models, too. */
  embeds: boolean;
  /** The model scores documents: engine.rerank(). */
  reranks: boolean;
  /** Number of files that the model is split into. */
  files: number;
  /** Number of tensors. */
  tensors: number;
  /** Multiply-accumulate operations per token. */
  macsPerToken: number;
  /** Bytes of weights read per token. */
  bytesPerToken: number;
  /** Name of the kernel table that would run. */
  kernels: string;
  /** Chat template of the model, in Jinja. */
  chatTemplate?: string;
  /** Chat template for requests with tools, where the model has one of its own for them. */
  toolTemplate?: string;
  /** Text of the BOS token. */
  bosToken?: string;
  /** Text of the EOS token. */
  eosToken?: string;
  /** Text of the unknown token. */
  unkToken?: string;
  /** Text of the padding token. */
  padToken?: string;
  /** Bytes that the planned KV cache would take, by `kvType`. */
  kvBytes: Partial<Record<KvType, number>>;
  /** Longest `contextLength` that loads within the budget, by `kvType`. 0: none. */
  maxContextByKvType: Partial<Record<KvType, number>>;
  /** Memory plan under the budget. */
  plan: MemoryPlan;
  /** Estimated speed on this machine. Only from Engine.inspect. */
  speed?: SpeedEstimate;
  /**
   * What `device: 'auto'` would select, and why. Only from Engine.inspect, if a device other than
   * 'wasm' was requested.
   */
  device?: DeviceSelection;
}

/** Result of `device: 'auto'`: which device runs what, from measurements of both. */
export interface DeviceSelection {
  /** Device that processes prompts. */
  prefill: 'wasm' | 'webgpu';
  /** Device that generates tokens one at a time. */
  decode: 'wasm' | 'webgpu';
  /** Smallest batch, in tokens, that runs on the GPU. Infinity: none does. */
  gpuMinBatch: number;
  /** Number of first layers on the GPU, if the model is split. The CPU computes the others. */
  gpuLayers?: number;
  /** The reason, in one sentence. */
  reason: string;
  /** Name of the GPU, as the browser reports it. */
  gpuName?: string;
  /** Optional kernels that the GPU would use. */
  gpuKernels?: GpuKernels;
  /** Estimated tokens per second of both devices, if they were measured. */
  rates?: Record<'wasm' | 'webgpu', { prefill: number; decode: number }>;
  /** Memory bandwidth of the GPU in bytes per second, measured with a copy. */
  gpuBytesPerSecond?: number;
}

/** A saved KV cache and its tokens, for restoreState(). */
export interface SavedState {
  /** Token ids, in order. */
  tokens: Int32Array;
  /** Serialized KV cache. Only the same model can restore it. */
  state: Uint8Array;
}
