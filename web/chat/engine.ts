// Chat messages, and the interface of an engine that chat is built on. api/ implements it; it is
// declared here because chat/ must not import api/.

import type { GenerateSpec } from '../protocol/messages.js';
import type { GenerateOptions, ImageSource } from '../protocol/options.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import type { Answer, AnswerRequest } from './answer-wasm.js';
import type { DescribedError, Exchange, GivenError, Page, RouteMethod } from './exchange.js';

/** A text part of a message. */
export interface TextPart {
  /** A text. */
  type: 'text';
  /** The text. */
  text: string;
}

/** A picture in a message, for models that are loaded with a projector. */
export type ImagePart =
  | { type: 'image'; image: ImageSource }
  /** OpenAI's form. `detail` changes nothing. */
  | { type: 'image_url'; image_url: { url: string; detail?: string } };

/** A part of a message or of a prompt. */
export type ContentPart = TextPart | ImagePart;

/**
 * Who a chat message is from. The role reaches the chat template unchanged. 'developer' is what
 * OpenAI's newer models call 'system'.
 */
export type ChatRole = 'system' | 'developer' | 'user' | 'assistant' | 'tool';

/** A chat message, OpenAI-compatible. The chat template sees all fields that JSON can express. */
export interface ChatMessage {
  /** Who the message is from. A chat template may not support all roles. */
  role: ChatRole;
  /** Text, or a list of parts. */
  content?: string | readonly ContentPart[] | null;
  /** Other fields that the template reads: tool_calls, tool_call_id, name … */
  [field: string]: unknown;
}

/** How the chat template renders messages. */
export interface PromptOptions {
  /** Tool definitions for the chat template. */
  tools?: readonly unknown[] | undefined;
  /** Documents for the chat template. */
  documents?: readonly unknown[] | undefined;
  /** End the prompt where the assistant's response begins. Default true. */
  addGenerationPrompt?: boolean | undefined;
  /** A Jinja chat template that replaces the model's. */
  template?: string | undefined;
  /** Variables for the chat template, such as enable_thinking. */
  variables?: Record<string, unknown> | undefined;
  /**
   * Parse control tokens such as "<|im_end|>" in messages, tools and documents. Default false: they
   * are plain text.
   */
  parseSpecialInContent?: boolean | undefined;
}

export interface RenderedPrompt {
  text: string;
  /** The text has marks around spans that are plain text. */
  literalSpans: boolean;
  /** BOS must be prepended. A model's own template writes BOS itself. */
  addSpecial: boolean;
  /** Stop strings, for models whose end tokens may not end a turn. */
  stop: string[];
  /** The pictures, in the order of their marks in the text. */
  images?: ImageSource[] | undefined;
}

/** A prompt, as engine.renderPrompt() returns it. */
export interface RenderedChat {
  /** Text of the prompt. */
  text: string;
  /** Its tokens. Control tokens come from the template only, unless `parseSpecialInContent` is set. */
  tokens: Int32Array;
  /** Stop strings of ChatML, for models without a template. */
  stop: string[];
}

/** Renders prompts for one model. */
/** Errors: INVALID_ARGUMENT, HTTP_STATUS, NETWORK. */
export type FetchPicture = (url: string) => Promise<Uint8Array>;

export interface Prompts {
  render(messages: readonly ChatMessage[], options?: PromptOptions): Promise<RenderedPrompt>;
  /**
   * How the response to a prompt is constrained and read. `template`: the one that replaces the
   * model's. The caller closes it.
   */
  answer(
    prompt: RenderedPrompt,
    template: string | undefined,
    request: AnswerRequest,
  ): Promise<Answer>;
  /**
   * Serves all endpoints from now on, with `module`: chat-server.wasm. `fetchPicture` gets the file at
   * a URL in a request; without it, pictures must be data: URLs.
   */
  serve(module: () => Promise<WebAssembly.Module>, fetchPicture?: FetchPicture): void;
  /** The paths that open() knows after serve(), with their methods. */
  routes(): Promise<Map<string, RouteMethod>>;
  /**
   * Reads a request to an endpoint. The caller closes it. `body`: JSON in UTF-8; `images`: what
   * jsonText() has taken out of it.
   */
  open(
    path: string,
    body: string | Uint8Array,
    model: string,
    images?: ImageSource[],
  ): Promise<Exchange>;
  /** The prompt of an exchange that has messages. */
  prompt(exchange: Exchange, template?: string): Promise<RenderedPrompt>;
  /** The generations of an exchange. `canConstrain`: the engine has structured output. */
  plan(exchange: Exchange, canConstrain: boolean, template?: string): Promise<Job[]>;
  /** What a server says about itself and the model. `body`: of the request. */
  page(exchange: Exchange, body: string | Uint8Array): Promise<Page>;
  /** How the API of the path describes an error. */
  describe(path: string, error: GivenError): Promise<DescribedError>;
}

/** One generation of a request. */
export interface Job {
  prompt: string | number[];
  options: GenerateOptions;
  extra: Partial<GenerateSpec>;
}

/** A running generation. */
export interface TextStream extends AsyncIterable<GeneratedToken> {
  readonly result: Promise<GenerationResult>;
}

/** The part of Engine that chat uses. */
export interface ChatEngine {
  readonly info: { name: string };
  /** Loads the renderer on first use. */
  prompts(): Promise<Prompts>;
  /** Not loaded with `structuredOutput: false`. */
  readonly structuredOutput: boolean;
  /** Runs `work` after earlier changes of the engine and before later ones. */
  turn<T>(work: () => Promise<T>): Promise<T>;
  /** Starts a generation, in a turn. */
  answer(
    prompt: string | ArrayLike<number>,
    options: GenerateOptions,
    extra?: Partial<GenerateSpec>,
  ): TextStream;
}

/** A running call: its controller, and until() to keep it open while a generation runs. */
export interface Request {
  readonly controller: AbortController;
  until(text: TextStream): void;
}
