// The shapes of OpenAI's chat completions and completions, as far as a local model fills them. They
// are assignable to the types of the openai package (tests/web/openai-types.ts proves it).

import type { GenerationResult } from '../protocol/types.js';
import type { ChatMessage } from './engine.js';

/** A call of a function, as the model wrote it. */
export interface ToolCall {
  /** Nine letters and digits, which is what Mistral's templates insist on. */
  id: string;
  /** Only functions can be called. */
  type: 'function';
  /** `arguments` is JSON in a string, as OpenAI has it. */
  function: { name: string; arguments: string };
}

/** Tokens of one call. */
export interface CompletionUsage {
  /** Tokens of the prompt. */
  prompt_tokens: number;
  /** Tokens that were generated. */
  completion_tokens: number;
  /** Both together. */
  total_tokens: number;
  /** Prompt tokens that the KV cache already held. */
  prompt_tokens_details: { cached_tokens: number };
}

/** Not OpenAI's: durations and rates, as in GenerationResult. */
export type Timings = GenerationResult['timings'];

/** Parameters of OpenAI's that mean nothing here: they are accepted, and change nothing. */
export interface IgnoredParams {
  /** Ignored. */
  user?: unknown;
  /** Ignored. */
  store?: unknown;
  /** Ignored. */
  metadata?: unknown;
  /** Ignored. */
  service_tier?: unknown;
  /** Ignored. */
  safety_identifier?: unknown;
  /** Ignored. */
  prompt_cache_key?: unknown;
  /** Ignored. */
  prompt_cache_options?: unknown;
  /** Ignored. */
  prompt_cache_retention?: unknown;
}

/**
 * What chat and text completions have in common; a parameter that is not known is refused by name.
 */
export interface SamplingParams extends IgnoredParams {
  /** Ignored: an engine has one model. */
  model?: string;
  /** true: the call resolves to a stream of chunks. */
  stream?: boolean | null;
  /** include_usage: a last chunk without choices has the usage. */
  stream_options?: { include_usage?: boolean; include_obfuscation?: boolean } | null;
  /** 0: greedy. Default 0.8. */
  temperature?: number | null;
  /** 1: off. Default 0.95. */
  top_p?: number | null;
  /** Not OpenAI's: as in GenerateOptions. */
  top_k?: number | null;
  /** As in GenerateOptions. */
  min_p?: number | null;
  /** As in GenerateOptions. */
  repeat_penalty?: number | null;
  /** Most tokens of the answer. */
  max_tokens?: number | null;
  /** Strings that end the answer; they are not part of it. */
  stop?: string | readonly string[] | null;
  /** The same seed gives the same answer; as in GenerateOptions. */
  seed?: number | bigint | null;
  /** Only 1. */
  n?: number | null;
  /** Lowers tokens by how often they have come. */
  frequency_penalty?: number | null;
  /** Lowers tokens that have come at all. */
  presence_penalty?: number | null;
  /** Added to the logits of these token ids; -Infinity bans one. */
  logit_bias?: Record<string, number> | null;
  /** Aborts the call; the second argument of create() takes one too. */
  signal?: AbortSignal;
}

/** A function that the model may call; `parameters` is a JSON schema. */
export interface ChatTool {
  /** Only functions can be called. */
  type: 'function';
  /**
   * Its name, what it does, and the JSON schema of its arguments (or an object of Zod's and the
   * like that has one). `strict`: the arguments can be nothing else; the engine is loaded with
   * `structuredOutput: true`.
   */
  function: {
    name: string;
    description?: string;
    parameters?: Record<string, unknown>;
    strict?: boolean | null;
  };
}

/**
 * Text, any JSON object, or a value of a JSON schema (or of an object of Zod's and the like that
 * has one): what cannot be guaranteed of a schema is refused by its keyword, strict or not.
 */
export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | {
      type: 'json_schema';
      json_schema: {
        name?: string;
        description?: string;
        schema?: object;
        strict?: boolean | null;
      };
    };

