// Reads a model's header into the engine: that of a GGUF file, or of all parts of a split model.
// The engine requests the bytes (src/open/opener.h). For a Hugging Face directory, safetensors.js
// first makes a GGUF header. Files stay open, because an engine in another memory may read the
// header again.

import { isDirectory, type DirectoryFiles } from '../io/directory.js';
import type { Io, IoPlatform, OpenedFile } from '../io/io.js';
import { SluiceError } from '../protocol/errors.js';
import type { SourceSpec } from '../protocol/messages.js';
import { FileRequestKind } from '../protocol/file-request.js';
import type { EngineBinding } from './binding.js';

export class HeaderLoader {
  /** Bytes that describing a directory took, before the engine was created. */
  room = 0;
  /** Open files of the model, in order. */
  readonly #files: (OpenedFile & { address: string })[] = [];
  /** Header made for a directory, and the number of files that its tensors are in. */
  #header: Uint8Array | null = null;
  #described = 0;
  readonly #address: string;
  /** Names of chosen files, each followed by a slash. */
  readonly #names: string;
  readonly #directory: boolean;
  readonly #io: Io;
  /** Number of the model's first file in the Io. */
  readonly #first: number;
  readonly #projector: boolean;

  /** `projector`: of a directory, its vision projector is read. */
  constructor(io: Io, source: SourceSpec, first = 0, projector = false) {
    this.#io = io;
    this.#first = first;
    this.#projector = projector;
    const names =
      source.kind === 'files' ? source.names.map((name) => name.replace(/.*\//s, '')) : [];
    this.#names = names.map((name) => `${name}/`).join('');
    this.#address =
      source.kind === 'files' ? source.names[0]! : source.kind === 'url' ? source.url : source.path;
    this.#directory = isDirectory(source);
  }

  /**
   * Bytes of the open files. If only the first part of a split model is open: its size times the
   * number of parts.
   */
  get bytes(): number {
    const sum = this.#files.reduce((bytes, { size }) => bytes + size, 0);
    const parts = this.#files.length === 1 && /-\d{5}-of-(\d{5})\.gguf/.exec(this.#files[0]!.name);
    return parts ? sum * Number(parts[1]) : sum;
  }

  /**
   * Opens the first file while the engine is being compiled. For a directory, opens all files and
   * makes the header, using at most `budget` bytes (0: no limit).
   */
  async first(platform: IoPlatform, budget: number): Promise<void> {
    if (!this.#directory) {
      await this.#open(0, this.#address, 0);
      return;
    }
    const { describe } = await platform.safetensors();
    const files: DirectoryFiles = {
      open: (file, name, choice) => this.#open(file, name, choice),
      read: (file, offset, length) => this.#io.read(this.#first + file, offset, length),
      text: (name, choice, most, optional) =>
        this.#io.readText(this.#first, name, choice, most, optional),
    };
    const { header, made, derived, room } = await describe(
      this.#address,
      this.#names,
      budget,
      files,
      this.#projector,
    );
    this.#header = header;
    this.room = room;
    this.#described = this.#files.length;
    if (made.length) await this.#io.addFile(this.#first + this.#described++, made);
    if (derived.length) await this.#io.addFile(this.#first + this.#described++, derived, true);
  }

  /** Answers the engine's requests until the header is complete. */
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

  /** Frees the header. No read() may follow. */
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
