// Creates GPU buffers and counts their bytes, which gpuBudget limits, and writes to them.

// Values of GPUBufferUsage, whose names are not available in every environment.
export const enum Usage {
  MapRead = 1,
  MapWrite = 2,
  CopySource = 4,
  CopyTarget = 8,
  Uniform = 64,
  Storage = 128,
}

export class Buffers {
  /** Bytes of all current buffers. */
  bytes = 0;
  readonly #all: GPUBuffer[] = [];
  readonly #device: GPUDevice;

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  make(size: number, usage: number): GPUBuffer {
    this.bytes += size;
    const buffer = this.#device.createBuffer({
      size,
      usage,
      mappedAtCreation: (usage & Usage.MapWrite) !== 0,
    });
    this.#all.push(buffer);
    return buffer;
  }

  drop(buffer: GPUBuffer): void {
    this.#all.splice(this.#all.indexOf(buffer), 1);
    this.bytes -= buffer.size;
    buffer.destroy();
  }

  dropAll(): void {
    for (const buffer of this.#all.splice(0)) buffer.destroy();
    this.bytes = 0;
  }
}

/**
 * Writes bytes of the engine's memory to byte `at` of a buffer. They are copied first: that memory
 * is shared between threads, and Dawn crashes in Node if it is given shared memory.
 */
export function writeFrom(
  { buffer: heap }: WebAssembly.Memory,
  address: number,
  bytes: number,
  { queue, target, at }: { queue: GPUQueue; target: GPUBuffer; at: number },
): void {
  queue.writeBuffer(target, at, new Uint8Array(heap, address, bytes).slice());
}
