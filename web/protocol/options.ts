// The options that callers pass, as the API's rooms share them; what is checked of them, and how
// they travel, is in api/options.ts.

import type { IoTuning } from './messages.js';
import type { CacheMode, Device, ProgressEvent, SamplingOptions } from './types.js';

/**
 * A URL (absolute, relative, hf:owner/repo/file.gguf, or a path in Node), a File or Blob, or the
 * parts of a split model.
 */
export type ModelSource = string | URL | Blob | readonly Blob[];

/** A LoRA adapter. */
export interface LoraAdapter {
  /**
   * A GGUF file; or PEFT's: adapter_model.safetensors with adapter_config.json beside it, their
   * folder (ending in /), or both as Files.
   */
  source: ModelSource;
  /** 0: as if it were not there. Default 1. */
  scale?: number;
}

/** Experimental ways to compute less than the whole model. */
export interface ApproximateOptions {
  /**
   * Share of the skippable layers that are skipped, the least important first: 0 to 1. Needs a file
   * made by `sluice convert --calibrate`. Default 0.
   */
  skipLayersRatio?: number;
  /**
   * Clusters of the output head to compute, 1 to 256, or 'exact': as many as find the largest
   * logit. Other tokens get their cluster's logit. CPU only. Needs a file made by `sluice convert
   * --cluster-head`. Default: 'off', unless layers are skipped.
   */
  headClusters?: number | 'exact' | 'off';
}

/** How a model is opened. */
export interface InspectOptions {
  /**
   * Bytes that the engine may hold: weights, KV cache, activations, tokenizer and scratch together.
   * It is the hard maximum of the engine's memory. Default: the whole model where the device has
   * room for it, else what the device can give.
   */
  memoryBudget?: number;
  /** Positions of the KV cache. Default: the model's own, at most 4096. */
  contextLength?: number;
  /**
   * What keys and values are kept as: f16, q8_0, q4_0 or q2, or one for each, such as 'q8_0,q4_0'.
   * The fewer bits, the longer the context in the same bytes. auto: the best that takes a quarter
   * of the budget. Default f16.
   */
  kvType?: string;
  /**
   * A cache that is full: 'full', an error, or 'window', which forgets all but the first and the
   * last positions, as if those between had never been: a text goes on without end. 'heavy-hitter'
   * keeps also those that have been attended to most, a quarter of the cache (keys not in q2).
   * Default full.
   */
  kvPolicy?: 'full' | 'window' | 'heavy-hitter';
  /** Of window and heavy-hitter: how many first positions are kept. Default 4. */
  kvSinks?: number;
  /** Of both: the positions that there is memory for. Default `contextLength`. */
  kvCapacity?: number;
  /**
   * Experimental: trades accuracy for speed. Not exact. Files need what `sluice convert` measures.
   */
  approximate?: ApproximateOptions;
  /**
   * Threads that compute; more than one needs cross-origin isolation. Default: chosen by the
   * device, and one less where the budget is below half of the model and they cannot read it
   * themselves (a Blob, no store, or a store that opens a file once).
   */
  threads?: number;
  /**
   * webgpu: a GPU computes, and the CPU goes on at the same place when it is lost;
   * NOT_SUPPORTED where there is none, or the model needs what it does not do. auto: both are
   * measured first (see Engine.inspect, which says what comes of it), and prompts and tokens each
   * go to the faster one. Default wasm.
   */
  device?: Device;
  /**
   * Bytes that weights, keys, values and activations may take on the GPU; weights that do not fit
   * stream. Default: as many as the model wants, at most 4 GiB.
   */
  gpuBudget?: number;
  /**
   * How many first layers the GPU computes, with all of their weights in `gpuBudget`; the CPU
   * computes the others, within `memoryBudget`. As many as the model has, or more: all of it. auto:
   * as many as fit. BUDGET_TOO_SMALL where they do not fit, NOT_SUPPORTED where the model cannot be
   * split. Default: all, and what does not fit streams; with `device: 'auto'` split where that is
   * measured to be faster.
   */
  gpuLayers?: number | 'auto';
  /** Kernel table by name, for tests and measurements. Default: the best. */
  kernels?: string;
  /** Aborts the loading. */
  signal?: AbortSignal;
  /**
   * default: check with the server, then use what is stored; only: never use the network; reload:
   * fetch anew; none: store nothing. In Node nothing is stored unless `cacheDir` is given.
   */
  cache?: CacheMode;
  /** Node: the store's directory. */
  cacheDir?: string;
  /** Called at most ten times a second, and for warnings at once. */
  onProgress?: (event: ProgressEvent) => void;
  /**
   * Sets memory aside, some 15 MB of the budget, so that answers can be bound to grammars. Default
   * false.
   */
  structuredOutput?: boolean;
  /**
   * Tokens are guessed and several of them checked in one pass; the answers are the same. ngram:
   * from what the text repeats. A model: also by that one, smaller and with the same vocabulary,
   * wherever it promises more. It is read and stored as any other, holds what keeps it in memory
   * whole, but at most half of `memoryBudget`, and computes on the same threads; on the CPU alone.
   * Default: none.
   */
  draft?: 'ngram' | ModelSource | false;
  /**
   * Answers of so many sessions and chats (1 to 64) are computed at once, each weight being read
   * once for all of them; each is what it would be alone. Each has its keys and values in the
   * budget. On the CPU alone; models that read texts whole answer one at a time. Default 1.
   */
  parallel?: number;
  /**
   * Adapters over the model, which count in the budget; what does not fit the model is refused by
   * name.
   */
  lora?: readonly (LoraAdapter | string)[];
  /** The engine's wasm, where it is not next to the script. */
  wasmUrl?: string | URL;
  /** The engine's wasm itself, where it cannot be fetched. */
  wasmBinary?: Uint8Array | ArrayBuffer;
  /**
   * The worker script, where it is not next to the script; of another origin it must be readable
   * (CORS).
   */
  workerUrl?: string | URL;
  /** False: no I/O worker even where one is possible. */
  ioWorker?: boolean;
  /** @internal */
  tuning?: IoTuning;
}

