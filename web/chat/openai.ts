// Types of the OpenAI-compatible API: chat completions and completions, as far as a local model
// supports them. They are assignable to the openai package's types, which
// tests/web/openai-types.ts checks.

import type { ChatMessage, ChatRole } from './engine.js';

/** A tool call of the model. */
export interface ToolCall {
  /** Unique; nine letters and digits where the chat template requires that. */
  id: string;
  /** Always 'function'. */
  type: 'function';
  /** Name of the function, and its arguments as a JSON string. */
  function: { name: string; arguments: string };
}

/** Token counts of one request. */
export interface CompletionUsage {
  /** Tokens of the prompt. */
  prompt_tokens: number;
  /** Tokens that were generated. */
  completion_tokens: number;
  /** Sum of both. */
  total_tokens: number;
  /** Prompt tokens that were already in the KV cache. */
  prompt_tokens_details: { cached_tokens: number };
}

/** Extension: counts, durations in milliseconds and rates, as in llama-server. */
export interface Timings {
  /** Prompt tokens that were already in the KV cache. */
  cache_n: number;
  /** Prompt tokens that were computed. */
  prompt_n: number;
  /** Duration of prefill. */
  prompt_ms: number;
  /** The same for each token. */
  prompt_per_token_ms: number;
  /** Rate of prefill, in tokens per second. */
  prompt_per_second: number;
  /** Tokens that were generated. */
  predicted_n: number;
  /** Duration of decoding. */
  predicted_ms: number;
  /** The same for each token. */
  predicted_per_token_ms: number;
  /** Rate of decoding, in tokens per second. */
  predicted_per_second: number;
}

/** OpenAI parameters that have no meaning for a local model. They are accepted and ignored. */
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
  prompt_cache_options?: unknown;
  /** Ignored. */
  prompt_cache_retention?: unknown;
}

/**
 * Parameters that chat completions and completions share. An unsupported parameter is the error
 * INVALID_ARGUMENT, which names it.
 */
export interface SamplingParams extends IgnoredParams {
  /**
   * Names the sequence: requests with one key continue the same KV cache, where it is free. At most
   * 256 bytes.
   */
  prompt_cache_key?: string | null;
  /** Ignored: an engine has one model. */
  model?: string;
  /** true: the call resolves to a stream of chunks. Default false. */
  stream?: boolean | null;
  /** include_usage: the last chunk has the usage and no choices. */
  stream_options?: { include_usage?: boolean; include_obfuscation?: boolean } | null;
  /** Sampling temperature. 0: greedy. Default 0.8. */
  temperature?: number | null;
  /** Nucleus sampling. 1: off. Default 0.95. */
  top_p?: number | null;
  /** Extension: `topK` of SamplingOptions. Default 40. */
  top_k?: number | null;
  /** Extension: `minP` of SamplingOptions. Default 0.05. */
  min_p?: number | null;
  /** Extension: `repeatPenalty` of SamplingOptions. Default 1. */
  repeat_penalty?: number | null;
  /** Extension: number of recent tokens that the penalties apply to. -1: all. Default 64. */
  repeat_last_n?: number | null;
  /** Maximum number of tokens to generate. -1: as many as fit. */
  max_tokens?: number | null;
  /** Extension: another name of max_tokens. */
  n_predict?: number | null;
  /** Strings that end the generation. They are not part of the text. */
  stop?: string | readonly string[] | null;
  /** Extension: token ids that end the generation. They are not part of the text. */
  stop_token_ids?: readonly number[] | null;
  /** Extension: continue after an end token. Default false. */
  ignore_eos?: boolean | null;
  /** Extension: reuse the part of the prompt that is in the KV cache. Default true. */
  cache_prompt?: boolean | null;
  /** Extension: number of most likely tokens to return for each position, in `logprobs`. */
  n_probs?: number | null;
  /** Extension: `timings` in every chunk. Default false. */
  timings_per_token?: boolean | null;
  /** Extension: a GBNF grammar that the output matches. */
  grammar?: string | null;
  /** Extension: a JSON schema that the output matches. */
  json_schema?: object | boolean | null;
  /** The same seed gives the same output; see `seed` of SamplingOptions. */
  seed?: number | bigint | null;
  /** Number of choices: only 1 is supported. */
  n?: number | null;
  /** Subtracted from a token's logit for each recent occurrence. Default 0. */
  frequency_penalty?: number | null;
  /** Subtracted once from the logit of a token that occurred recently. Default 0. */
  presence_penalty?: number | null;
  /** Added to the logits of these token ids, -100 to 100. -Infinity or false bans a token. */
  logit_bias?:
    Record<string, number | false> | readonly (readonly [number, number | false])[] | null;
  /**
   * Extension, as in llama-server. true: `logprobs` has probabilities after sampling options and
   * constraints, in `prob` and `top_probs`, in place of the model's own log-probabilities.
   */
  post_sampling_probs?: boolean | null;
  /** Aborts the call. The second argument of create() also takes a signal. */
  signal?: AbortSignal;
}

