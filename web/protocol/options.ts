// Public option types. They are declared here because api/, chat/ and serve/ share them;
// api/options.ts validates them and converts them to the messages for the worker.

import type { IoTuning } from './messages.js';
import type {
  CacheMode,
  Device,
  KvTypes,
  PowerPreference,
  ProgressEvent,
  SamplingOptions,
} from './types.js';

/** One file of a model. FileSystemFileHandle, which projects without the DOM library lack. */
type ModelFileSource = string | URL | Blob | { getFile(): Promise<Blob> };

/**
 * A model: a URL (absolute or relative), a path in Node, a File, Blob or FileSystemFileHandle, or a
 * Hugging Face reference: hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M or hf:owner/repo, each with
 * @revision if wanted. A reference without a file means the model with this quantization, else the
 * first of Q4_K_M, Q4_0, Q4_K_S, Q5_K_M, Q8_0 and IQ4_XS, else the smallest GGUF file, else the
 * safetensors. Or a list of the parts of a split model or the files of a directory, such as a
 * FileList, or addresses, each with a query of its own.
 */
export type ModelSource =
  | ModelFileSource
  | readonly ModelFileSource[]
  | { readonly length: number; item(index: number): Blob | null };

/** A LoRA adapter. */
export interface LoraAdapter {
  /**
   * A GGUF file, or a PEFT adapter: the address of adapter_model.safetensors (with
   * adapter_config.json beside it), of its directory (ending in /), or both as Files.
   */
  source: ModelSource;
  /** Factor for what the adapter adds. 0: no effect. Default 1. */
  scale?: number;
}

/** Experimental options that compute less than the whole model. Results are not exact. */
export interface ApproximateOptions {
  /**
   * Fraction of the skippable layers to skip, 0 to 1, the least important first. Needs a file made
   * by `sluice convert --calibrate`. Default 0.
   */
  skipLayersRatio?: number;
  /**
   * Clustered output head, CPU only: number of vocabulary clusters to compute per token, 1 to 256.
   * 'exact' computes as many as finding the largest logit takes. Tokens of other clusters get their
   * cluster's logit. Needs a file made by `sluice convert --cluster-head`. Default: 'off', unless
   * layers are skipped.
   */
  headClusters?: number | 'exact' | 'off';
}

