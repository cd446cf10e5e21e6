// What several commands of `npx sluice-llm` read from their options.

import * as fs from 'node:fs';

import table from '../../src/options/options.def';
import { byteSize } from '../protocol/byte-size.js';
import type { EngineOptions } from '../protocol/options.js';
import { SluiceError } from '../protocol/errors.js';
import { ProgressLine, UsageError, type Values } from './output.js';
import { requestOptions } from './model-cache.js';

/** Whole or not, least and most. */
type Range = readonly [whole: boolean, least: number, most: number];
const kUnnamed = 1e30; // limits beyond it are those of a float

/** The ranges of options, by all their names: those of the native program. */
const ranges = new Map<string, Range>();
for (const { js, cli, type, least, most } of table)
  for (const name of js === 'parallel' ? ['--parallel'] : cli)
    if (/^(Whole|Number)$/.test(type)) ranges.set(name, [type === 'Whole', least, most]);
/** Options that only the command lines have. */
const kOwn: Record<string, readonly [number, number]> = {
  'n-predict': [-1, 2 ** 31 - 1],
  port: [0, 65535],
  'max-queue': [1, 4096],
  timeout: [1, 86400],
  'shutdown-timeout': [0, 3600],
};
for (const [name, range] of Object.entries(kOwn)) ranges.set(`--${name}`, [true, ...range]);
ranges.set('--gpu-layers', [true, 0, 65535]); // the native program has no GPU

function kindOf([whole, least, most]: Range): string {
  if (whole) return `whole number from ${least} to ${most}`;
  if (most < kUnnamed) return `number from ${least} to ${most}`;
  return least > -kUnnamed ? `number of at least ${least}` : 'number';
}

/** A number option within its range. */
export function number(values: Values, name: string): number | undefined {
  if (values[name] === undefined) return undefined;
  const text = String(values[name]);
  const range = ranges.get(`--${name}`)!;
  const [whole, least, most] = range;
  const pattern = whole ? /^-?\d+$/ : /^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  const value = Number(text);
  if (pattern.test(text) && value >= least && value <= most) return value;
  throw new UsageError(`--${name}: "${text.slice(0, 32)}" is not a ${kindOf(range)}`);
}

/** An integer modulo 2^64. */
export function seed(values: Values): bigint | undefined {
  const text = values['seed'];
  if (text === undefined) return undefined;
  const value = /^-?\d+$/.test(String(text)) ? BigInt(text as string) : undefined;
  if (value !== undefined && value >= -(2n ** 63n) && value < 2n ** 64n) return value;
  throw new UsageError(
    `--seed: the seed "${String(text)}" must be an integer from -2^63 to 2^64 - 1`,
  );
}

/** A size option in bytes, written like 64M or 1.5G. */
export function size(values: Values, name: string, least = 1): number | undefined {
  const value = values[name];
  if (value === undefined) return undefined;
  const bytes = byteSize(String(value));
  if (Number.isNaN(bytes))
    throw new UsageError(`--${name}: "${String(value)}" is not a size such as 64M or 1.5G`);
  if (bytes < least) throw new UsageError(`--${name} must be more than 0 bytes`);
  return bytes;
}

/** An option whose values the text names. */
function oneOf<T extends string>(values: Values, name: string, names: string): T | undefined {
  const value = values[name];
  if (value === undefined || names.split(/, | or /).includes(String(value)))
    return value as T | undefined;
  throw new UsageError(`--${name}: "${String(value)}" is not ${names}`);
}

/** MIN:MAX, each of which may be missing. */
function imageTokens({ 'image-tokens': text }: Values): EngineOptions['imageTokens'] {
  if (text === undefined) return undefined;
  const found = /^(\d{0,6}):(\d{0,6})$/.exec(String(text));
  const [min, max] = [Number(found?.[1]), Number(found?.[2])];
  if (found && (max === 0 || min <= max)) return { min, max };
  throw new UsageError(`--image-tokens: "${String(text)}" is not MIN:MAX, such as 64:1024`);
}

/** With pictures to show, the projector beside the model is the default. */
function projectorOf({ projector, image }: Values): EngineOptions['projector'] {
  if (projector === 'off') return undefined;
  return (projector as string | undefined) ?? (image ? true : undefined);
}

export function engineOptions(values: Values): EngineOptions {
  const line = new ProgressLine(values);
  return {
    projector: projectorOf(values),
    imageTokens: imageTokens(values),
    memoryBudget: size(values, 'memory-budget')?.toString(),
    threads: number(values, 'threads'),
    contextLength: number(values, 'ctx-size'),
    kernels: values['kernels'] as string | undefined,
    device: oneOf(values, 'device', 'wasm, webgpu or auto'),
    powerPreference: oneOf(values, 'power-preference', 'low-power or high-performance'),
    gpuBudget: size(values, 'gpu-budget'),
    gpuLayers: number(values, 'gpu-layers'),
    cacheDir: values['cache-dir'] as string | undefined,
    ...requestOptions(values),
    onProgress: (event) => line.report(event),
  };
}

export function readText(path: string): string {
  if (path === '-' && process.stdin.isTTY)
    process.stderr.write('sluice: reading the text from this terminal; Ctrl-D ends it\n');
  return readBytes(path === '-' ? 0 : path).toString('utf8');
}

/** The bytes of a file, or of an open one. */
export function readBytes(path: string | number): Buffer {
  try {
    return fs.readFileSync(path);
  } catch (error) {
    const folder = (error as NodeJS.ErrnoException).code === 'EISDIR';
    const why = folder ? 'it is a directory' : 'there is no such file';
    throw new SluiceError('NOT_FOUND', `cannot read "${path === 0 ? '-' : path}": ${why}`, {
      cause: error,
    });
  }
}
