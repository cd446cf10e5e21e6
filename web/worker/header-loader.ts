// Reads what the engine wants to know of a model's files before it can plan: a GGUF's header, or
// those of a split model's parts (src/open/opener.h, which says what is wanted next). Of a Hugging
// Face directory safetensors.js makes such a header first. An engine in another memory asks again:
// files stay open for it.

import type { Io, IoPlatform, OpenedFile } from '../io/io.js';
import { SluiceError } from '../protocol/errors.js';
import type { SourceSpec } from '../protocol/messages.js';
import { FileRequestKind } from '../protocol/file-request.js';
import type { EngineBinding } from './binding.js';

export class HeaderLoader {
  /** Memory that it took to describe a directory, before there was an engine. */
  room = 0;
  /** Of the model, in order. */
  readonly #files: (OpenedFile & { address: string })[] = [];
  /** Of a directory, and how many files its tensors lie in. */
  #header: Uint8Array | null = null;
  #described = 0;
  readonly #address: string;
  /** Of chosen files, each followed by a slash. */
  readonly #names: string;
  readonly #directory: boolean;
  readonly #io: Io;
  /** The number that the I/O has for the first file. */
  readonly #first: number;

  constructor(io: Io, source: SourceSpec, first = 0) {
    this.#io = io;
    this.#first = first;
    const names =
      source.kind === 'blob' ? source.names.map((name) => name.replace(/.*\//s, '')) : [];
    this.#names = names.map((name) => `${name}/`).join('');
    this.#address =
      source.kind === 'blob' ? source.names[0]! : source.kind === 'url' ? source.url : source.path;
    const path = source.kind === 'url' ? source.url.replace(/[?#].*/s, '') : this.#address;
    this.#directory = names.length
      ? names.includes('config.json')
      : /(\/|config\.json|\.safetensors)$/.test(path);
  }

  /**
   * Bytes of the files that are open; of a split model's first part, as many times as there are
   * parts.
   */
  get bytes(): number {
    const sum = this.#files.reduce((bytes, { size }) => bytes + size, 0);
    const parts = this.#files.length === 1 && /-\d{5}-of-(\d{5})\.gguf/.exec(this.#files[0]!.name);
    return parts ? sum * Number(parts[1]) : sum;
  }

  /**
   * Opens what there is to open while the engine is compiled; all of a directory, in `budget` bytes
   * of memory (0: enough).
   */
  async first(platform: IoPlatform, budget: number): Promise<void> {
    if (!this.#directory) {
      await this.#open(0, this.#address, 0);
      return;
    }
    const { describe } = await platform.safetensors();
    const { header, made, derived, room } = await describe(this.#address, this.#names, budget, {
      open: (file, name, choice) => this.#open(file, name, choice),
      read: (file, offset, length) => this.#io.read(this.#first + file, offset, length),
      text: (name, choice, most, optional) =>
        this.#io.readText(this.#first, name, choice, most, optional),
    });
    this.#header = header;
    this.room = room;
    this.#described = this.#files.length;
    if (made.length) await this.#io.addFile(this.#first + this.#described++, made);
    if (derived.length) await this.#io.addFile(this.#first + this.#described++, derived, true);
  }

  /** Answers what the engine wants until its header is there. */
  async read({
    binding,
    memory,
  }: {
    binding: EngineBinding;
    memory: WebAssembly.Memory;
  }): Promise<void> {
    const check = (ok: unknown): void => {
      if (!ok) throw errorOf(binding);
    };
    const header = this.#header;
    binding.source(this.#address, this.#names, this.#described);
    for (;;) {
      const need = binding.need();
      check(need);
      const { want, file, name, choice, offset, length } = need!;
      if (want === FileRequestKind.Done) break;
      if (want === FileRequestKind.File) {
        check(binding.opened(header?.length ?? (await this.#open(file, name, choice)).size));
      } else {
        const bytes =
          header?.subarray(offset, offset + length) ??
          (await this.#io.read(this.#first + file, offset, length));
        const address = binding.reserve(length);
        check(address);
        new Uint8Array(memory.buffer, address, length).set(bytes);
        check(binding.supply());
      }
    }
  }

  /** Lets go of the header, when nobody will ask again. */
  over(): void {
    this.#header = null;
  }

  async #open(file: number, address: string, choice: number): Promise<OpenedFile> {
    if (this.#files[file]?.address !== address) {
      this.#files[file] = {
        ...(await this.#io.openFile(this.#first + file, address, choice)),
        address,
      };
    }
    return this.#files[file]!;
  }
}

export function errorOf(binding: EngineBinding): SluiceError {
  const { code, message } = binding.error();
  return new SluiceError(code, message);
}