/** What Engine.load takes. */
export type EngineOptions = InspectOptions;

/** How a text becomes tokens. */
export interface TokenizeOptions {
  /** Prepend BOS as the model's metadata says. Default true. */
  addSpecial?: boolean;
  /** Read "<|im_end|>" and the like as control tokens. Default true. */
  parseSpecial?: boolean;
  /** What stands between U+FDD0 and U+FDD1 is never read so; the two vanish. Default false. */
  literalSpans?: boolean;
  /** The text goes on from other text: no BOS, no space before its first word. Default false. */
  continuation?: boolean;
}

/** What a generation takes; `addSpecial` and the like are of text prompts. */
export interface GenerateOptions extends SamplingOptions, TokenizeOptions {
  /** Default: until the context is full or the model ends. */
  maxTokens?: number;
  /** Strings that end the text; they are not part of it. */
  stop?: string | readonly string[];
  /** Aborts it: everything pending rejects with its reason. */
  signal?: AbortSignal;
  /** true: the log-probability of each token; a number: also so many of the likeliest. */
  logprobs?: boolean | number;
  /** Give control tokens no text. Default true. */
  skipSpecialTokens?: boolean;
  /** Keep what the KV cache already holds of this prompt. Default true. */
  cachePrompt?: boolean;
  /** Go on after an end token. Default false. */
  ignoreEos?: boolean;
  /**
   * GBNF, as llama.cpp reads it, that the answer follows to its last byte. At most one of these
   * four; the engine is loaded with `structuredOutput: true`. Errors: GRAMMAR_SYNTAX,
   * GRAMMAR_LEFT_RECURSION, GRAMMAR_TOO_LARGE, SCHEMA_UNSUPPORTED.
   */
  grammar?: string;
  /** A regular expression that the whole answer matches. */
  regex?: string;
  /** The answer is one of these texts. */
  choice?: readonly string[];
  /**
   * A JSON Schema (drafts 7 and 2020-12), or an object of Zod's, Valibot's and the like that has
   * one; true: any JSON. What cannot be guaranteed is refused by its keyword.
   */
  jsonSchema?: object | boolean;
}

/**
 * The words of a text, as a type: a list of names is held against the interface that declares them.
 */
export type SplitNames<Text extends string> = Text extends `${infer Word} ${infer Rest}`
  ? Word | SplitNames<Rest>
  : Text;

export type AssertSameKeys<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never;
