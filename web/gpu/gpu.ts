// The module that a page fetches when it asks for a graphics card: finds one, and has it compute for an
// engine. worker/loading.ts imports it then, and not before.

import { SluiceError } from '../protocol/errors.js';
import type { LoadSpec } from '../protocol/messages.js';
import type { CardKernels, ProgressEvent } from '../protocol/types.js';
import { adapterFor, cardName, deviceOf } from './adapter.js';
import { advise } from './auto-device.js';
import { Card, type CardCounts } from './executor.js';
import { Left, Word, type Program } from './program.js';

export { advise, findCard };

/** What the engine's worker gives to it. */
export interface GpuHost {
  /** An opened engine, of the binary that is made for this. */
  binding: {
    attachCard?: () => string;
    leaveLayers?: (layers: number) => boolean;
    error(): { code: string; message: string };
  };
  memory: WebAssembly.Memory;
  /** The model's files. */
  io: { read(file: number, offset: number, length: number, weights: boolean): Promise<Uint8Array> };
  spec: LoadSpec;
  /** For warnings: the card is lost, or does not do something; the CPU does. */
  progress(event: ProgressEvent): void;
}

/** A way to a card, for an engine that is opened next. */
export interface CardWay {
  /** Of weights that the CPU is to hold beside the card, where nobody says; 0: all that it has room for. */
  beside: number;
  /** Has the card compute; null where it is lost, and with `auto` where it cannot. Errors: openCard's. */
  open(host: GpuHost): Promise<Gpu | null>;
}

/** A card that computes. */
export interface Gpu {
  /** Computes what the engine asks for; false: it asks for nothing. Returns at once when `stopped`. */
  serve(stopped: () => boolean): Promise<boolean>;
  /** What EngineStats says of it; nothing once it is lost. */
  readonly device: {
    device?: 'webgpu';
    card?: string;
    cardKernels?: CardKernels;
    gpuLayers?: number;
  };
  /** Bytes that it holds; 0 once it is lost. */
  readonly bytes: number;
  /** Counters; warns, once, of what went to the CPU since the last look. */
  counts(): CardCounts;
  close(): void;
  /** After close(), as it was: the card computes again, with the same kernels; null, and a warning, where there is none. */
  reopen(): Promise<Gpu | null>;
}

/** This module. */
export interface GpuModule {
  advise: typeof advise;
  findCard: typeof findCard;
}

const kBeside = 64 << 20;

/** null, with `auto`, where the CPU is the better one. Errors: NOT_SUPPORTED where there is no card. */
async function findCard(spec: LoadSpec): Promise<CardWay | null> {
  const { device, cardFrom, gpuLayers } = spec;
  const auto = device === 'auto';
  if (cardFrom === Infinity || gpuLayers === 0) return null;
  const adapter = await adapterFor();
  if (adapter) {
    const open = (host: GpuHost): Promise<Gpu | null> =>
      openCard(adapter, host).catch((error: SluiceError) => {
        if (!auto) throw error;
        warner(host)(error.code, `${error.message} The CPU computes.`);
        return null;
      });
    return { beside: cardFrom > 1 || gpuLayers ? 0 : kBeside, open };
  }
  if (auto) return null;
  throw new SluiceError(
    'NOT_SUPPORTED',
    "There is no WebGPU adapter here: load with device 'wasm'.",
  );
}

type Warn = (code: string, message: string) => void;
const warner =
  ({ progress }: GpuHost): Warn =>
  (code, message) =>
    progress({ phase: 'warning', code, message });

/** Has the card compute what this engine is asked from now on; null where it is lost before that. Errors: Card.open's, NOT_SUPPORTED. */
async function openCard(adapter: GPUAdapter, host: GpuHost): Promise<Gpu | null> {
  const again = async (cardKernels: CardKernels): Promise<Gpu | null> => {
    const found = await adapterFor(); // each gives one device
    return found && openCard(found, { ...host, spec: { ...host.spec, cardKernels } });
  };
  const { binding, memory, io, spec } = host;
  const warn = warner(host);
  if (!binding.attachCard) {
    throw new SluiceError(
      'NOT_SUPPORTED',
      "The engine's wasm that was given has no way to a graphics card: give engine.gpu.wasm.",
    );
  }
  const lost = (why: string): void =>
    warn('DEVICE_LOST', `The graphics card is lost (${why}); the CPU goes on.`);
  const device = await deviceOf(adapter);
  const program = JSON.parse(binding.attachCard()) as Program;
  const words = new Uint32Array(memory.buffer, program.pass, Word.Cut + 1);
  try {
    const card = await Card.open(device, {
      memory,
      program,
      gpuBudget: spec.gpuBudget,
      layers: spec.gpuLayers,
      kernels: spec.cardKernels,
      read: (file, offset, length) => io.read(file, offset, length, true),
      onLost: lost,
    });
    if (card.cut && !binding.leaveLayers!(card.layers)) {
      const { code, message } = binding.error();
      throw new SluiceError(code, message);
    }
    words[Word.Cut] = card.cut;
    words[Word.Least] = spec.cardFrom;
    return new Told(card, cardName(adapter), words, warn, again);
  } catch (error) {
    words[Word.Lost] = 1;
    device.destroy();
    if (error instanceof SluiceError) throw error;
    lost((error as Error).message);
    return null;
  }
}

const kLeft: [Left, string][] = [
  [Left.Texts, 'Embeddings and sources'],
  [Left.Adapters, 'Adapters'],
];

/** A card, and what it does not do told once. */
class Told implements Gpu {
  readonly #name: string;
  readonly #card: Card;
  readonly #words: Uint32Array;
  readonly #warn: Warn;
  readonly #again: (kernels: CardKernels) => Promise<Gpu | null>;
  #told = 0;
  #wasLost = false;

  constructor(
    card: Card,
    name: string,
    words: Uint32Array,
    warn: Warn,
    again: (kernels: CardKernels) => Promise<Gpu | null>,
  ) {
    this.#again = again;
    this.#card = card;
    this.#name = name;
    this.#words = words;
    this.#warn = warn;
  }

  get bytes(): number {
    return this.#card.bytes;
  }
  get device(): Gpu['device'] {
    return this.#card.lost
      ? {}
      : {
          device: 'webgpu',
          card: this.#name,
          cardKernels: this.#card.kernels,
          gpuLayers: this.#card.layers,
        };
  }
  serve(stopped: () => boolean): Promise<boolean> {
    return this.#card.serve(stopped);
  }
  close(): void {
    this.#wasLost = this.#card.lost;
    this.#card.close();
  }
  async reopen(): Promise<Gpu | null> {
    if (this.#wasLost) return this;
    const gpu = await this.#again(this.#card.kernels).catch(() => null);
    if (!gpu) this.#warn('DEVICE_LOST', 'The graphics card cannot be had again; the CPU goes on.');
    return gpu;
  }
  counts(): CardCounts {
    const left = this.#words[Word.Left]! & ~this.#told;
    this.#told |= left;
    for (const [bit, what] of kLeft) {
      if (left & bit)
        this.#warn(
          'NOT_ON_CARD',
          `${what} are not for the graphics card: the CPU computes with them.`,
        );
    }
    return this.#card.counts;
  }
}
