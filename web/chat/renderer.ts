// Renders chat messages to a prompt with the model's chat template, or with ChatML and a warning.
// Part of templates.js, which is loaded at the first chat (prompt.ts).

import { SluiceError } from '../protocol/errors.js';
import { unmarked } from '../protocol/literal-spans.js';
import type { ImageSource } from '../protocol/options.js';
import type { ModelInfo, ProgressEvent } from '../protocol/types.js';
import { Answer, type AnswerRequest } from './answer-wasm.js';
import { ChatWasm, RenderFlags, type RequestTexts } from './chat-wasm.js';
import type {
  ChatMessage,
  FetchPicture,
  Job,
  PromptOptions,
  Prompts,
  RenderedPrompt,
} from './engine.js';
import {
  Exchange,
  type DescribedError,
  type GivenError,
  type Page,
  type RouteMethod,
} from './exchange.js';
import { imagesOf, jsonText } from './json.js';

/** Characters at the end of a prompt that tell how the response begins. */
const kPromptEnd = 1000;

/** Whether the JSON of a list of tools has any. */
const hasTools = (json: string | undefined): boolean => !!json && !/^(null|\[\s*\])$/.test(json);

const promptEnd = ({ text }: RenderedPrompt): string => unmarked(text.slice(-kPromptEnd));

/** Renders prompts for one model, and serves requests to it. */
export class PromptRenderer implements Prompts {
  readonly #warned = new Set<string>();
  #controls: Promise<string> | null = null;
  readonly #info: ModelInfo;
  readonly #onProgress: ((event: ProgressEvent) => void) | undefined;
  readonly #controlTokens: () => Promise<string>;
  readonly #wasm: ChatWasm;
  /** Requests come from elsewhere: an address in them is fetched by this, if at all. */
  #serves: { fetchPicture: FetchPicture | undefined } | null = null;
  /** Apart from templates, which can use up memory and stack. */
  #answers: ChatWasm;

  constructor(
    info: ModelInfo,
    onProgress: ((event: ProgressEvent) => void) | undefined,
    /** JSON of the model's control tokens: [id, text, id, text …]. */
    controlTokens: () => Promise<string> = async () => '[]',
    readFile?: (path: URL) => Promise<Uint8Array>,
  ) {
    this.#info = info;
    this.#onProgress = onProgress;
    this.#controlTokens = controlTokens;
    this.#wasm = new ChatWasm(readFile);
    this.#answers = new ChatWasm(readFile);
  }

