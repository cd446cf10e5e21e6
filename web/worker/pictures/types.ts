// What pictures need of the worker, and the worker of pictures, without either's code.

import type { Gpu } from '../../gpu/gpu.js';
import type * as GpuPictures from '../../gpu/pictures/pictures.js';
import type { Io } from '../../io/io.js';
import type { LayoutSpec } from '../../protocol/messages.js';
import type { ModelInfo } from '../../protocol/types.js';
import type { EngineBinding, PicturesBinding } from '../binding.js';

/** What pictures.js has. */
export interface PicturesModule {
  picturePrompts(host: PicturesHost): PicturePrompts;
}

/** Prompts with pictures, in this order of calls. */
export interface PicturePrompts {
  /** Decodes the pictures of a prompt and returns its tokens. end() must follow. */
  layout(prompt: string | Int32Array, spec: LayoutSpec, flag: Cancellable): Promise<Int32Array>;
  /** Encodes the pictures that the selected slot does not hold; without `reuse`, all. */
  encode(reuse: boolean, flag: Cancellable): Promise<void>;
  /**
   * Forgets the prompt's pictures once the generation on the selected slot has computed the prompt.
   * The model gets their memory back, and other generations may start.
   */
  release(): Promise<void>;
  /** The same for a generation that has not come that far, which ends. */
  end(): Promise<void>;
}

export interface Cancellable {
  readonly cancelled: boolean;
}

/** The worker's side. Errors are made there, so that they have its class. */
export interface PicturesHost {
  engine: {
    binding: EngineBinding;
    pictures: PicturesBinding;
    memory: WebAssembly.Memory;
    info: ModelInfo;
    io: Io;
  };
  running: {
    readonly ioError: unknown;
    readonly closed: boolean;
    /** Waits for the model's pending reads. */
    quiet(): Promise<void>;
  };
  /** The engine's GPU, if it has one. */
  gpu(): Gpu | null | undefined;
  /** Notes where pictures were encoded. */
  encoded(device: 'wasm' | 'webgpu'): void;
  /** The error of the engine's last call. */
  failure(): Error;
  /** An error with a code. */
  error(code: string, message: string): Error;
  abort(): Error;
  /** Flags of the tokenizer. */
  flagsOf(spec: LayoutSpec): number;
}

export interface Rgb {
  width: number;
  height: number;
  /** [height][width][3] */
  rgb: Uint8Array;
}

/** Pixels with alpha: [height][width][4]. */
export interface Rgba {
  width: number;
  height: number;
  data: Uint8Array | Uint8ClampedArray;
}

/** A picture's file that the engine decodes. */
export interface EngineFile {
  file: Uint8Array;
}

/** What a platform decodes, and how it loads a module. */
export interface Decoders {
  /** Formats that are left to the engine. */
  byEngine?: readonly string[];
  /** A picture's file that is not PNG, as it is stored. */
  file(bytes: Uint8Array<ArrayBuffer>, format: string, error: Fail): Promise<Rgba>;
  bitmap?(bitmap: ImageBitmap): Promise<Rgba>;
  /** Loads gpu-pictures.js. Errors: MODULE_LOAD. */
  gpuPictures(): Promise<typeof GpuPictures>;
}

export type Fail = (code: string, message: string) => Error;