/** Options of Engine.inspect and Engine.load. */
export interface InspectOptions {
  /**
   * Memory budget in bytes, or a text such as '256M' (powers of 1024) or 'auto': a hard maximum for weights, KV cache, activations, tokenizer and
   * scratch memory together. Default: 1.1 times the file size plus 512 MiB, at most what the device
   * offers (half of navigator.deviceMemory; in Node half of the memory, at most 3.5 GiB).
   */
  memoryBudget?: number | string;
  /** Context length in tokens. Default: the model's own, at most 4096. */
  contextLength?: number;
  /**
   * KV cache type: 'f16', 'q8_0', 'q4_0' or 'q2', or one each for keys and values, such as
   * 'q8_0,q4_0'. Fewer bits fit a longer context into the same bytes. 'auto': the best type whose
   * cache takes at most a quarter of the budget. Default 'f16'.
   */
  kvType?: KvTypes | 'auto';
  /**
   * KV cache eviction: what happens when the cache is full. 'full': the error CONTEXT_FULL.
   * 'window': a sliding window with attention sinks, so a sequence can continue without end.
   * 'heavy-hitter': also keeps the positions with the most attention, a quarter of the cache; keys
   * cannot be 'q2'. Default 'full'.
   */
  kvPolicy?: 'full' | 'window' | 'heavy-hitter';
  /** Attention sinks: first positions that 'window' and 'heavy-hitter' always keep. Default 4. */
  kvSinks?: number;
  /** Positions that 'window' and 'heavy-hitter' have memory for. Default `contextLength`. */
  kvCapacity?: number;
  /**
   * Experimental: trades accuracy for speed. Needs data that `sluice convert` measures. Loads the
   * full engine (`engine.*-full.wasm`).
   */
  approximate?: ApproximateOptions;
  /**
   * Compute threads, at most 64. More than one needs cross-origin isolation. Default: chosen by the
   * device. One less if the budget is below half of the model and the threads cannot read the file
   * themselves (a Blob, no cache, or a file system that opens a file only once).
   */
  threads?: number;
  /**
   * 'wasm': the CPU computes. 'webgpu': the GPU computes; if it is lost, the CPU continues at the
   * same token. NOT_SUPPORTED if there is no GPU or it cannot run the model. 'auto': measures both
   * (see Engine.inspect) and uses the faster one for prefill and for decoding. Default 'wasm'.
   */
  device?: Device;
  /**
   * Which GPU to use on a machine that has several: 'low-power' saves battery. WebGPU takes it as a hint. Default
   * 'high-performance'.
   */
  powerPreference?: PowerPreference;
  /**
   * Bytes, or a text such as '2G', for weights, KV cache and activations on the GPU. Weights that do not fit stream.
   * Default: what the model needs, at most 4 GiB.
   */
  gpuBudget?: number | string;
  /**
   * Number of first layers on the GPU, with all of their weights in `gpuBudget`. The CPU computes
   * the others, within `memoryBudget`. The model's number of layers, or more: the whole model.
   * 'auto': as many as fit. BUDGET_TOO_SMALL if they do not fit, NOT_SUPPORTED if the model cannot
   * be split. Default: all layers, and weights that do not fit stream; with `device: 'auto'`, split
   * if that is measured to be faster.
   */
  gpuLayers?: number | 'auto';
  /** Name of the kernel table, for tests and benchmarks. Default: the fastest. */
  kernels?: string;
  /** Aborts loading. */
  signal?: AbortSignal;
  /**
   * 'default': revalidate with the server, then use the cached file. 'only': never use the network.
   * 'reload': download again. 'none': cache nothing.
   */
  cache?: CacheMode;
  /**
   * Node: directory of the model cache; 'none': no cache. Default: SLUICE_CACHE, else
   * `~/.cache/sluice` (docs/model-cache.md).
   */
  cacheDir?: string;
  /** Called at most ten times per second, and immediately for warnings. */
  onProgress?: (event: ProgressEvent) => void;
  /**
   * Structured output (`jsonSchema`, `grammar`, `regex`, `choice`, strict tools) takes about 15 MB
   * of the budget. true: set aside at load. Default: when a call first needs it; the same budget is
   * planned again then, so fewer weights may stay in memory. false: never; such calls fail.
   */
  structuredOutput?: boolean;
  /**
   * Measures where the time of forward passes goes, for `stats().timeBreakdown`: one reading of the
   * clock per operation. Default false.
   */
  timeBreakdown?: boolean;
  /**
   * Speculative decoding: tokens are drafted, and one forward pass verifies several of them. The
   * output is the same. 'ngram' drafts from repetitions in the text. A draft model is a smaller
   * model with the same vocabulary; it is used where it promises more than n-grams. It is
   * downloaded and cached like any model, gets the memory that keeps it resident (at most half of
   * `memoryBudget`), and computes on the same threads, also where the model is on a GPU. Default
   * false: no drafting.
   */
  draft?: 'ngram' | ModelSource | false;
  /**
   * The model's vision projector, a GGUF file (`mmproj`) or a Hugging Face directory: prompts can
   * then have pictures. It is downloaded and cached like any model; while a picture is read, its
   * encoder takes its memory out of the same `memoryBudget`. If a GPU computes, it runs there, within
   * what `gpuBudget` has left. Loads the full engine (`engine.*-full.wasm`). true: the one beside the
   * model: in its repository on Hugging Face, among its files if it is a list of them, or (Node) in
   * its directory; if the model is a Hugging Face directory, the one in its checkpoint.
   */
  projector?: ModelSource | boolean;
  /** Limits of the tokens of one picture. Default: the projector's own. */
  imageTokens?: { min?: number; max?: number };
  /**
   * Continuous batching: number of sessions and chats, 1 to 64, whose requests share each forward
   * pass. Results are the same as alone, on a GPU up to rounding. The budget holds one KV cache for
   * each, and so does `gpuBudget`. Models with bidirectional attention run one request at a time.
   * Default 1.
   */
  parallel?: number;
  /**
   * LoRA adapters. They count toward the budget. An adapter that does not fit the model is an error
   * that names the reason.
   */
  lora?: readonly (LoraAdapter | string)[];
  /**
   * HTTP headers of requests for the model's files and adapters, sent to the origin of the model's
   * address only. In Node they do not follow a redirect to another origin. Browsers hide redirects:
   * they keep Authorization from other origins, but no other header. Never stored.
   */
  headers?: Headers | Record<string, string> | readonly (readonly [string, string])[];
  /**
   * Access token of Hugging Face, sent to its endpoint only, as `Authorization: Bearer`. It follows
   * no redirect to another origin. Never stored. Default in Node: the variable HF_TOKEN.
   */
  token?: string;
  /**
   * Used in place of the global fetch() for model files and adapters, in the thread that calls
   * load(). It receives headers and `token`, and has to support `Range` and `signal`.
   */
  fetch?: typeof globalThis.fetch;
  /**
   * Address of a mirror of Hugging Face for hf: references and `token`. Default
   * https://huggingface.co; in Node the variable HF_ENDPOINT.
   */
  hfEndpoint?: string | URL;
  /** Address of the engine's .wasm file, if it is not beside the script. */
  wasmUrl?: string | URL;
  /** Bytes of the engine's .wasm file, if it cannot be fetched. */
  wasmBinary?: Uint8Array | ArrayBuffer;
  /**
   * Address of the worker script, if it is not beside the script. On another origin it must allow
   * CORS.
   */
  workerUrl?: string | URL;
  /** false: no I/O worker even where one is possible. Default true. */
  ioWorker?: boolean;
  /** @internal */
  tuning?: IoTuning;
}