/** What chat.completions.create takes. */
export interface ChatCompletionParams extends SamplingParams {
  /** The conversation; the answer continues it. */
  messages: readonly ChatMessage[];
  /** Most tokens of the answer; goes before max_tokens. */
  max_completion_tokens?: number | null;
  /** true: the log-probability of each token. */
  logprobs?: boolean | null;
  /** Also so many of the likeliest tokens. */
  top_logprobs?: number | null;
  /**
   * Functions that the model may call: the template shows them to it, its calls become
   * `tool_calls`.
   */
  tools?: readonly (ChatTool | { type: string })[];
  /**
   * 'none' keeps the tools from the model. 'required' and a named function make the answer begin as
   * a call, which needs a template that knows tools; loaded with `structuredOutput: true`, the
   * engine thinks first where the model does, and completes the call. Default: 'auto'.
   */
  tool_choice?: 'none' | 'auto' | 'required' | { type: string; function?: { name: string } };
  /**
   * false: one call at most, where the answer is bound to a form (`strict`, or a call that is
   * required). Default: true.
   */
  parallel_tool_calls?: boolean | null;
  /** What the content is. JSON needs an engine that was loaded with `structuredOutput: true`. */
  response_format?: ResponseFormat | { type: string } | null;
  /** A Jinja template in place of the model's, and further variables for it. */
  chat_template?: string;
  /** Further variables for the template, such as enable_thinking. */
  chat_template_kwargs?: Record<string, unknown>;
  /**
   * Read "<|im_end|>" and the like in messages, tools and arguments as control tokens. Default:
   * false, they are text.
   */
  parse_special_in_content?: boolean;
  /** 'none' leaves <think>…</think> in the content. Default 'deepseek': reasoning_content. */
  reasoning_format?: 'deepseek' | 'none';
}

/** What completions.create takes. */
export interface CompletionParams extends SamplingParams {
  /** A text, or token ids. */
  prompt: string | ArrayLike<number> | readonly string[];
  /** So many of the likeliest tokens. */
  logprobs?: number | null;
  /** Not OpenAI's here: what the text is, as in chat. */
  response_format?: ResponseFormat | { type: string } | null;
}

/** A token of an answer and the likeliest in its place. */
export interface ChatTokenLogprob {
  /** Its text. */
  token: string;
  /** Natural logarithm of its probability. */
  logprob: number;
  /** Its text in UTF-8; null when it has none. */
  bytes: number[] | null;
  /** The likeliest tokens, best first. */
  top_logprobs: { token: string; logprob: number; bytes: number[] | null }[];
}

/** Log-probabilities of an answer. */
export interface ChatLogprobs {
  /** One entry a token. */
  content: ChatTokenLogprob[] | null;
  /** Always null. */
  refusal: null;
}

/** A whole answer. */
export interface ChatCompletion {
  /** Unique: chatcmpl- and 24 hexadecimal digits. */
  id: string;
  /** 'chat.completion'. */
  object: 'chat.completion';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** Exactly one. */
  choices: {
    index: number;
    message: {
      role: 'assistant';
      /** null when the answer consists of tool calls alone. */
      content: string | null;
      refusal: null;
      reasoning_content?: string;
      tool_calls?: ToolCall[];
    };
    logprobs: ChatLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls';
  }[];
  /** Tokens read and written. */
  usage: CompletionUsage;
  /** Not OpenAI's: durations and rates. */
  timings: Timings;
}

/** A piece of a streamed answer. */
export interface ChatCompletionChunk {
  /** The same for all chunks of an answer. */
  id: string;
  /** 'chat.completion.chunk'. */
  object: 'chat.completion.chunk';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** One; none in the chunk that has the usage. */
  choices: {
    index: number;
    /** A tool call comes whole, in one delta. */
    delta: {
      role?: 'assistant';
      content?: string;
      reasoning_content?: string;
      tool_calls?: ({ index: number } & ToolCall)[];
    };
    logprobs?: ChatLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls' | null;
  }[];
  /** In the last chunk, when stream_options.include_usage is set. */
  usage?: CompletionUsage | null;
  /** In the chunk that carries finish_reason. */
  timings?: Timings;
}

/** Log-probabilities of a completion, in lists as long as it has tokens. */
export interface CompletionLogprobs {
  /** The tokens' texts. */
  tokens: string[];
  /** Natural logarithms of their probabilities. */
  token_logprobs: number[];
  /** The likeliest tokens in each place. */
  top_logprobs: Record<string, number>[];
  /** Where each token begins in the text. */
  text_offset: number[];
}

/** A whole completion. */
export interface Completion {
  /** Unique: cmpl- and 24 hexadecimal digits. */
  id: string;
  /** 'text_completion'. */
  object: 'text_completion';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** Exactly one. */
  choices: {
    index: number;
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: 'stop' | 'length';
  }[];
  /** Tokens read and written. */
  usage?: CompletionUsage;
  /** Not OpenAI's: durations and rates. */
  timings?: Timings;
}

/** A streamed piece of a Completion. */
export interface CompletionChunk extends Omit<Completion, 'choices'> {
  /**
   * The next piece of the text, with the finish reason when it is the last; none in the chunk that
   * has the usage.
   */
  choices: (Omit<Completion['choices'][number], 'finish_reason'> & {
    finish_reason: 'stop' | 'length' | null;
  })[];
}
