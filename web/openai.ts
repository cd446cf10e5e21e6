// The shapes of OpenAI's chat completions and completions, as far as a local model fills them. They
// are assignable to the types of the openai package (tests/web/openai-types.ts proves it).

import type { ChatMessage } from './prompt.js';
import type { GenerationResult } from './protocol.js';
import type { ToolCall } from './tool-calls.js';

export type { ToolCall };

export interface CompletionUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  /** Prompt tokens that the KV cache already held. */
  prompt_tokens_details: { cached_tokens: number };
}

export type Timings = GenerationResult['timings'];

/** What chat and text completions have in common. */
export interface SamplingParams {
  /** Ignored: an engine has one model. */
  model?: string;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  temperature?: number | null;
  top_p?: number | null;
  /** Not OpenAI's: as in GenerateOptions. */
  top_k?: number | null;
  min_p?: number | null;
  repeat_penalty?: number | null;
  max_tokens?: number | null;
  stop?: string | readonly string[] | null;
  seed?: number | null;
  /** Only 1. */
  n?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  logit_bias?: Record<string, number> | null;
  signal?: AbortSignal;
}

/** A function that the model may call; `parameters` is a JSON schema. */
export interface ChatTool {
  type: 'function';
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean | null };
}

export interface ChatCompletionParams extends SamplingParams {
  messages: readonly ChatMessage[];
  max_completion_tokens?: number | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  /** Functions that the model may call: the template shows them to it, its calls become `tool_calls`. */
  tools?: readonly (ChatTool | { type: string })[];
  /**
   * 'none' keeps the tools from the model. 'required' and a named function make the answer begin as a
   * call, which needs a template that knows tools. Default: 'auto'.
   */
  tool_choice?: 'none' | 'auto' | 'required' | { type: string; function?: { name: string } };
  response_format?: { type: string };
  /** A Jinja template in place of the model's, and further variables for it. */
  chat_template?: string;
  chat_template_kwargs?: Record<string, unknown>;
  /** 'inline' leaves <think>…</think> in the content. Default: reasoning_content. */
  reasoning_format?: 'separate' | 'inline';
}

export interface CompletionParams extends SamplingParams {
  prompt: string | readonly number[] | readonly string[];
  /** So many of the likeliest tokens. */
  logprobs?: number | null;
}

export interface ChatTokenLogprob {
  token: string;
  logprob: number;
  bytes: number[] | null;
  top_logprobs: { token: string; logprob: number; bytes: number[] | null }[];
}

export interface ChatLogprobs {
  content: ChatTokenLogprob[] | null;
  refusal: null;
}

export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
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
  usage: CompletionUsage;
  timings: Timings;
}

export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: {
    index: number;
    /** A tool call comes whole, in one delta. */
    delta: { role?: 'assistant'; content?: string; reasoning_content?: string; tool_calls?: ({ index: number } & ToolCall)[] };
    logprobs?: ChatLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls' | null;
  }[];
  /** In the last chunk, when stream_options.include_usage is set. */
  usage?: CompletionUsage | null;
  /** In the chunk that carries finish_reason. */
  timings?: Timings;
}

export interface CompletionLogprobs {
  tokens: string[];
  token_logprobs: number[];
  top_logprobs: Record<string, number>[];
  text_offset: number[];
}

export interface Completion {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: {
    index: number;
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: 'stop' | 'length';
  }[];
  usage?: CompletionUsage;
  timings?: Timings;
}

/** A streamed piece of a Completion; the last has the finish reason. */
export interface CompletionChunk extends Omit<Completion, 'choices'> {
  choices: (Omit<Completion['choices'][number], 'finish_reason'> & { finish_reason: 'stop' | 'length' | null })[];
}
