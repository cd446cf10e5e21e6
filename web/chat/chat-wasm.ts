// The glue of chat.wasm (src/bindings/chat/module.cpp), which renders chat templates; answer-wasm.ts
// reads responses with it, and exchange.ts serves requests. chat-server.wasm does the latter two for
// Node's server. An instance keeps the templates that it has parsed; what it has grown to is
// returned with the whole instance.

import { SluiceError } from '../protocol/errors.js';
import { moduleLoader, WasmInstance } from '../protocol/wasm-module.js';
import { chatBinary } from './chat-binary.js';

interface Exports {
  free(address: number): void;
  parse_template(texts: number): number;
  answer_format(texts: number): number;
  render(template: number, texts: number, flags: number, now: number): number;
}

/** What a template is made of: its source, '' for ChatML, and the texts of special tokens. */
export type TemplateTexts = [
  source: string,
  bos: string | undefined,
  eos: string | undefined,
  unk: string | undefined,
  pad: string | undefined,
];

/** JSON texts; undefined: absent. */
export type RequestTexts = [
  messages: string,
  tools: string | undefined,
  documents: string | undefined,
  variables: string | undefined,
];

/** How a prompt is rendered: sum of RenderFlags in src/bindings/chat/calls.h. */
export const enum RenderFlags {
  AddGenerationPrompt = 1,
  ParseSpecialInContent = 2,
  AllowMissingText = 4,
  /** The model takes pictures; else they are errors. */
  Pictures = 16,
}

/** A text, or its UTF-8, or numbers; undefined: absent. */
export type Bytes = string | Uint8Array | undefined;

export interface Rendered {
  /** With marks around literal spans, unless control tokens in messages are parsed and the model
   *  takes no pictures. A `<__media__>` outside of literal spans is a picture. */
  text: string;
  stop: string[];
  /** The pictures' URLs, in order. Base64 is a data URL. */
  pictures: string[];
  addSpecial: boolean;
  /** The template mentions tools. */
  seesTools: boolean;
}

/** Initial memory of the binary. */
const kInitial = 2 << 20;
const kMaxMemory = 256 << 20;
/** An instance that has grown beyond this is replaced. */
const kKeptMemory = 16 << 20;
const kMaxTemplates = 16;

const noRoom = (): SluiceError =>
  new SluiceError(
    'OUT_OF_MEMORY',
    `The chat needs more than ${kMaxMemory >> 20} MB to be rendered, or the platform refused memory.`,
  );

const compiled = moduleLoader('chat.wasm', 'templates.js');

/** Classes of tokenizer::CharClass, from 1. No character has two. */
const kClasses = [/\p{L}/u, /\p{N}/u, /\p{P}/u, /\p{M}/u, /\p{S}/u, /\p{White_Space}/u];

function charClass(codePoint?: number): number {
  const character = String.fromCodePoint(codePoint!);
  return 1 + kClasses.findIndex((each) => each.test(character));
}

export class Instance extends WasmInstance<Exports> {
  /** false once a call was aborted. */
  usable = true;
  readonly #kept = new Map<string, number>();

  constructor(module: WebAssembly.Module) {
    super(module, kInitial, kMaxMemory, noRoom, (wasm) => ({
      sluice_number: (text) => Number(wasm.string(text!)),
      sluice_pow: Math.pow,
      sluice_exp: Math.exp,
      sluice_char_class: charClass,
      time: () => Date.now() / 1000,
      getentropy(out, bytes) {
        crypto.getRandomValues(wasm.bytes(out!, bytes!));
        return 0;
      },
      sluice_upper_case(codePoint) {
        const upper = [...String.fromCodePoint(codePoint!).toUpperCase()];
        return upper.length === 1 ? upper[0]!.codePointAt(0)! : codePoint!;
      },
      sluice_lower_case(text, bytes, out, room) {
        const lower = wasm.string(text!, bytes!).replace(/./gsu, (c) => c.toLowerCase());
        const made = new TextEncoder().encode(lower).subarray(0, room);
        wasm.bytes(out!, made.length).set(made);
        return made.length;
      },
      sluice_local_time(seconds, fields) {
        const t = new Date(seconds! * 1000);
        const [year, month, date] = [t.getFullYear(), t.getMonth(), t.getDate()];
        const day = (Date.UTC(year, month, date) - Date.UTC(year, 0, 1)) / 864e5;
        new Int32Array(wasm.memory.buffer, fields! >>> 0, 8).set([
          ...[t.getSeconds(), t.getMinutes(), t.getHours()],
          ...[date, month, year - 1900, t.getDay(), day],
        ]);
      },
    }));
  }