  async render(
    messages: readonly ChatMessage[],
    options: PromptOptions = {},
  ): Promise<RenderedPrompt> {
    const images: ImageSource[] = [];
    const json = (name: 'tools' | 'documents' | 'variables'): string | undefined =>
      options[name] == null ? undefined : jsonText(name, options[name]);
    return this.#render(
      [jsonText('messages', messages, images), json('tools'), json('documents'), json('variables')],
      RenderFlags.AddGenerationPrompt * +(options.addGenerationPrompt ?? true) +
        RenderFlags.ParseSpecialInContent * +(options.parseSpecialInContent ?? false),
      options.template,
      !!options.tools?.length,
      images,
    );
  }

  async answer(
    prompt: RenderedPrompt,
    template: string | undefined,
    request: AnswerRequest,
  ): Promise<Answer> {
    const controls = await this.#controlsOnce();
    return this.#answers.use(
      (instance) =>
        new Answer(
          instance,
          instance.formats(this.#source(template, hasTools(request.tools)), controls),
          promptEnd(prompt),
          request,
          !prompt.literalSpans,
        ),
    );
  }

  serve(module: () => Promise<WebAssembly.Module>, fetchPicture?: FetchPicture): void {
    this.#serves = { fetchPicture };
    this.#answers = new ChatWasm(undefined, module);
  }

  routes(): Promise<Map<string, RouteMethod>> {
    return this.#answers.use((instance) => Exchange.routes(instance));
  }

  async open(
    path: string,
    body: string | Uint8Array,
    model: string,
    images: ImageSource[] = [],
  ): Promise<Exchange> {
    const exchange = await this.#answers.use(
      (instance) => new Exchange(instance, path, body, model),
    );
    exchange.images = images;
    return exchange;
  }

  prompt(exchange: Exchange, template?: string): Promise<RenderedPrompt> {
    const { renderTexts: texts, renderFlags: flags } = exchange;
    return this.#render(texts, flags, template, hasTools(texts[1]), exchange.images);
  }

  async plan(exchange: Exchange, canConstrain: boolean, template?: string): Promise<Job[]> {
    let rendered: RenderedPrompt | undefined;
    let controls = '[]';
    const { kind } = exchange.work;
    if (kind === 'chat' || kind === 'count') rendered = await this.prompt(exchange, template);
    if (kind !== 'complete') {
      controls = await this.#controlsOnce();
    }
    const { n, seed, prompts, opening, options, constraint, cacheKey, reportCounts } =
      exchange.plan(
        (instance) =>
          kind === 'complete'
            ? 0
            : instance.formats(this.#source(template, hasTools(exchange.renderTexts[1])), controls),
        rendered ? promptEnd(rendered) : '',
        rendered?.stop ?? [],
        canConstrain,
        this.#info.vocabSize,
      );
    const all = prompts ?? [(rendered?.text ?? '') + opening];
    const own = !prompts && {
      literalSpans: rendered?.literalSpans ?? true,
      addSpecial: rendered?.addSpecial ?? true,
      ...(rendered?.images && { images: rendered.images }),
    };
    return all.flatMap((prompt) =>
      Array.from({ length: n }, (_, i) => ({
        prompt,
        options: { ...options, ...own, seed: BigInt.asUintN(64, seed + BigInt(i)) },
        extra: {
          ...(constraint && { constraint }),
          ...(cacheKey && { cacheKey }),
          ...(reportCounts && { reportCounts }),
        },
      })),
    );
  }

  async page(exchange: Exchange, body: string | Uint8Array): Promise<Page> {
    const { types, plan, ...info } = this.#info;
    const [quantization] = Object.keys(types).sort((a, b) => types[b]! - types[a]!);
    const controls = await this.#controlsOnce();
    return exchange.page(
      (instance) => instance.formats(this.#source(undefined), controls),
      body,
      JSON.stringify({ ...info, quantization, ...plan }),
    );
  }

  describe(path: string, error: GivenError): Promise<DescribedError> {
    return this.#answers.use((instance) => Exchange.describe(instance, path, error));
  }

  /** Template of a request: the given one, or the model's. */
  #source(template: string | undefined, withTools = false): string {
    const { chatTemplate, toolTemplate } = this.#info;
    return (template ?? ((withTools && toolTemplate) || chatTemplate)) || '';
  }

  async #render(
    texts: RequestTexts,
    flags: number,
    template: string | undefined,
    withTools: boolean,
    images: readonly ImageSource[],
  ): Promise<RenderedPrompt> {
    const { bosToken, eosToken, unkToken, padToken } = this.#info;
    const source = this.#source(template, withTools);
    const sees = !!this.#info.modalities?.includes('image');
    const { seesTools, pictures, ...rendered } = await this.#wasm.render(
      [source, bosToken, eosToken, unkToken, padToken],
      texts,
      flags + RenderFlags.Pictures * +sees,
    );
    if (!source)
      this.#warnOnce(
        'The model has no chat template; ChatML is used, which it may not have been trained on.',
      );
    if (withTools && !seesTools)
      this.#warnOnce(
        "The model's chat template does not support tools: the model will not see them.",
      );
    return {
      ...rendered,
      literalSpans: sees || !(flags & RenderFlags.ParseSpecialInContent),
      images: pictures.length
        ? await this.#withFiles(imagesOf(pictures, images), pictures)
        : undefined,
    };
  }

  /** Pictures of a request, with those fetched that it names by an address. */
  async #withFiles(images: ImageSource[], urls: readonly string[]): Promise<ImageSource[]> {
    if (!this.#serves) return images;
    const { fetchPicture } = this.#serves;
    const out: ImageSource[] = [];
    for (const [i, url] of urls.entries()) {
      const here = /^data:/i.test(url);
      if (!here && !fetchPicture)
        throw new SluiceError(
          'NOT_SUPPORTED',
          'A picture must be a data URL: this server fetches none from elsewhere.',
        );
      out.push(here ? images[i]! : await fetchPicture!(url));
    }
    return out;
  }

  /** JSON of the model's control tokens. */
  #controlsOnce(): Promise<string> {
    return (this.#controls ??= this.#controlTokens().catch((error) => {
      this.#controls = null;
      throw error;
    }));
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    if (!this.#onProgress) console.warn(message);
    this.#onProgress?.({ phase: 'warning', code: 'NO_CHAT_TEMPLATE', message });
  }
}
