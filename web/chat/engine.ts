// What chat needs of an engine, which is built above it: prompts of messages, and text that goes on
// from them.

import type { GenerateOptions, TokenizeOptions } from '../protocol/options.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';

/** A part of a message. */
export interface TextPart {
  /** Only text can be read. */
  type: 'text';
  /** The text. */
  text: string;
}

/** A message as OpenAI's API has it; further fields reach the template. */
export interface ChatMessage {
  /** system, user, assistant, tool, or what else the template knows. */
  role: string;
  /** Its text, or parts of type text. */
  content?: string | readonly (TextPart | { type: string })[] | null;
  /** Whatever else the template reads: tool_calls, tool_call_id, name … */
  [field: string]: unknown;
}

export interface PromptOptions {
  tools?: readonly unknown[] | undefined;
  documents?: readonly unknown[] | undefined;
  /** Default true: the prompt ends where the assistant's answer begins. */
  addGenerationPrompt?: boolean | undefined;
  /** A Jinja template in place of the model's. */
  template?: string | undefined;
  /** Further variables, such as enable_thinking. */
  variables?: Record<string, unknown> | undefined;
  /**
   * Read "<|im_end|>" and the like in messages, tools and documents as control tokens. Default
   * false.
   */
  parseSpecialInContent?: boolean | undefined;
}

export interface RenderedPrompt {
  text: string;
  /** Whether the tokenizer is to be told of marks around plain text. */
  literalSpans: boolean;
  /** Whether BOS is still to be prepended: a model's own template writes it where it belongs. */
  addSpecial: boolean;
  /** Strings that end a turn where the model's end tokens may not. */
  stop: string[];
  /** What of an answer the model says: its thoughts left out. */
  said(answer: string): string;
}

/** Renders prompts for one model. */
export interface Prompts {
  render(messages: readonly ChatMessage[], options?: PromptOptions): Promise<RenderedPrompt>;
  /** The model's own template. */
  readonly template: string | undefined;
  /** The texts of the model's control tokens. */
  controls(): Promise<readonly string[]>;
}

/** Text on its way. */
export interface TextStream extends AsyncIterable<GeneratedToken> {
  readonly result: Promise<GenerationResult>;
}

/** What the calls need of an engine. */
export interface ChatEngine {
  readonly info: { name: string };
  readonly prompts: Prompts;
  /** Answers can be bound to grammars. */
  readonly structuredOutput: boolean;
  tokenize(text: string, options: TokenizeOptions): Promise<Int32Array>;
  answer(prompt: string | ArrayLike<number>, options: GenerateOptions): TextStream;
}

/** A call under way: what aborts it, and what it follows to its end. */
export interface Request {
  readonly controller: AbortController;
  until(text: TextStream): void;
}
