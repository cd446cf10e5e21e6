// Reads Hugging Face directories for the engine, which only reads GGUF. This is the glue of
// safetensors.wasm (src/bindings/safetensors/module.cpp). It makes a GGUF header from a directory's
// files, and transforms tensors that the checkpoint stores differently when they are read. It is
// loaded when such a directory is opened.

import { abortError, SluiceError } from '../protocol/errors.js';
import { FileRequestKind } from '../protocol/file-request.js';
import { WasmInstance, moduleLoader } from '../protocol/wasm-module.js';
import type { Described, DirectoryFiles, Safetensors } from './directory.js';
import type { FileProgress, ModelFile } from './model-file.js';

interface Exports {
  source(
    address: number,
    addressBytes: number,
    names: number,
    namesBytes: number,
    projector: number,
  ): void;
  need(): number;
  opened(size: number): number;
  absent(why: number, bytes: number): number;
  reserve(size: number): number;
  supply(): number;
  describe(): number;
  runs_room(size: number): number;
  derive(): number;
  stored_room(): number;
  scales_room(): number;
  next_part(offset: number, length: number): number;
  make_line(run: number): number;
}

/** Maximum memory for describing a directory, if there is no budget. */
const kEnough = 1 << 30;
/** Initial memory of the binary. */
const kInitial = 4 << 16;
/** Maximum memory for transforming tensors: lines of 8 MB, their results, and the descriptions. */
const kMaxDeriving = 64 << 20;

const noRoom = (): SluiceError =>
  new SluiceError('OUT_OF_MEMORY', 'The memory budget is too small for this.');

class Instance extends WasmInstance<Exports> {
  constructor(module: WebAssembly.Module, maximum: number) {
    super(module, kInitial, maximum, noRoom, (wasm) => ({
      sluice_number: (text) => Number(wasm.string(text!)),
    }));
    this.begin(new WebAssembly.Instance(module, this.imports));
  }
  doubles(address: number): Float64Array {
    return new Float64Array(this.memory.buffer, address >>> 0, 2);
  }
}

type Texts = Map<string, Uint8Array | string>;

/** Answers the opener's requests (src/open/opener.h) and returns the description. */
async function tryDescribe(
  wasm: Instance,
  address: string,
  names: string,
  files: DirectoryFiles,
  projector: boolean,
  texts: Texts,
): Promise<Described> {
  const { calls } = wasm;
  const check = (ok: number): number => {
    if (!ok) throw wasm.error();
    return ok;
  };
  calls.source(...wasm.text(address), ...wasm.text(names), +projector);
  for (;;) {
    const at = check(calls.need());
    const [offset, length] = wasm.doubles(at) as unknown as [number, number];
    const [want, file, choice, optional, nameAt, nameBytes] = wasm.words(
      at + 16,
    ) as unknown as number[];
    const name = wasm.string(nameAt!, nameBytes!);
    if (want === FileRequestKind.Done) break;
    if (want === FileRequestKind.File) {
      check(calls.opened((await files.open(file!, name, choice!)).size));
      continue;
    }
    let bytes: Uint8Array | string | undefined =
      want === FileRequestKind.Bytes ? await files.read(file!, offset, length) : texts.get(name);
    if (bytes === undefined)
      texts.set(name, (bytes = await files.text(name, choice!, length, !!optional)));
    if (typeof bytes === 'string') check(calls.absent(...wasm.text(bytes)));
    else {
      const place = calls.reserve(bytes.length);
      if (bytes.length) wasm.bytes(check(place), bytes.length).set(bytes);
      check(calls.supply());
    }
  }
  const words = wasm.words(check(calls.describe()));
  const part = (i: number): Uint8Array => wasm.bytes(words[2 * i]!, words[2 * i + 1]!).slice();
  return { header: part(0), made: part(1), derived: part(2), room: wasm.memory.buffer.byteLength };
}

async function describe(
  module: WebAssembly.Module,
  address: string,
  names: string,
  budget: number,
  files: DirectoryFiles,
  projector: boolean,
): Promise<Described> {
  const texts: Texts = new Map();
  const within = async (most: number): Promise<Described> =>
    tryDescribe(new Instance(module, most), address, names, files, projector, texts);
  return within(budget || kEnough).catch((error: SluiceError) => {
    if (!budget || error.code !== 'OUT_OF_MEMORY') throw error;
    return within(kEnough);
  });
}

/** Virtual file: parts of other files, copied or transformed line by line. */
class TensorTransformFile implements ModelFile {
  readonly name = 'derived';
  /** 0, because its bytes are counted in the files that they come from. */
  readonly size = 0;
  readonly held: number;
  readonly #wasm: Instance;
  readonly #file: (index: number) => ModelFile;
  /** Serializes lines, because they share buffers. */
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(wasm: Instance, file: (index: number) => ModelFile) {
    this.#wasm = wasm;
    this.#file = file;
    this.held = wasm.memory.buffer.byteLength;
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    for (let done = 0; done < into.length;) {
      const at = this.#wasm.calls.next_part(offset + done, into.length - done);
      if (!at) throw new SluiceError('TRUNCATED', 'A read exceeds a tensor of the model.');
      const [from, scales] = this.#wasm.doubles(at) as unknown as [number, number];
      const [kind, bytes, run, file, scaleFile, stored, scaleBytes, within] = this.#wasm.words(
        at + 16,
      ) as unknown as number[];
      const to = into.subarray(done, done + bytes!);
      done += bytes!;
      if (kind === 0) to.fill(0);
      else if (kind === 1) await this.#file(file!).read(from, to);
      else {
        const { calls } = this.#wasm;
        await this.#inTurn(async () => {
          await this.#file(file!).read(from, this.#wasm.bytes(calls.stored_room(), stored!));
          if (scaleBytes)
            await this.#file(scaleFile!).read(
              scales,
              this.#wasm.bytes(calls.scales_room(), scaleBytes),
            );
          to.set(this.#wasm.bytes(calls.make_line(run!) + within!, bytes!));
        });
      }
    }
  }

  progress(): FileProgress {
    return { bytesLocal: 0, bytesFetched: 0, bytesFromCache: 0 };
  }
  async rates(): Promise<[number, number]> {
    return [0, 0];
  }
  async download(): Promise<boolean> {
    return true;
  }
  close(): void {
    this.#closed = true;
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const mine = this.#turn.then(() => {
      if (this.#closed) throw abortError();
      return work();
    });
    this.#turn = mine.catch(() => {});
    return mine;
  }
}

function derivedFile(
  module: WebAssembly.Module,
  runs: Uint8Array,
  file: (index: number) => ModelFile,
): ModelFile {
  const wasm = new Instance(module, kMaxDeriving);
  const { calls } = wasm;
  const at = calls.runs_room(runs.length);
  if (!at) throw wasm.error();
  wasm.bytes(at, runs.length).set(runs);
  if (!calls.derive()) throw wasm.error();
  return new TensorTransformFile(wasm, file);
}

const compiled = moduleLoader('safetensors.wasm', 'worker.js');

/** Loads the module. `fetchWasm` returns the binary, which is compiled once. */
export async function load(fetchWasm: () => Promise<Response | ArrayBuffer>): Promise<Safetensors> {
  const module = await compiled(fetchWasm);
  return {
    describe: (...of) => describe(module, ...of),
    derivedFile: (runs, file) => derivedFile(module, runs, file),
  };
}
