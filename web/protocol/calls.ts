// What can be asked of a worker, by the names of its calls: the type that both ends of rpc.ts
// share, so that a caller and what answers it cannot drift apart. A call is { id, method, args }
// and is answered by { id, result } or { id, error }.

import type { PlainError } from './errors.js';
import type {
  AdapterSpec,
  Embedded,
  EmbedSpec,
  GenerateSpec,
  LoadSpec,
  Snapshot,
  TokenizeSpec,
} from './messages.js';
import type { EngineStats, GenerationResult, ModelInfo, SavedState } from './types.js';

/** Calls by name; a type, not an interface, so that every one of them is known to be a function. */
export type Calls = Record<string, (...args: never[]) => unknown>;

/** How they are called. */
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
 * The engine's worker. Work waits in one line; `cancel` and what only asks the tokenizer does not.
 */
export type EngineCalls = {
  /** Opens a model. `held`: nothing is read yet beside the header, until begin(). */
  load(spec: LoadSpec, held: boolean): Loaded;
  begin(left: HandoverState | null, download: boolean): Snapshot;
  inspect(spec: LoadSpec): ModelInfo;
  generate(id: number, spec: GenerateSpec): GenerationResult;
  cancel(id: number): void;
  tokenize(text: string, spec: TokenizeSpec): Int32Array;
  embed(id: number, texts: readonly (string | Int32Array)[], spec: EmbedSpec): Embedded;
  controlTexts(): string[];
  detokenize(tokens: Int32Array, special: boolean): string;
  logits(tokens: Int32Array): Float32Array;
  saveState(sequence: number): SavedState;
  restoreState(sequence: number, state: Uint8Array): void;
  fork(from: number, to: number): void;
  forget(sequence: number): void;
  setAdapters(lora: AdapterSpec[]): void;
  /** Closes what an engine of another budget is to open; resume() takes it back. */
  release(budget: number): HandoverState;
  resume(): void;
  dispose(handedOver: boolean): void;
};

/** A state that waits, in memory or under a name among the swap files. */
export type Swapped = { size: number } & ({ bytes: Uint8Array } | { name: string });

/** A sequence that the engine does not hold. */
export interface Waiting {
  tokens: Int32Array;
  /** null: its tokens have to be computed again. */
  swapped: Swapped | null;
}

/** All sequences of an engine that leaves, for the one that follows it. */
export type HandoverSequences = [id: number, waiting: Waiting][];

/** The counters that the worker itself keeps; bytes are those of engines before this one. */
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

/** What an engine leaves to the one of another budget. */
export interface HandoverState {
  stats: OwnStats;
  sequences: HandoverSequences;
}
