// A Hugging Face model directory (config.json, tokenizer.json, safetensors) as a source: which of
// its files are read, and how they reach the engine, where src/gguf/hf_config.h makes them look like
// one GGUF. The weights then stream by the same ranges, store and queue as those of any model.

import type { EngineBinding } from './binding.js';
import { SluiceError } from './errors.js';
import type { Io, OpenedFile } from './io.js';
import type { SourceSpec } from './protocol.js';

/** Where a directory's files are: "https://host/dir/" and "?what=followed", or a path. */
export interface Place {
  base: string;
  query: string;
}

export interface ModelDirectory {
  name: string;
  /** In the order of kTexts; null where an optional one is absent. */
  texts: (Uint8Array | null)[];
  shards: OpenedFile[];
}

/** Takes the first bytes of file `index` into the engine and parses them, more of them if need be. */
export type ParseFile = (
  index: number,
  size: number,
  parse: (bytes: number) => number,
) => Promise<void>;

/** The order in which the binding numbers them. */
const kTexts = [
  { name: 'config.json', optional: false },
  { name: 'tokenizer.json', optional: false },
  { name: 'tokenizer_config.json', optional: true },
  { name: 'chat_template.jinja', optional: true },
];
const kIndex = 'model.safetensors.index.json';
const kSingle = 'model.safetensors';
const kMaxShards = 1024;

/** The place of a directory, of its config.json or of a safetensors file in it; null for others. */
export function placeOf(source: SourceSpec): Place | null {
  if (source.kind === 'blob') {
    return source.names.some((name) => baseName(name) === 'config.json') ? { base: '', query: '' } : null;
  }
  const [, path = '', query = ''] =
    source.kind === 'url' ? /^([^?#]*)(.*)$/s.exec(source.url)! : ['', source.path];
  if (path.endsWith('/')) return { base: path, query };
  if (!/config\.json$|\.safetensors$/.test(path)) return null;
  return { base: path.slice(0, path.lastIndexOf('/') + 1), query };
}

export const baseName = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** The model's name: the directory's, or a hub's repository's ("ORG/NAME/resolve/main/"). */
function nameOf({ base }: Place): string {
  return baseName(base.replace(/\/resolve\/.*$/, '').replace(/\/+$/, ''));
}

/** Reads the small files and opens the shards. */
export async function openDirectory(io: Io, place: Place): Promise<ModelDirectory> {
  const texts: (Uint8Array | null)[] = [];
  for (const { name, optional } of kTexts) texts.push(await io.readFile(name, optional));
  const index = await io.readFile(kIndex, true);
  const names = index ? shardNames(index) : [kSingle];
  const shards: OpenedFile[] = [];
  for (const [i, name] of names.entries()) shards.push(await io.openFile(i, name));
  return { name: nameOf(place), texts, shards };
}

/** The files that the index names, in order. */
function shardNames(index: Uint8Array): string[] {
  let map: unknown;
  try {
    map = (JSON.parse(new TextDecoder().decode(index)) as { weight_map?: unknown } | null)?.weight_map;
  } catch (cause) {
    throw new SluiceError('BAD_HEADER', `${kIndex} is not JSON.`, { cause });
  }
  const names = [...new Set(Object.values(typeof map === 'object' && map !== null ? map : {}))].sort();
  const plain = (name: unknown): boolean => typeof name === 'string' && /^[\w-][\w.-]*\.safetensors$/.test(name);
  if (names.length === 0 || names.length > kMaxShards || !names.every(plain)) {
    throw new SluiceError('BAD_HEADER', `${kIndex} does not name the files of a model in this directory.`);
  }
  return names as string[];
}

/** Hands everything to the engine; afterwards it is as if a GGUF's header had been parsed. */
export async function parseDirectory(
  binding: EngineBinding,
  io: Io,
  directory: ModelDirectory,
  parseFile: ParseFile,
  failed: () => SluiceError,
): Promise<void> {
  for (const [part, text] of directory.texts.entries()) {
    if (text && !binding.directoryText(part, text)) throw failed();
  }
  for (const [i, { name, size }] of directory.shards.entries()) {
    await parseFile(i, size, (bytes) => binding.shardParse(baseName(name), bytes, size));
  }
  if (!binding.directoryDescribe(directory.name)) throw failed();
  const made = binding.madeFile();
  if (made.length > 0) await io.addFile(directory.shards.length, made.slice());
}
