// Compiled, never run: which values the options with a fixed set of values accept. Anything else is
// a compile error, so an option whose type became `string` fails here.
import type OpenAI from 'openai';
import type {
  CacheMode,
  ChatCompletion,
  ChatCompletionParams,
  ChatMessage,
  CompletionParams,
  Device,
  EmbeddingParams,
  EmbedOptions,
  EngineOptions,
  FinishReason,
  KvType,
  KvTypes,
  ProgressEvent,
  ResponseFormat,
  ToolChoice,
} from '../../web/api/public.js';

/** Whether values of a type are accepted where another type is declared. */
type Fits<Value, Type> = [Value] extends [Type] ? true : false;
/** Whether both types have the same values. */
type Equals<A, B> = [Fits<A, B>, Fits<B, A>] extends [true, true] ? true : false;

true satisfies Equals<CacheMode, 'default' | 'only' | 'reload' | 'none'>;
true satisfies Equals<EngineOptions['cache'], CacheMode | undefined>;
true satisfies Equals<Device, 'wasm' | 'webgpu' | 'auto'>;
true satisfies Equals<EngineOptions['device'], Device | undefined>;
true satisfies Equals<EngineOptions['gpuLayers'], number | 'auto' | undefined>;
true satisfies Equals<EngineOptions['kvPolicy'], 'full' | 'window' | 'heavy-hitter' | undefined>;
true satisfies Equals<EmbedOptions['pooling'], 'none' | 'mean' | 'cls' | 'last' | undefined>;
true satisfies Equals<EmbeddingParams['encoding_format'], 'float' | 'base64' | null | undefined>;
true satisfies Equals<FinishReason, 'stop' | 'length' | 'cancelled'>;

true satisfies Equals<KvType, 'f16' | 'q8_0' | 'q4_0' | 'q2'>;
true satisfies Equals<EngineOptions['kvType'], KvTypes | 'auto' | undefined>;
true satisfies Fits<KvType | 'q8_0,q4_0' | 'f16,q2', KvTypes>;
false satisfies Fits<'auto', KvTypes>; // what was chosen
false satisfies Fits<'q5_0', EngineOptions['kvType']>;
false satisfies Fits<'auto,f16', EngineOptions['kvType']>;
false satisfies Fits<'f16,f16,f16', EngineOptions['kvType']>;

true satisfies Fits<'ngram' | 'small.gguf' | URL | Blob | false, EngineOptions['draft']>;
false satisfies Fits<true, EngineOptions['draft']>;

true satisfies Equals<ChatMessage['role'], 'system' | 'developer' | 'user' | 'assistant' | 'tool'>;
true satisfies Fits<{ role: 'user'; content: { type: 'text'; text: string }[] }, ChatMessage>;
false satisfies Fits<{ role: 'bot'; content: string }, ChatMessage>;
false satisfies Fits<{ role: 'user'; content: { type: 'image_url' }[] }, ChatMessage>;

type Format = ChatCompletionParams['response_format'];
true satisfies Equals<Format, ResponseFormat | null | undefined>;
true satisfies Equals<CompletionParams['response_format'], Format>;
true satisfies Equals<ResponseFormat['type'], 'text' | 'json_object' | 'json_schema'>;
true satisfies Fits<OpenAI.ResponseFormatText | OpenAI.ResponseFormatJSONObject, Format>;
true satisfies Fits<OpenAI.ResponseFormatJSONSchema, Format>;
false satisfies Fits<{ type: 'json' }, Format>;
false satisfies Fits<{ type: 'json_schema' }, Format>;

type Named = OpenAI.Chat.Completions.ChatCompletionNamedToolChoice;
true satisfies Equals<ChatCompletionParams['tool_choice'], ToolChoice | undefined>;
type Allowed = OpenAI.Chat.Completions.ChatCompletionAllowedToolChoice;
true satisfies Fits<'none' | 'auto' | 'required' | Named | Allowed, ToolChoice>;
true satisfies Fits<ToolChoice, OpenAI.Chat.Completions.ChatCompletionToolChoiceOption>;
false satisfies Fits<'any', ToolChoice>;
false satisfies Fits<{ type: 'function' }, ToolChoice>;

type Tools = ChatCompletionParams['tools'];
true satisfies Fits<{ type: 'function'; function: { name: string } }[], Tools>;
false satisfies Fits<{ type: 'retrieval' }[], Tools>;
false satisfies Fits<{ type: 'function' }[], Tools>;

true satisfies Equals<
  ChatCompletionParams['reasoning_format'],
  'auto' | 'deepseek' | 'none' | undefined
>;
true satisfies Equals<
  ChatCompletion['choices'][number]['finish_reason'],
  'stop' | 'length' | 'tool_calls'
>;

type Warning = Extract<ProgressEvent, { phase: 'warning' }>;
true satisfies Fits<'QUOTA' | 'DEVICE_LOST', Warning['code']>;
false satisfies Fits<string, Warning['code']>;
