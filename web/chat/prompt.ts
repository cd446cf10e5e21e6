// Loads templates.js at the first chat: the chat template renderer and the OpenAI-compatible API.

import { moduleError } from '../protocol/errors.js';
import type { ModelInfo } from '../protocol/types.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from './engine.js';

export const chatModule = () => import('./templates.js').catch(moduleError('templates.js'));

/** Renders one model's prompts. Loads the renderer on first use. */
export class LazyPrompts implements Prompts {
  #renderer: Promise<Prompts> | null = null;
  readonly #info: ModelInfo;
  readonly #warn: (message: string) => void;
  /** Texts of the model's control tokens. */
  readonly #controls: () => Promise<string[]>;

  constructor(info: ModelInfo, warn: (message: string) => void, controls: () => Promise<string[]>) {
    this.#info = info;
    this.#warn = warn;
    this.#controls = controls;
  }

  get template(): string | undefined {
    return this.#info.chatTemplate;
  }

  async render(messages: readonly ChatMessage[], options?: PromptOptions): Promise<RenderedPrompt> {
    return (await this.#loaded()).render(messages, options);
  }

  async controls(): Promise<readonly string[]> {
    return (await this.#loaded()).controls();
  }

  #loaded(): Promise<Prompts> {
    return (this.#renderer ??= chatModule().then(
      ({ PromptRenderer }) => new PromptRenderer(this.#info, this.#warn, this.#controls),
      (error) => {
        this.#renderer = null;
        throw error;
      },
    ));
  }
}
