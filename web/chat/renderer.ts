// Renders chat messages to a prompt with the model's chat template, or with ChatML and a warning.
// Part of templates.js, which is loaded at the first chat (prompt.ts).

import { invalid, SluiceError } from '../protocol/errors.js';
import type { ModelInfo } from '../protocol/types.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from './engine.js';
import { ChatTemplate } from './template.js';
import { ThinkFilter } from './think.js';

/** ChatML, for models without a chat template. */
export const defaultTemplate = `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}`;

/** Renders prompts for one model; parses each template once. */
export class PromptRenderer implements Prompts {
  readonly #parsed = new Map<string, ChatTemplate>();
  readonly #warned = new Set<string>();
  #controls: Promise<string[]> | null = null;
  readonly #info: ModelInfo;
  readonly #warn: (message: string) => void;
  /** Texts of the model's control tokens. */
  readonly #controlTexts: () => Promise<string[]>;

  constructor(
    info: ModelInfo,
    warn: (message: string) => void,
    controlTexts: () => Promise<string[]> = async () => [],
  ) {
    this.#info = info;
    this.#warn = warn;
    this.#controlTexts = controlTexts;
  }

  async render(
    messages: readonly ChatMessage[],
    options: PromptOptions = {},
  ): Promise<RenderedPrompt> {
    if (!Array.isArray(messages) || messages.length === 0) {
      invalid('messages must be a list of at least one message.');
    }
    const info = this.#info;
    const own = options.template ?? info.chatTemplate;
    if (!own) {
      this.#warnOnce(
        'The model has no chat template; ChatML is used, which it may not have been trained on.',
      );
    }
    if (options.tools?.length && !own?.includes('tools')) {
      this.#warnOnce(
        "The model's chat template does not support tools: the model will not see them.",
      );
    }
    const template = this.#parse(own ?? defaultTemplate);
    const variables = {
      ...options.variables,
      messages: messages.map(plainMessage),
      tools: options.tools?.length ? options.tools : null,
      documents: options.documents ?? null,
      add_generation_prompt: options.addGenerationPrompt ?? true,
      bos_token: info.bosToken ?? '',
      eos_token: info.eosToken ?? '',
      unk_token: info.unkToken,
      pad_token: info.padToken,
    };
    const literalSpans = !options.parseSpecialInContent;
    const controls = literalSpans ? await this.controls() : [];
    try {
      const text = template.render(variables, undefined, controls);
      const said = (answer: string): string => {
        const filter = new ThinkFilter(/<think>\s*$/.test(text));
        return filter.push(answer).content + filter.finish().content;
      };
      return { text, literalSpans, addSpecial: !own, stop: own ? [] : ['<|im_end|>'], said };
    } catch (cause) {
      throw templateError(cause);
    }
  }

  get template(): string | undefined {
    return this.#info.chatTemplate;
  }

  controls(): Promise<string[]> {
    return (this.#controls ??= this.#controlTexts().catch((error) => {
      this.#controls = null;
      throw error;
    }));
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.#warn(message);
  }

  #parse(source: string): ChatTemplate {
    const known = this.#parsed.get(source);
    if (known) return known;
    try {
      const template = new ChatTemplate(source);
      if (this.#parsed.size >= 16) this.#parsed.clear();
      this.#parsed.set(source, template);
      return template;
    } catch (cause) {
      throw templateError(cause);
    }
  }
}

function templateError(cause: unknown): SluiceError {
  return new SluiceError('CHAT_TEMPLATE', `The chat template failed: ${(cause as Error).message}`, {
    cause,
  });
}

/** Joins text parts to one string and parses tool call arguments, as templates expect. */
function plainMessage(message: ChatMessage): Record<string, unknown> {
  if (typeof message?.role !== 'string') {
    invalid('Every message needs a role.');
  }
  const out: Record<string, unknown> = { ...message };
  if (Array.isArray(message.content)) out['content'] = message.content.map(partText).join('');
  if (Array.isArray(message['tool_calls']))
    out['tool_calls'] = message['tool_calls'].map(plainToolCall);
  return out;
}

function partText(part: { type: string; text?: unknown } | null): string {
  if (part?.type === 'text' && typeof part.text === 'string') return part.text;
  invalid(`Only text parts are supported, not type '${part?.type}'.`);
}

function plainToolCall(call: { function?: { arguments?: unknown } | null } | null): unknown {
  if (typeof call?.function?.arguments !== 'string') return call;
  try {
    return {
      ...call,
      function: { ...call.function, arguments: JSON.parse(call.function.arguments) },
    };
  } catch {
    return call;
  }
}
