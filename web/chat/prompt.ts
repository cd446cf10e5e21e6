// Loads templates.js at the first chat: the chat template renderer and the OpenAI-compatible API.

import { moduleError } from '../protocol/errors.js';
import type { Answer } from './answer-wasm.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from './engine.js';
import type { PromptRenderer } from './renderer.js';

export const chatModule = () => import('./templates.js').catch(moduleError('templates.js'));

/** Renders one model's prompts. Loads the renderer on first use. */
export class LazyPrompts implements Prompts {
  #renderer: Promise<Prompts> | null = null;
  readonly #of: ConstructorParameters<typeof PromptRenderer>;

  constructor(...of: ConstructorParameters<typeof PromptRenderer>) {
    this.#of = of;
  }

  async render(messages: readonly ChatMessage[], options?: PromptOptions): Promise<RenderedPrompt> {
    return (await this.#loaded()).render(messages, options);
  }

  async answer(...of: Parameters<Prompts['answer']>): Promise<Answer> {
    return (await this.#loaded()).answer(...of);
  }

  #loaded(): Promise<Prompts> {
    return (this.#renderer ??= chatModule().then(
      ({ PromptRenderer }) => new PromptRenderer(...this.#of),
      (error) => {
        this.#renderer = null;
        throw error;
      },
    ));
  }
}
