// Renders chat messages to a prompt with the model's chat template, or with ChatML and a warning.
// Part of templates.js, which is loaded at the first chat (prompt.ts).

import type { ModelInfo } from '../protocol/types.js';
import { ChatWasm } from './chat-wasm.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from './engine.js';
import { jsonText } from './json.js';
import { ThinkFilter } from './think.js';

/** Renders prompts for one model. */
export class PromptRenderer implements Prompts {
  readonly #warned = new Set<string>();
  #controls: Promise<string[]> | null = null;
  readonly #info: ModelInfo;
  readonly #warn: (message: string) => void;
  /** Texts of the model's control tokens. */
  readonly #controlTexts: () => Promise<string[]>;
  readonly #wasm: ChatWasm;

  constructor(
    info: ModelInfo,
    warn: (message: string) => void,
    controlTexts: () => Promise<string[]> = async () => [],
    readFile?: (path: URL) => Promise<Uint8Array>,
  ) {
    this.#info = info;
    this.#warn = warn;
    this.#controlTexts = controlTexts;
    this.#wasm = new ChatWasm(readFile);
  }

  async render(
    messages: readonly ChatMessage[],
    options: PromptOptions = {},
  ): Promise<RenderedPrompt> {
    const { chatTemplate, bosToken, eosToken, unkToken, padToken } = this.#info;
    const source = (options.template ?? chatTemplate) || '';
    const json = (name: 'tools' | 'documents' | 'variables'): string | undefined =>
      options[name] == null ? undefined : jsonText(name, options[name]);
    const literalSpans = !options.parseSpecialInContent;
    const { takesTools, ...rendered } = await this.#wasm.render(
      [source, bosToken, eosToken, unkToken, padToken],
      [jsonText('messages', messages), json('tools'), json('documents'), json('variables')],
      {
        addGenerationPrompt: options.addGenerationPrompt ?? true,
        parseSpecialInContent: !literalSpans,
      },
    );
    if (!source)
      this.#warnOnce(
        'The model has no chat template; ChatML is used, which it may not have been trained on.',
      );
    if (options.tools?.length && !takesTools)
      this.#warnOnce(
        "The model's chat template does not support tools: the model will not see them.",
      );
    const said = (answer: string): string => {
      const filter = new ThinkFilter(/<think>\s*$/.test(rendered.text));
      return filter.push(answer).content + filter.finish().content;
    };
    return { ...rendered, literalSpans, said };
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
}
