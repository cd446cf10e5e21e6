// LoRA adapters on their way to the engine's worker, which takes their files whole (PEFT's as
// peft.ts makes them). A file of its own, loaded when there are any; what it shares with the entry
// comes as an argument, since two copies of an error's class are two classes.

import type { ErrorCode, SluiceError } from '../protocol/errors.js';
import type { LoraAdapter, ModelSource } from '../protocol/options.js';
import type { AdapterSpec, SourceSpec } from '../protocol/messages.js';
import { adapterOfPeft } from './peft.js';

export interface Entry {
  sourceSpec(source: ModelSource): SourceSpec;
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
  if (!Array.isArray(list)) invalid('lora is a list of adapters, each { source, scale }.');
  return Promise.all(
    list.map(async (one) => {
      const { source, scale = 1, ...rest } = typeof one === 'string' ? { source: one } : one;
      const [unknown] = Object.keys(rest);
      if (unknown) invalid(`An adapter has source and scale; '${unknown}' is not known.`);
      if (typeof scale !== 'number' || !Number.isFinite(scale))
        invalid("An adapter's scale must be a number.");
      const spec = entry.sourceSpec(source);
      const names =
        spec.kind === 'blob' ? spec.names : [spec.kind === 'url' ? spec.url : spec.path];
      const peft = names.findIndex((name) => /(\.safetensors|\.json|\/)$/.test(bare(name)));
      if (peft >= 0)
        return { name: bare(names[peft]!), data: await readPeft(spec, names, entry), scale };
      if (names.length !== 1) invalid('An adapter is one file, or the two of PEFT.');
      const name = bare(names[0]!);
      return { name, data: await read(spec, name, entry), scale };
    }),
  );
}

const kFiles = ['adapter_config.json', 'adapter_model.safetensors'];
const bare = (address: string): string => address.replace(/[?#].*/s, '');

/** PEFT's two files, of which `names` are the one that was named, their folder, or both chosen. */
async function readPeft(spec: SourceSpec, names: readonly string[], entry: Entry): Promise<Blob> {
  const refuse = (code: string, message: string): never => {
    throw new entry.SluiceError(code as ErrorCode, message);
  };
  const [config, weights] = await Promise.all(
    kFiles.map((file) => {
      if (spec.kind !== 'blob') return read(beside(spec, file), file, entry);
      const at = names.findIndex((name) => name.endsWith(file.slice(file.lastIndexOf('.'))));
      return (
        spec.blobs[at] ??
        refuse(
          'INVALID_ARGUMENT',
          `An adapter of PEFT is two files; ${file} is not among those chosen.`,
        )
      );
    }),
  );
  return adapterOfPeft(config!, weights!, refuse);
}

/** The address of a file in the same folder, with what follows a question mark. */
function beside(spec: Exclude<SourceSpec, { kind: 'blob' }>, file: string): SourceSpec {
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
  { readFile, SluiceError }: Entry,
): Promise<Blob> {
  if (spec.kind === 'blob') return spec.blobs[0]!;
  if (spec.kind === 'path') return new Blob([(await readFile!(spec.path)) as BlobPart]);
  let answer: Response;
  try {
    answer = await fetch(spec.url);
    if (answer.ok) return await answer.blob();
  } catch (cause) {
    throw new SluiceError('NETWORK', `The adapter ${name} cannot be fetched.`, { cause });
  }
  throw new SluiceError(
    answer.status === 404 ? 'NOT_FOUND' : 'HTTP_STATUS',
    `The server answered ${answer.status} for the adapter ${name}.`,
  );
}
