// Every public name of the package, whatever the platform.

export { Engine, type EngineOptions, type GenerateOptions, type InspectOptions, type LayerState, type ModelSource } from './engine.js';
export { ChatCompletions, ChatStream, Completions } from './completions.js';
export type * from './openai.js';
export type { ChatMessage, TextPart } from './prompt.js';
export { Session, type SavedSession, type SessionOptions } from './session.js';
export type { SavedState } from './engine.js';
export { Generation } from './generation.js';
export { SluiceError, type CallOptions, type ErrorCode } from './errors.js';
export type {
  EngineStats,
  FinishReason,
  GenerationResult,
  MemoryPlan,
  MemoryReport,
  ModelInfo,
  Piece,
  ProgressEvent,
  SamplingOptions,
  SpeedEstimate,
  TokenLogprob,
  UnitState,
} from './protocol.js';
export type { CacheMode } from './remote-file.js';
export type { StoredModel, StoreManager } from './store-manager.js';
