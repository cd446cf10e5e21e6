// All public names of the package. The entries for browsers and Node re-export them.

export { Engine } from './engine.js';
export type { WeightUnit } from './weight-units.js';
export type {
  ApproximateOptions,
  EngineOptions,
  GenerateOptions,
  InspectOptions,
  LoraAdapter,
  ModelSource,
  TokenizeOptions,
} from '../protocol/options.js';
export { ChatCompletions, ChatStream, Completions } from '../chat/completions.js';
export type { Embeddings } from './embeddings.js';
export type { EmbedOptions, Pooling, RerankResult, RerankOptions } from './embedding.js';
export type * from '../chat/openai.js';
export type {
  ChatMessage,
  ChatRole,
  ContentPart,
  PromptOptions,
  RenderedChat,
  ImagePart,
  TextPart,
} from '../chat/engine.js';
export { Session, type SavedSession, type SessionOptions } from './session.js';
export { Generation } from './generation.js';
export {
  SluiceError,
  type CallOptions,
  type ErrorCode,
  type WarningCode,
} from '../protocol/errors.js';
export type {
  GpuKernels,
  Device,
  DeviceSelection,
  EngineStats,
  FinishReason,
  GenerationResult,
  KvType,
  KvTypes,
  MemoryPlan,
  MemoryReport,
  ModelInfo,
  GeneratedToken,
  ProgressEvent,
  SamplingOptions,
  SavedState,
  SpeedEstimate,
  TimeBreakdown,
  TokenLogprob,
  UnitState,
} from '../protocol/types.js';
export type { CacheMode } from '../protocol/types.js';
export type {
  CachedFile,
  CachedModel,
  ModelCacheOptions,
  StoreManager,
} from '../io/store-manager.js';
