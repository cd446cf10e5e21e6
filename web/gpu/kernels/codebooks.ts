// The codebooks of the IQ types on the GPU: one buffer each, made when a shader first binds it.

/** Types may share a codebook: `name` tells it apart. */
export interface Codebook {
  name: string;
  entries(): Uint8Array<ArrayBuffer>;
}

export class CodebookBuffers {
  readonly #device: GPUDevice;
  readonly #buffers = new Map<string, GPUBuffer>();

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  get bytes(): number {
    return [...this.#buffers.values()].reduce((sum, { size }) => sum + size, 0);
  }

  get({ name, entries }: Codebook): GPUBuffer {
    let buffer = this.#buffers.get(name);
    if (!buffer) {
      const bytes = entries();
      buffer = this.#device.createBuffer({
        label: name,
        size: bytes.length,
        usage: 0x80 /* storage */,
        mappedAtCreation: true,
      });
      new Uint8Array(buffer.getMappedRange()).set(bytes);
      buffer.unmap();
      this.#buffers.set(name, buffer);
    }
    return buffer;
  }

  destroy(): void {
    for (const buffer of this.#buffers.values()) buffer.destroy();
    this.#buffers.clear();
  }
}