/** A function that the model may call. */
export interface ChatTool {
  /** Always 'function'. */
  type: 'function';
  /**
   * Name, description, and `parameters`: the JSON schema of the arguments, or a schema object of
   * Zod and similar libraries. `strict`: the arguments always match the schema.
   */
  function: {
    name: string;
    description?: string;
    parameters?: Record<string, unknown>;
    strict?: boolean | null;
  };
}

/**
 * Structured output: text, any JSON object, or JSON that matches a schema. The schema is a JSON
 * Schema or a schema object of Zod and similar libraries. A keyword that cannot be enforced is the
 * error SCHEMA_UNSUPPORTED, whether or not `strict` is set.
 */
export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object'; schema?: object }
  | {
      type: 'json_schema';
      json_schema: {
        name?: string;
        description?: string;
        schema?: object;
        strict?: boolean | null;
      };
    };

/**
 * Whether the model calls tools. 'none': tools are hidden from the model. 'auto': the model decides.
 * 'required' or a named function: the response starts with a tool call. 'allowed_tools': the model
 * may, or must, call one of these functions.
 */
export type ToolChoice =
  | 'none'
  | 'auto'
  | 'required'
  | { type: 'function'; function: { name: string } }
  | {
      type: 'allowed_tools';
      allowed_tools: { mode: 'auto' | 'required'; tools: Record<string, unknown>[] };
    };

/**
 * A message in the types of the openai package, whose interfaces have no index signature. A
 * ChatMessage says more exactly what is supported.
 */
export interface OpenAIMessage {
  /** Who the message is from. 'function' is an old name of 'tool'. */
  role: ChatRole | 'function';
  /** Text, or a list of parts. Parts other than text and refusals are an error. */
  content?: string | readonly { type: string }[] | null;
}

/** Parameters of chat.completions.create(). */
export interface ChatCompletionParams extends SamplingParams {
  /** The conversation. The response continues it. */
  messages: readonly (ChatMessage | OpenAIMessage)[];
  /** Maximum number of tokens to generate. Overrides max_tokens. */
  max_completion_tokens?: number | null;
  /** true: return the log-probability of each token. Default false. */
  logprobs?: boolean | null;
  /** Number of most likely tokens to return for each position. */
  top_logprobs?: number | null;
  /**
   * Functions that the model may call. The chat template presents them to the model, and its calls
   * are returned as `tool_calls`. OpenAI's custom tools are an error.
   */
  tools?: readonly (ChatTool | { type: 'custom' })[];
  /**
   * 'none': tools are hidden from the model. 'auto': the model decides. 'required' or a named
   * function: the response starts with a tool call; the chat template must support tools. The
   * call is complete, and reasoning may come before it, unless the engine was loaded with
   * `structuredOutput: false`. Default 'auto'.
   */
  tool_choice?: ToolChoice;
  /**
   * false: at most one call, if the output is constrained (`strict`, or a required call). Default
   * true.
   */
  parallel_tool_calls?: boolean | null;
  /** Format of the content. */
  response_format?: ResponseFormat | null;
  /**
   * A variable for the chat template. 'none' sets enable_thinking to false instead. Which values
   * have an effect depends on the template.
   */
  reasoning_effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | null;
  /** Extension: end the prompt where the assistant's response begins. Default true. */
  add_generation_prompt?: boolean | null;
  /** Extension: the response continues the last message. Default false. */
  continue_final_message?: boolean | null;
  /** Extension: a Jinja chat template that replaces the model's. */
  chat_template?: string;
  /** Extension: variables for the chat template, such as enable_thinking. */
  chat_template_kwargs?: Record<string, unknown>;
  /**
   * Extension: parse control tokens such as "<|im_end|>" in messages, tools and arguments. Default
   * false: they are plain text.
   */
  parse_special_in_content?: boolean;
  /**
   * Extension: where reasoning is returned. 'deepseek': in reasoning_content. 'none': it stays in
   * the content as <think>…</think>. 'auto' is the default, 'deepseek'.
   */
  reasoning_format?: 'auto' | 'deepseek' | 'none';
}

/** Parameters of completions.create(). */
export interface CompletionParams extends SamplingParams {
  /** A string, or token ids. */
  prompt: string | ArrayLike<number> | readonly string[];
  /** Number of most likely tokens to return for each position. */
  logprobs?: number | null;
  /** Extension: format of the text, as in chat completions. */
  response_format?: ResponseFormat | null;
}

/** Probability of a token, with `post_sampling_probs`. */
export interface TokenProb {
  /** Token id. */
  id: number;
  /** Text of the token. */
  token: string;
  /** Its text in UTF-8; null if it has none. */
  bytes: number[] | null;
  /** Its probability, from 0 to 1. */
  prob: number;
}

