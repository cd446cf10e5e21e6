// Renders chat messages to a prompt with the model's chat template, or with ChatML and a warning.
// Part of templates.js, which is loaded at the first chat (prompt.ts).

import { unmarked } from '../protocol/literal-spans.js';
import type { ModelInfo } from '../protocol/types.js';
import { Answer, type AnswerRequest } from './answer-wasm.js';
import { ChatWasm } from './chat-wasm.js';
import type { ChatMessage, PromptOptions, Prompts, RenderedPrompt } from './engine.js';
import { jsonText } from './json.js';

/** Characters at the end of a prompt that tell how the response begins. */
const kPromptEnd = 1000;

/** Renders prompts for one model. */
export class PromptRenderer implements Prompts {
  readonly #warned = new Set<string>();
  #controls: Promise<string> | null = null;
  readonly #info: ModelInfo;
  readonly #warn: (message: string) => void;
  readonly #controlTokens: () => Promise<string>;
  readonly #wasm: ChatWasm;
  /** Apart from templates, which can use up memory and stack. */
  readonly #answers: ChatWasm;

  constructor(
    info: ModelInfo,
    warn: (message: string) => void,
    /** JSON of the model's control tokens: [id, text, id, text …]. */
    controlTokens: () => Promise<string> = async () => '[]',
    readFile?: (path: URL) => Promise<Uint8Array>,
  ) {
    this.#info = info;
    this.#warn = warn;
    this.#controlTokens = controlTokens;
    this.#wasm = new ChatWasm(readFile);
    this.#answers = new ChatWasm(readFile);
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
    const { seesTools, ...rendered } = await this.#wasm.render(
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
    if (options.tools?.length && !seesTools)
      this.#warnOnce(
        "The model's chat template does not support tools: the model will not see them.",
      );
    return { ...rendered, literalSpans };
  }

  async answer(
    prompt: RenderedPrompt,
    template: string | undefined,
    request: AnswerRequest,
  ): Promise<Answer> {
    const source = (template ?? this.#info.chatTemplate) || '';
    const controls = await (this.#controls ??= this.#controlTokens().catch((error) => {
      this.#controls = null;
      throw error;
    }));
    const end = unmarked(prompt.text.slice(-kPromptEnd));
    return this.#answers.use(
      (instance) => new Answer(instance, source, controls, end, request, !prompt.literalSpans),
    );
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.#warn(message);
  }
}