  static async create(module: WebAssembly.Module): Promise<Instance> {
    const made = new Instance(module);
    return made.begin(await WebAssembly.instantiate(module, made.imports));
  }

  /** Passes texts to `call`: an array of addresses and lengths. A missing text has address 0. */
  with<T>(texts: readonly Bytes[], call: (address: number) => T): T {
    const { free } = this.calls;
    const places = texts.map((text) => (text === undefined ? [0, 0] : this.text(text)));
    const at = this.allocate(8 * places.length);
    this.words(at).set(places.flat());
    try {
      return call(at);
    } finally {
      for (const [address] of [...places, [at]]) free(address!);
    }
  }

  /** The error as the package words it: a sentence. */
  override error(): SluiceError {
    const { code, message } = super.error();
    return new SluiceError(
      code,
      `${message.replace(/^the /, 'The ')}${/[.!?]$/.test(message) ? '' : '.'}`,
    );
  }

  /** The address that `make` returned for this key; it lives as long as the instance. */
  kept(key: string, make: () => number): number {
    const known = this.#kept.get(key) ?? make();
    if (!known) throw this.error();
    this.#kept.set(key, known);
    return known;
  }

  /** The formats of responses that a template teaches. `controls`: JSON of control tokens. */
  formats(source: string, controls: string): number {
    return this.kept(`answer ${source}`, () =>
      this.with([source, controls], this.calls.answer_format),
    );
  }

  /** The instance has grown so large that another one should replace it. */
  get full(): boolean {
    return this.memory.buffer.byteLength > kKeptMemory || this.#kept.size > kMaxTemplates;
  }

  /** Runs calls. If they are aborted, the instance is not usable any more. */
  guarded<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      this.usable = error instanceof SluiceError && error.code !== 'OUT_OF_MEMORY';
      if (error instanceof SluiceError) throw error;
      // A trap: the stack is used up.
      throw new SluiceError('CHAT_TEMPLATE', 'The chat template failed: it is nested too deeply.', {
        cause: error,
      });
    }
  }

  render(of: TemplateTexts, request: RequestTexts, flags: number, now: number): Rendered {
    const template = this.kept(JSON.stringify(of), () => this.with(of, this.calls.parse_template));
    const at = this.with(request, (texts) => this.calls.render(template, texts, flags, now));
    if (!at) throw this.error();
    const [text, textBytes, stop, stopBytes, urls, urlBytes, addSpecial, seesTools] = this.words(
      at,
    ) as unknown as number[];
    return {
      text: this.string(text!, textBytes!),
      stop: this.string(stop!, stopBytes!).split('\0').slice(0, -1),
      pictures: JSON.parse(this.string(urls!, urlBytes!)),
      addSpecial: !!addSpecial,
      seesTools: !!seesTools,
    };
  }
}

/** Instances of chat.wasm, one after another. */
export class ChatWasm {
  #instance: Promise<Instance> | null = null;
  readonly #module: () => Promise<WebAssembly.Module>;

  /** `readFile`: Node's. `module`: chat-server.wasm, which does not render. */
  constructor(
    readFile?: (path: URL) => Promise<Uint8Array>,
    module = () => compiled(() => chatBinary(readFile)),
  ) {
    this.#module = module;
  }

  /** Runs `work`. Its instance is replaced after a call that aborted, and when it is full. */
  async use<T>(work: (instance: Instance) => T): Promise<T> {
    const started = this.#start();
    let instance = await started;
    if (!instance.usable || instance.full) {
      if (this.#instance === started) this.#instance = null;
      instance = await this.#start();
    }
    return instance.guarded(() => work(instance));
  }

  #start(): Promise<Instance> {
    return (this.#instance ??= this.#module()
      .then((module) => Instance.create(module))
      .catch((error) => {
        this.#instance = null;
        throw error;
      }));
  }

  render(
    of: TemplateTexts,
    request: RequestTexts,
    flags: number,
    now = Date.now() / 1000,
  ): Promise<Rendered> {
    return this.use((instance) => instance.render(of, request, flags, now));
  }
}
