// Reads what the engine wants to know of a model's files before it can plan: a GGUF's header, those
// of a split model's parts, or a Hugging Face directory (src/open/opener.h, which says what is wanted
// next). An engine in another memory asks again: files stay open for it, and small ones are kept.

import type { Io, OpenedFile } from '../io/io.js';
import { SluiceError } from '../wire/errors.js';
import type { SourceSpec } from '../wire/protocol.js';
import { Want, type EngineBinding, type Need } from './binding.js';

type Memory = { binding: EngineBinding; memory: WebAssembly.Memory };

/** Addresses of directories, or of files in them. */
const kDirectory = /(\/|config\.json|\.safetensors)([?#].*)?$/s;

export class Opening {
  /** Of the model, in order. */
  readonly #files: (OpenedFile & { address: string })[] = [];
  /** Contents of small files by address, or why there is none. */
  readonly #texts = new Map<string, Uint8Array | string>();
  readonly #address: string;
  readonly #names: string[];
  readonly #io: Io;

  constructor(
    io: Io,
    source: SourceSpec,
  ) {
    this.#io = io;
    this.#names = source.kind === 'blob' ? source.names : [];
    this.#address = source.kind === 'blob' ? source.names[0]! : source.kind === 'url' ? source.url : source.path;
  }

  /** Bytes of the files that are open; of a split model's first part, as many times as there are parts. */
  get bytes(): number {
    const sum = this.#files.reduce((bytes, { size }) => bytes + size, 0);
    const parts = this.#files.length === 1 && /-\d{5}-of-(\d{5})\.gguf/.exec(this.#files[0]!.name);
    return parts ? sum * Number(parts[1]) : sum;
  }

  /**
   * Opens what there is to open while the engine is compiled. False for a directory: only an engine
   * can tell which files it has.
   */
  async first(): Promise<boolean> {
    if ([this.#address, ...this.#names].some((name) => kDirectory.test(name))) return false;
    await this.#open(0, this.#address, 0);
    return true;
  }

  /** Answers what the engine wants until its header is there; or, with `sizes`, until the files are open. */
  async read({ binding, memory }: Memory, sizes = false): Promise<void> {
    const check = (ok: unknown): void => {
      if (!ok) throw errorOf(binding);
    };
    const supply = (bytes: Uint8Array): void => {
      const address = binding.reserve(bytes.length);
      check(address || !bytes.length);
      new Uint8Array(memory.buffer, address, bytes.length).set(bytes);
      check(binding.supply());
    };
    binding.source(this.#address, this.#names.map((name) => `${name.replace(/.*\//s, '')}/`).join(''));
    for (;;) {
      const need = binding.need();
      check(need);
      const { want, file, name, choice, offset, length } = need!;
      if (want === Want.Done) break;
      if (want === Want.File) {
        check(binding.opened((await this.#open(file, name, choice)).size));
      } else if (sizes && this.#files.length) {
        return;
      } else if (want === Want.Bytes) {
        supply(await this.#io.read(file, offset, length));
      } else {
        const text = await this.#text(need!);
        if (typeof text === 'string') check(binding.absent(text));
        else supply(text);
      }
    }
    const made = binding.synthesizedFile();
    if (made.length) await this.#io.addFile(this.#files.length, made.slice());
  }

  /** Lets go of the small files, some of which are large, when nobody will ask again. */
  over(): void {
    this.#texts.clear();
  }

  async #open(file: number, address: string, choice: number): Promise<OpenedFile> {
    if (this.#files[file]?.address !== address) {
      this.#files[file] = { ...(await this.#io.openFile(file, address, choice)), address };
    }
    return this.#files[file]!;
  }

  async #text({ name, choice, length, optional }: Need): Promise<Uint8Array | string> {
    const text = this.#texts.get(name) ?? (await this.#io.readText(name, choice, length, optional));
    this.#texts.set(name, text);
    return text;
  }
}

export function errorOf(binding: EngineBinding): SluiceError {
  const { code, message } = binding.error();
  return new SluiceError(code, message);
}