/** Log-probabilities at one position. With `post_sampling_probs` it is a TokenProb instead. */
export interface ChatTokenLogprob extends Partial<TokenProb> {
  /** Text of the token. */
  token: string;
  /** Natural logarithm of its probability. At least -9999, as JSON has no infinity. */
  logprob: number;
  /** Its text in UTF-8; null if it has none. */
  bytes: number[] | null;
  /** The most likely tokens, best first. */
  top_logprobs: { token: string; logprob: number; bytes: number[] | null }[];
  /** With `post_sampling_probs`, the most likely tokens that could be drawn, best first. */
  top_probs?: TokenProb[];
}

/** Log-probabilities of a response. */
export interface ChatLogprobs {
  /** One entry per token. */
  content: ChatTokenLogprob[] | null;
  /** Always null. */
  refusal: null;
}

/** A chat completion. */
export interface ChatCompletion {
  /** Unique: chatcmpl- and 24 hexadecimal digits. */
  id: string;
  /** 'chat.completion'. */
  object: 'chat.completion';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** The version that made it. */
  system_fingerprint: string;
  /** Exactly one. */
  choices: {
    index: number;
    message: {
      role: 'assistant';
      /** null if the response has only tool calls. */
      content: string | null;
      refusal: null;
      reasoning_content?: string;
      tool_calls?: ToolCall[];
    };
    logprobs: ChatLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls';
  }[];
  /** Token counts. */
  usage: CompletionUsage;
  /** Extension: durations in milliseconds and tokens per second. */
  timings: Timings;
}

/** A chunk of a streamed chat completion. */
export interface ChatCompletionChunk {
  /** The same for all chunks of a completion. */
  id: string;
  /** 'chat.completion.chunk'. */
  object: 'chat.completion.chunk';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** The version that made it. */
  system_fingerprint: string;
  /** One choice; none in the chunk that has the usage. */
  choices: {
    index: number;
    /** A tool call is complete in one delta. */
    delta: {
      role?: 'assistant';
      content?: string;
      reasoning_content?: string;
      tool_calls?: ({ index: number } & ToolCall)[];
    };
    logprobs?: ChatLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls' | null;
  }[];
  /** In the last chunk, if stream_options.include_usage is set. */
  usage?: CompletionUsage | null;
  /** Extension: in the chunk that has a finish_reason. */
  timings?: Timings;
}

/**
 * Log-probabilities of a completion. Each list has one entry per token. With `post_sampling_probs`
 * there is only `content`.
 */
export interface CompletionLogprobs {
  /** Texts of the tokens. */
  tokens: string[];
  /** Natural logarithms of their probabilities. */
  token_logprobs: number[];
  /** The most likely tokens at each position. */
  top_logprobs: Record<string, number>[];
  /** Characters (code points) of the text before each token. */
  text_offset: number[];
  /** With `post_sampling_probs`, one entry per token, as in chat completions. */
  content?: ChatTokenLogprob[];
}

/** A text completion. */
export interface Completion {
  /** Unique: cmpl- and 24 hexadecimal digits. */
  id: string;
  /** 'text_completion'. */
  object: 'text_completion';
  /** Seconds since 1970. */
  created: number;
  /** The model's name. */
  model: string;
  /** The version that made it. */
  system_fingerprint: string;
  /** Exactly one. */
  choices: {
    index: number;
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: 'stop' | 'length';
  }[];
  /** Token counts. */
  usage?: CompletionUsage;
  /** Extension: durations in milliseconds and tokens per second. */
  timings?: Timings;
}

/** A chunk of a streamed completion. */
export interface CompletionChunk extends Omit<Completion, 'choices'> {
  /**
   * The next part of the text; the last part has the finish reason. Empty in the chunk that has the
   * usage.
   */
  choices: (Omit<Completion['choices'][number], 'finish_reason'> & {
    finish_reason: 'stop' | 'length' | null;
  })[];
}

/** Parameters of embeddings.create(), OpenAI-compatible. */
export interface EmbeddingParams {
  /** A string, a list of strings, token ids, or lists of token ids. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** Keep only the first values of each embedding. Default: all. */
  dimensions?: number | null;
  /** Default 'float'. 'base64': little-endian float32 values in base64. */
  encoding_format?: 'float' | 'base64' | null;
  /** Ignored: an engine has one model. */
  model?: string;
  /** Ignored. */
  user?: string;
}

/** Result of embeddings.create(). */
export interface EmbeddingList {
  /** 'list'. */
  object: 'list';
  /** The embeddings, in the order of the input. */
  data: { object: 'embedding'; index: number; embedding: number[] }[];
  /** Name of the model. */
  model: string;
  /** Number of tokens processed. */
  usage: { prompt_tokens: number; total_tokens: number };
}
