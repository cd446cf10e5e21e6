// LoRA adapters on their way to the engine's worker, which takes their files whole. A file of its own, loaded
// when there are any; what it shares with the entry comes as an argument, since two copies of an error's class
// are two classes.

import type { SluiceError } from '../wire/errors.js';
import type { LoraAdapter, ModelSource } from '../wire/options.js';
import type { AdapterSpec, SourceSpec } from '../wire/protocol.js';

export interface Entry {
  sourceSpec(source: ModelSource): SourceSpec;
  readFile?: ((path: string) => Promise<Uint8Array>) | undefined;
  SluiceError: typeof SluiceError;
}

export function adapterSpecs(list: readonly (LoraAdapter | string)[], entry: Entry): Promise<AdapterSpec[]> {
  const invalid = (message: string): never => {
    throw new entry.SluiceError('INVALID_ARGUMENT', message);
  };
  if (!Array.isArray(list)) invalid('lora is a list of adapters, each { source, scale }.');
  return Promise.all(
    list.map(async (one) => {
      const { source, scale = 1, ...rest } = typeof one === 'string' ? { source: one } : one;
      const [unknown] = Object.keys(rest);
      if (unknown) invalid(`An adapter has source and scale; '${unknown}' is not known.`);
      if (typeof scale !== 'number' || !Number.isFinite(scale)) invalid("An adapter's scale must be a number.");
      const spec = entry.sourceSpec(source);
      if (spec.kind === 'blob' && spec.blobs.length !== 1) invalid('An adapter is one file.');
      const name = (spec.kind === 'blob' ? spec.names[0]! : spec.kind === 'url' ? spec.url : spec.path).replace(/[?#].*/s, '');
      if (/(\.safetensors|\.json|\/)$/.test(name)) invalid(`${name}: only adapters in GGUF can be read here; convert_lora_to_gguf.py makes one of PEFT's.`);
      return { name, data: await read(spec, name, entry), scale };
    }),
  );
}

async function read(spec: SourceSpec, name: string, { readFile, SluiceError }: Entry): Promise<Blob> {
  if (spec.kind === 'blob') return spec.blobs[0]!;
  if (spec.kind === 'path') return new Blob([(await readFile!(spec.path)) as BlobPart]);
  let answer: Response;
  try {
    answer = await fetch(spec.url);
    if (answer.ok) return await answer.blob();
  } catch (cause) {
    throw new SluiceError('NETWORK', `The adapter ${name} cannot be fetched.`, { cause });
  }
  throw new SluiceError(answer.status === 404 ? 'NOT_FOUND' : 'HTTP_STATUS', `The server answered ${answer.status} for the adapter ${name}.`);
}
