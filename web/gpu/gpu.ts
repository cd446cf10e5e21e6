// The module that a page fetches when it asks for a graphics card: finds one, and has it compute for an
// engine. worker/loading.ts imports it then, and not before.

import { SluiceError } from '../wire/errors.js';
import { Card, type CardCounts } from './card.js';
import type { Device } from '../wire/types.js';
import type { ReadWeights } from './feed.js';
import { Word, type Program } from './program.js';

/** What the engine's worker gives to it. */
export interface GpuHost {
  /** An opened engine, of the binary that is made for this. */
  binding: { attachCard?: () => string };
  memory: WebAssembly.Memory;
  read: ReadWeights;
  /** Bytes; 0: as many as the model wants. */
  gpuBudget: number;
  /** The card is lost; the CPU goes on. */
  warn(code: string, message: string): void;
}

/** A card that computes. */
export interface Gpu {
  /** Computes what the engine asks for; false: it asks for nothing. Returns at once when `stopped`. */
  serve(stopped: () => boolean): Promise<boolean>;
  /** Bytes that it holds; 0 once it is lost. */
  readonly bytes: number;
  readonly lost: boolean;
  readonly counts: CardCounts;
  close(): void;
}

/** This module. */
export interface GpuModule {
  findCard: typeof findCard;
}

/**
 * A way to a card, for an engine that is opened next; null, with `auto`, where the CPU is the better one. Errors:
 * NOT_SUPPORTED where there is no card; of the way, openCard's.
 */
export async function findCard(device: Device): Promise<((host: GpuHost) => Promise<Gpu | null>) | null> {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  const auto = device === 'auto';
  if (adapter && !(auto && isSoftware(adapter))) {
    return (host) => openCard(adapter, host).catch((error: SluiceError) => {
      if (!auto) throw error;
      host.warn(error.code, `${error.message} The CPU computes.`);
      return null;
    });
  }
  if (auto) return null;
  throw new SluiceError('NOT_SUPPORTED', "There is no WebGPU adapter here: load with device 'wasm'.");
}

/** A card that is a program on the CPU, which the engine's own kernels outrun. */
const isSoftware = ({ info }: GPUAdapter): boolean => info.isFallbackAdapter || /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.device} ${info.description}`);

const kFeatures = ['subgroups'];

/** Has the card compute what this engine is asked from now on. Errors: Card.open's, NOT_SUPPORTED. */
async function openCard(adapter: GPUAdapter, { binding, memory, read, gpuBudget, warn }: GpuHost): Promise<Gpu> {
  if (!binding.attachCard) {
    throw new SluiceError('NOT_SUPPORTED', "The engine's wasm that was given has no way to a graphics card: give engine.gpu.wasm.");
  }
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const device = await adapter.requestDevice({
    requiredFeatures: kFeatures.filter((feature) => adapter.features.has(feature)) as GPUFeatureName[],
    requiredLimits: { maxBufferSize, maxStorageBufferBindingSize },
  });
  const program = JSON.parse(binding.attachCard()) as Program;
  try {
    return await Card.open(device, {
      memory, program, read, gpuBudget,
      onLost: (why) => warn('DEVICE_LOST', `The graphics card is lost (${why}); the CPU goes on.`),
    });
  } catch (error) {
    new Uint32Array(memory.buffer, program.pass)[Word.Lost] = 1;
    device.destroy();
    throw error;
  }
}
