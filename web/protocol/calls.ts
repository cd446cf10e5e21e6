// Signatures of the calls to a worker, by name. Both ends of rpc.ts are typed by them, so callers
// and handlers cannot diverge. A call is { id, method, args }; its reply is { id, result } or
// { id, error }.

import type { PlainError } from './errors.js';
import type {
  AdapterSpec,
  Embedded,
  EmbedSpec,
  GenerateSpec,
  LayoutSpec,
  LoadSpec,
  Snapshot,
  TokenizeSpec,
} from './messages.js';
import type { EngineStats, GenerationResult, ImageCost, ModelInfo, SavedState } from './types.js';

/** Calls by name. A type, not an interface, so that TypeScript knows each member is a function. */
export type Calls = Record<string, (...args: never[]) => unknown>;

/** Function that makes a call by name. */
export type Caller<Served extends Calls> = <Name extends keyof Served & string>(
  method: Name,
  ...args: Parameters<Served[Name]>
) => Promise<ReturnType<Served[Name]>>;

export interface Call {
  id: number;
  method: string;
  args: unknown[];
}
export type Reply = { id: number; result: unknown } | { id: number; error: PlainError };

/**
 * Calls of the engine's worker. They are queued; `cancel` and calls that only use the tokenizer run
 * immediately.
 */
export type EngineCalls = {
  /** Opens a model. `held`: reads only the header until begin(). */
  load(spec: LoadSpec, held: boolean): Loaded;
  begin(left: HandoverState | null, download: boolean): Snapshot;
  inspect(spec: LoadSpec): ModelInfo;
  /** `read`: the prompt's tokens, if it has pictures. */
  generate(id: number, spec: GenerateSpec): GenerationResult & { read?: Int32Array };
  /** Tokens of a prompt with pictures. */
  layout(prompt: string, spec: LayoutSpec): Int32Array;
  cancel(id: number): void;
  tokenize(text: string, spec: TokenizeSpec): Int32Array;
  embed(id: number, texts: readonly (string | Int32Array)[], spec: EmbedSpec): Embedded;
  controlTokens(): string;
  detokenize(tokens: Int32Array, special: boolean): string;
  /** Bytes of each token, and the names of control tokens. */
  tokenBytes(tokens: Int32Array): Uint8Array[];
  logits(id: number, tokens: Int32Array): Float32Array;
  saveState(sequence: number): SavedState;
  restoreState(sequence: number, state: Uint8Array): void;
  fork(from: number, to: number): void;
  /** What a picture of this size costs. */
  imageCost(width: number, height: number): ImageCost;
  forget(sequence: number): void;
  setAdapters(lora: AdapterSpec[]): void;
  /**
   * Closes the files so that an engine with another budget can open them. resume() reopens them.
   */
  release(): HandoverState;
  resume(): void;
  dispose(handedOver: boolean): boolean;
};

/** State of a swapped-out sequence: in memory, or in the swap file `name`. */
export type Swapped = { size: number } & ({ bytes: Uint8Array } | { name: string });

/** A sequence that is swapped out. */
export interface Waiting {
  tokens: Int32Array;
  /** null: the state was not kept, and the tokens must be recomputed. */
  swapped: Swapped | null;
}

/** All sequences of an engine, for the engine that replaces it. */
export type HandoverSequences = [id: number, waiting: Waiting][];

/** Counters that the worker keeps itself. Byte counters are those of previous engines. */
export type OwnStats = Omit<
  EngineStats,
  | 'bytesCached'
  | 'bytesTotal'
  | 'kvTokens'
  | 'draftedTokens'
  | 'acceptedTokens'
  | 'forwardPasses'
  | 'engine'
>;

export interface Loaded {
  info: ModelInfo;
  module: WebAssembly.Module;
  snapshot: Snapshot;
}

/** State that an engine hands over to the engine with another budget. */
export interface HandoverState {
  stats: OwnStats;
  sequences: HandoverSequences;
}
