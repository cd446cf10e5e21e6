// A WebGPU device with its compiled pipelines. Both outlive the engine that opened them: the next
// engine of this worker takes them over, so that it compiles nothing that an earlier one has. At most
// one device is kept, without buffers.

import { deviceOf } from './adapter.js';
import { Kernels, type Options } from './kernels.js';

let kept: OpenDevice | null = null;

export class OpenDevice {
  readonly device: GPUDevice;
  readonly preference: string;
  #why: string | undefined;
  #onLost: ((why: string) => void) | null = null;
  #kernels: Kernels | undefined;
  #options = '';

  constructor(device: GPUDevice, preference: string) {
    this.device = device;
    this.preference = preference;
    // Later, since Dawn in Node waits forever if a device is destroyed within this event.
    device.addEventListener('uncapturederror', ({ error }) =>
      setTimeout(() => this.#onLost?.(error.message)),
    );
    void device.lost.then(({ message }) => {
      this.#why = message || 'unknown';
      if (kept === this) kept = null;
      this.#onLost?.(this.#why);
    });
  }

  /** `onLost` gets the reason when the device is lost or has failed. */
  use(onLost: ((why: string) => void) | null): void {
    this.#onLost = onLost;
    if (this.#why) onLost?.(this.#why);
  }

  /** Kernels with these options: those of the last engine, if it had the same. */
  async kernels(options: Options = {}): Promise<Kernels> {
    const { subgroups, f16, coded = { gemv: false, gemm: false } } = options;
    const key = `${subgroups} ${f16}`;
    if (key !== this.#options) this.#kernels = await Kernels.create(this.device, options);
    this.#options = key;
    const kernels = this.#kernels!;
    kernels.coded = coded;
    kernels.recount();
    return kernels;
  }
}

/**
 * The device that was kept, if it has the same power preference, or one of `adapter`. Errors:
 * NOT_SUPPORTED.
 */
export async function openDevice(adapter: GPUAdapter, preference: string): Promise<OpenDevice> {
  const last = kept;
  kept = null;
  if (last && last.preference === preference) return last;
  last?.device.destroy();
  return new OpenDevice(await deviceOf(adapter), preference);
}

/** Keeps a device for the next engine. Its buffers must be destroyed, and no work running. */
export function keepDevice(open: OpenDevice): void {
  open.use(null);
  kept?.device.destroy();
  kept = open;
}
