// Reads LoRA adapters into memory for the engine's worker. peft.ts converts PEFT adapters to GGUF.
// This module is loaded only if adapters are used. Code shared with the entry is passed as an
// argument, because a second copy of the error class would be another class.

import type { Sources } from '../io/sources.js';
import type { ErrorCode, SluiceError } from '../protocol/errors.js';
import type { LoraAdapter } from '../protocol/options.js';
import type { AdapterSpec, SourceSpec } from '../protocol/messages.js';
import { adapterOfPeft } from './peft.js';

export interface Entry {
  sources: Sources;
  readFile?: ((path: string) => Promise<Uint8Array>) | undefined;
  SluiceError: typeof SluiceError;
}

export function adapterSpecs(
  list: readonly (LoraAdapter | string)[],
  entry: Entry,
): Promise<AdapterSpec[]> {
  const invalid = (message: string): never => {
    throw new entry.SluiceError('INVALID_ARGUMENT', message);
  };
  if (!Array.isArray(list)) invalid('lora must be a list of adapters, each { source, scale }.');
  return Promise.all(
    list.map(async (one) => {
      const { source, scale = 1, ...rest } = typeof one === 'string' ? { source: one } : one;
      const [unknown] = Object.keys(rest);
      if (unknown) invalid(`'${unknown}' is not an option of an adapter: use source and scale.`);
      if (typeof scale !== 'number' || !Number.isFinite(scale))
        invalid("An adapter's scale must be a number.");
      const spec = await entry.sources.spec(source);
      const names =
        spec.kind === 'files' ? spec.names : [spec.kind === 'url' ? spec.url : spec.path];
      const peft = names.findIndex((name) => /(\.safetensors|\.json|\/)$/.test(bare(name)));
      if (peft >= 0)
        return { name: bare(names[peft]!), data: await readPeft(spec, names, entry), scale };
      if (names.length !== 1) invalid('An adapter must be one GGUF file or the two files of PEFT.');
      const name = bare(names[0]!);
      return { name, data: await read(spec, name, entry), scale };
    }),
  );
}

const kFiles = ['adapter_config.json', 'adapter_model.safetensors'];
const bare = (address: string): string => address.replace(/[?#].*/s, '');

/** Reads a PEFT adapter's two files. `names`: one of them, their directory, or both if chosen. */
async function readPeft(spec: SourceSpec, names: readonly string[], entry: Entry): Promise<Blob> {
  const refuse = (code: string, message: string): never => {
    throw new entry.SluiceError(code as ErrorCode, message);
  };
  const [config, weights] = await Promise.all(
    kFiles.map((file) => {
      if (spec.kind !== 'files') return read(beside(spec, file), file, entry);
      const at = names.findIndex((name) => name.endsWith(file.slice(file.lastIndexOf('.'))));
      const found =
        spec.files[at] ??
        refuse(
          'INVALID_ARGUMENT',
          `A PEFT adapter has two files; ${file} is missing among those chosen.`,
        );
      return typeof found === 'string' ? read({ kind: 'url', url: found }, file, entry) : found;
    }),
  );
  return adapterOfPeft(config!, weights!, refuse);
}

/** The address of a file in the same directory, with the same query. */
function beside(spec: Exclude<SourceSpec, { kind: 'files' }>, file: string): SourceSpec {
  const address = spec.kind === 'url' ? spec.url : spec.path;
  const path = bare(address);
  const moved = path.slice(0, path.lastIndexOf('/') + 1) + file;
  return spec.kind === 'url'
    ? { kind: 'url', url: moved + address.slice(path.length) }
    : { kind: 'path', path: moved };
}

async function read(
  spec: SourceSpec,
  name: string,
  { readFile, SluiceError, sources }: Entry,
): Promise<Blob> {
  if (spec.kind === 'files') {
    const [file] = spec.files as [Blob | string];
    if (typeof file !== 'string') return file;
    spec = { kind: 'url', url: file };
  }
  if (spec.kind === 'path') return new Blob([(await readFile!(spec.path)) as BlobPart]);
  let answer: Response;
  try {
    answer = await sources.fetch(spec.url);
    if (answer.ok) return await answer.blob();
  } catch (cause) {
    throw new SluiceError('NETWORK', `The adapter ${name} cannot be fetched.`, { cause });
  }
  throw new SluiceError(
    answer.status === 404 ? 'NOT_FOUND' : 'HTTP_STATUS',
    `The server answered ${answer.status} for the adapter ${name}.`,
  );
}