/** Options of Engine.load. */
export type EngineOptions = InspectOptions;

/** How text is tokenized. */
export interface TokenizeOptions {
  /** Add BOS and other tokens that the model's metadata asks for. Default true. */
  addSpecial?: boolean;
  /** Parse control tokens such as "<|im_end|>" in the text. Default true. */
  parseSpecial?: boolean;
  /**
   * Text between U+FDD0 and U+FDD1 is never parsed for control tokens. The two marks are removed.
   * Default false.
   */
  literalSpans?: boolean;
  /** The text continues earlier text: no BOS, no space before its first word. Default false. */
  continuation?: boolean;
}

/**
 * A picture: the file (PNG, JPEG, WebP, GIF, BMP) as an address, Blob or bytes; pixels as ImageData;
 * or what the page shows: an image, canvas or video element, or an ImageBitmap.
 */
export type ImageSource =
  | string
  | URL
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | { readonly width: number; readonly height: number };

/** Options of a generation. The tokenizer options apply to prompts that are strings. */
export interface GenerateOptions extends SamplingOptions, TokenizeOptions {
  /** Maximum number of tokens. Default: until the model ends or the context is full. */
  maxTokens?: number;
  /** Strings that end the generation. They are not part of the text. */
  stop?: string | readonly string[];
  /** Tokens that end the generation. They are not part of the text. */
  stopTokenIds?: ArrayLike<number>;
  /** Aborts the generation. Everything pending rejects with the signal's reason. */
  signal?: AbortSignal;
  /**
   * true: log-probability of each token. A number: also that many of the most likely tokens. They
   * are the model's own: sampling options, `logitBias` and constraints do not change them.
   */
  logprobs?: boolean | number;
  /**
   * true: `logprobs` are those of the distribution from which the token was drawn, after sampling
   * options and constraints. Only tokens that could be drawn are listed. Default false.
   */
  postSamplingProbs?: boolean;
  /**
   * Pictures for a model with a projector: each `<__media__>` in the prompt, which must be a string,
   * stands for the next one. A prompt of parts has its pictures there. A picture counts as tokens:
   * `engine.imageCost()`.
   */
  images?: readonly ImageSource[];
  /** Control tokens produce no text. Default true. */
  skipSpecialTokens?: boolean;
  /** Reuse the part of the prompt that is already in the KV cache. Default true. */
  cachePrompt?: boolean;
  /** Continue after an end token. Default false. */
  ignoreEos?: boolean;
  /**
   * Structured output: a GBNF grammar, in llama.cpp's syntax, that the output always matches. At
   * most one of `grammar`, `regex`, `choice` and `jsonSchema`. Errors:
   * GRAMMAR_SYNTAX, GRAMMAR_LEFT_RECURSION, GRAMMAR_TOO_LARGE, SCHEMA_UNSUPPORTED, and
   * BUDGET_TOO_SMALL where `structuredOutput` does not fit.
   */
  grammar?: string;
  /** A regular expression that the complete output matches. */
  regex?: string;
  /** The output is one of these strings. */
  choice?: readonly string[];
  /**
   * A JSON Schema (draft 7 or 2020-12), as an object or as JSON text, or a schema object of Zod,
   * Valibot and similar libraries. true: any JSON. A keyword that cannot be enforced is the error SCHEMA_UNSUPPORTED.
   */
  jsonSchema?: object | string | boolean;
}

/**
 * Type-level split at spaces. Used to check that a list of option names matches the interface that
 * declares them.
 */
export type SplitNames<Text extends string> = Text extends `${infer Word} ${infer Rest}`
  ? Word | SplitNames<Rest>
  : Text;

export type AssertSameKeys<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never;
