// Prompts with pictures, loaded on demand (pictures.js): decodes pictures, has the engine lay them out
// among the prompt's tokens, and drives the projector's encoder while its weights arrive.

import { QueueView } from '../../io/fill-server.js';
import { kProjectorFiles } from '../../io/io.js';
import type { LayoutSpec } from '../../protocol/messages.js';
import { yieldToEvents } from '../../protocol/rpc.js';
import { Step } from '../binding.js';
import { decodeImage } from './decode.js';
import type { Cancellable, Decoders, PicturePrompts, PicturesHost } from './types.js';

const kSliceMs = 12;
const kBlockMs = 10;

export class Prompts implements PicturePrompts {
  readonly #host: PicturesHost;
  readonly #decoders: Decoders;
  #queue: QueueView | null = null;

  constructor(host: PicturesHost, decoders: Decoders) {
    this.#host = host;
    this.#decoders = decoders;
  }

  /** Decodes the pictures of a prompt and returns its tokens. end() must follow. */
  async layout(
    prompt: string | Int32Array,
    spec: LayoutSpec,
    flag: Cancellable,
  ): Promise<Int32Array> {
    const { engine, error } = this.#host;
    const { pictures, memory } = engine;
    if (typeof prompt !== 'string')
      throw error('INVALID_ARGUMENT', 'A prompt with pictures must be a string.');
    await this.end();
    for (const image of spec.images!) {
      const decoded = await decodeImage(image, this.#decoders, error);
      await this.#host.running.quiet();
      const whole = 'file' in decoded;
      const bytes = whole ? decoded.file : decoded.rgb;
      const address = whole
        ? pictures.file(bytes.length)
        : pictures.room(decoded.width, decoded.height);
      this.#check(address);
      new Uint8Array(memory.buffer, address, bytes.length).set(bytes);
      this.#check(whole ? pictures.addFile() : pictures.add());
      await this.#breathe(flag);
    }
    const { tokens: known = new Int32Array(), images = 0, rest = '' } = spec.known ?? {};
    const encoder = new TextEncoder();
    const tokens = pictures.layout(
      encoder.encode(prompt),
      this.#host.flagsOf(spec),
      known,
      images,
      encoder.encode(rest),
    );
    this.#check(tokens);
    return tokens!;
  }

  /**
   * Encodes the pictures that the selected slot does not hold; without `reuse`, all. The GPU takes what
   * it can, and the CPU the rest.
   */
  async encode(reuse: boolean, flag: Cancellable): Promise<void> {
    const { engine, running } = this.#host;
    const { pictures, memory, io } = engine;
    await running.quiet();
    const gpu = this.#host.gpu();
    if (gpu) {
      this.#check(pictures.prepare(reuse));
      const { encode } = await this.#decoders.gpuPictures();
      const stopped = (): boolean => flag.cancelled || running.closed;
      const done = await encode(gpu.executor, pictures, stopped);
      await this.#breathe(flag);
      if (done) this.#host.encoded('webgpu');
      this.#check(pictures.beginRest());
    } else this.#check(pictures.begin(reuse));
    const address = pictures.queue();
    if (!address) return gpu ? void this.#check(pictures.closeEncoder()) : undefined;
    this.#host.encoded('wasm');
    this.#queue = new QueueView(memory, address);
    await io.attach(memory, address, kProjectorFiles);
    let seen = -1;
    for (let slice = performance.now(); ;) {
      const step = pictures.step();
      io.poke();
      if (step === Step.Done) break;
      if (step === Step.Failed) throw this.#host.failure();
      if (step === Step.Blocked) {
        if (this.#queue.completed === seen) await this.#wait(seen);
        seen = this.#queue.completed;
      }
      if (performance.now() - slice < kSliceMs) continue;
      await this.#breathe(flag);
      slice = performance.now();
    }
    await this.#detach();
    this.#check(pictures.closeEncoder());
  }

  /** After the prompt of the selected slot's generation; the model gets the pictures' memory back. */
  async release(): Promise<void> {
    await this.#host.running.quiet();
    this.#check(this.#host.engine.pictures.release());
  }

  /** Forgets the prompt's pictures, and ends the selected slot's work. */
  async end(): Promise<void> {
    const { pictures } = this.#host.engine;
    while (this.#queue && !pictures.idle()) await this.#wait(this.#queue.completed);
    await this.#detach();
    await this.#host.running.quiet();
    this.#check(pictures.end());
  }

  async #detach(): Promise<void> {
    const { memory, io } = this.#host.engine;
    if (this.#queue) await io.attach(memory, 0, kProjectorFiles);
    this.#queue = null;
  }

  async #wait(seen: number): Promise<void> {
    const { engine, running } = this.#host;
    if (running.ioError !== null) throw running.ioError;
    if (engine.io.concurrent) this.#queue!.blockCompleted(seen, kBlockMs);
    else await this.#queue!.waitCompleted(seen, 5 * kBlockMs);
    await yieldToEvents();
  }

  async #breathe(flag: Cancellable): Promise<void> {
    await yieldToEvents();
    if (flag.cancelled || this.#host.running.closed) throw this.#host.abort();
  }

  #check(good: unknown): void {
    if (!good) throw this.#host.failure();
  }
}
