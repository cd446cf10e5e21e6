// Commands of `npx sluice-llm` for the model cache: pull, list, show and rm, as in the native
// program, on the same files.

import type { Engine } from '../api/engine.js';
import { cacheDirectory } from '../io/cache-directory.js';
import { cachedReference } from '../io/hub-reference.js';
import { modelUrl, type CachedModel } from '../io/model-cache.js';
import type { ModelCacheOptions } from '../io/store-manager.js';
import { publicUrl } from '../protocol/address.js';
import type { InspectOptions } from '../protocol/options.js';
import { SluiceError } from '../protocol/errors.js';
import { decimalBytes, print, ProgressLine, UsageError, type Values } from './output.js';

type Package = typeof Engine;

function cacheOf(values: Values): ModelCacheOptions & { cacheDir: string } {
  const cacheDir = cacheDirectory(values['cache-dir'] as string | undefined);
  if (cacheDir) return { cacheDir };
  throw new SluiceError(
    'INVALID_ARGUMENT',
    'there is no model cache: set --cache-dir or SLUICE_CACHE to a directory',
  );
}

/** `--header`, `--token` and `--hf-endpoint`. */
export function requestOptions(
  values: Values,
): Pick<InspectOptions, 'headers' | 'token' | 'hfEndpoint'> {
  const headers = ((values['header'] ?? []) as string[]).map((line): [string, string] => {
    const [, name, value] = /^([\w-]+):\s*(.*)$/.exec(line) ?? [];
    if (name === undefined) throw new UsageError("--header needs 'NAME: VALUE'");
    return [name, value!];
  });
  return {
    ...(headers.length > 0 && { headers }),
    token: values['token'] as string | undefined,
    hfEndpoint: values['hf-endpoint'] as string | undefined,
  };
}

const dayOf = (date: Date): string => date.toISOString().slice(0, 10);

/** As the native program prints it. */
const jsonOf = ({ created, used, files: _, ...model }: CachedModel): object => ({
  ...model,
  created: created.getTime(),
  used: used.getTime(),
});

/** The cached model of an address, or of a file name that only one has. */
async function find({ modelCache }: Package, model: string, values: Values): Promise<CachedModel> {
  const all = await modelCache.list(cacheOf(values));
  const url = model.startsWith('hf:') ? cachedReference(model, all) : modelUrl(model);
  const named = all.filter((each) => publicUrl(each.url).endsWith(`/${model}`));
  const found = all.find((each) => each.url === url) ?? (named.length === 1 ? named[0] : undefined);
  if (found) return found;
  throw new SluiceError('NOT_FOUND', `${publicUrl(model)} is not in the cache.`);
}

export async function list({ modelCache }: Package, values: Values): Promise<void> {
  const models = await modelCache.list(cacheOf(values));
  if (values['json']) return void print(models.map(jsonOf));
  for (const { used, bytesCached, size, url } of models) {
    const sizes = [bytesCached, size].map((bytes) => decimalBytes(bytes).padStart(10)).join(' of ');
    process.stdout.write(`${dayOf(used)}  ${sizes}  ${url}\n`);
  }
}

export async function show(engines: Package, model: string, values: Values): Promise<void> {
  const found = await find(engines, model, values);
  if (values['json']) return void print({ ...jsonOf(found), files: found.files });
  const line = (label: string, value: string): boolean =>
    process.stdout.write(`${label.padEnd(8)} ${value}\n`);
  const ratio = (of: { bytesCached: number; size: number }): string =>
    `${decimalBytes(of.bytesCached)} of ${decimalBytes(of.size)}`;
  line('model', found.url);
  line('cached', `${ratio(found)}${found.complete ? ', complete' : ''}`);
  line('created', dayOf(found.created));
  line('used', dayOf(found.used));
  for (const file of found.files) {
    line('file', file.url);
    line('  cached', ratio(file));
    line('  path', file.path ?? '');
  }
}

/** Deletes a model, or as many as it takes until at most `maxBytes` are left. */
export async function remove(
  engines: Package,
  model: string,
  values: Values,
  maxBytes?: number,
): Promise<void> {
  if ((model === '') === (maxBytes === undefined))
    throw new UsageError('give either MODEL or --max-size');
  let removed: string[];
  if (maxBytes !== undefined) {
    removed = await engines.modelCache.evictOldest(maxBytes, cacheOf(values));
    if (!values['json']) for (const url of removed) process.stdout.write(`${url}\n`);
  } else {
    removed = [(await find(engines, model, values)).url];
    await engines.modelCache.delete(removed[0]!, cacheOf(values));
  }
  if (values['json']) print(removed);
}

/** Loads the model in as little memory as it needs, until all of it is cached. */
export async function pull(engines: Package, model: string, values: Values): Promise<void> {
  if (!/^(https?:|hf:)/.test(model))
    throw new SluiceError('INVALID_ARGUMENT', `${model} is a local file, which needs no cache`);
  const options = {
    ...cacheOf(values),
    ...requestOptions(values),
    contextLength: 16,
    threads: 1,
  };
  const { plan } = await engines.inspect(model, options);
  const line = new ProgressLine(values);
  const engine = await engines.load(model, {
    ...options,
    memoryBudget: plan.minimum,
    onProgress: (event) => {
      line.report(event);
    },
  });
  try {
    await engine.downloaded;
  } finally {
    process.stderr.write(line.clear());
    await engine.dispose();
  }
  const found = await find(engines, model, values);
  if (values['json']) print(jsonOf(found));
  else process.stdout.write(`${model} is cached (${decimalBytes(found.size)})\n`);
}
