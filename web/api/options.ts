// Validates what callers pass (sources, load options, generation options) and converts it to the
// messages for the worker. Unknown options, and values that would wrap around or silently become a
// default, are errors here.

import { publicUrl } from '../protocol/address.js';
import { byteSize } from '../protocol/byte-size.js';
import {
  invalid,
  moduleError,
  onlyKnown,
  signalOf,
  SluiceError,
  throwIfAborted,
} from '../protocol/errors.js';
import type {
  GenerateOptions,
  InspectOptions,
  ModelSource,
  AssertSameKeys,
  TokenizeOptions,
  SplitNames,
} from '../protocol/options.js';
import type {
  AdapterSpec,
  Constraint,
  GenerateSpec,
  LoadSpec,
  SourceSpec,
  TokenizeSpec,
} from '../protocol/messages.js';
import { platform } from './platform.js';
import type { Sources } from '../io/sources.js';
import { kNumbers, seedText } from './sampling.js';

const kLoad =
  'memoryBudget contextLength kvType kvPolicy kvSinks kvCapacity approximate threads projector imageTokens device powerPreference gpuBudget gpuLayers kernels signal cache cacheDir onProgress structuredOutput timeBreakdown draft parallel lora headers token fetch hfEndpoint wasmUrl wasmBinary workerUrl ioWorker';
const kGenerate =
  'maxTokens stop stopTokenIds temperature topK topP minP repeatPenalty frequencyPenalty presencePenalty penaltyLastN seed logitBias signal logprobs postSamplingProbs images addSpecial parseSpecial literalSpans continuation skipSpecialTokens cachePrompt ignoreEos grammar regex choice jsonSchema';
true satisfies AssertSameKeys<SplitNames<typeof kLoad> | 'tuning', keyof InspectOptions>;
true satisfies AssertSameKeys<SplitNames<typeof kGenerate>, keyof GenerateOptions>;

const kMaxThreads = 64; // each thread is a worker
const kMaxCount = 2 ** 31 - 1;
const kMinBytes = 65536;

export function checkLoad(options: InspectOptions): void {
  signalOf(options);
  onlyKnown('load() and inspect()', { ...options, tuning: undefined }, kLoad);
  if (typeof (options.onProgress ?? Date) !== 'function') invalid('onProgress must be a function.');
  try {
    platform().workerAddress(options.workerUrl);
  } catch {
    if (options.workerUrl) invalid(`workerUrl '${options.workerUrl}' is not a URL.`);
  }
}

export function checkGenerate(options: GenerateOptions): void {
  onlyKnown('a generation', options, kGenerate);
}

/** What the worker gets, and what ends the requests that this thread makes for it. */
export async function loadSpec(
  source: ModelSource,
  options: InspectOptions,
): Promise<[LoadSpec, (() => void)?]> {
  throwIfAborted(options.signal);
  const {
    wasmUrl,
    kernels = '',
    kvType = 'f16',
    powerPreference = 'high-performance',
    gpuLayers,
    parallel = 1,
    approximate = {},
    imageTokens = {},
  } = options;
  onlyKnown('imageTokens', imageTokens, 'min max');
  onlyKnown('approximate', approximate, 'skipLayersRatio headClusters');
  const { skipLayersRatio, headClusters } = approximate;
  const threads = count('threads', options.threads);
  if (threads > kMaxThreads) invalid(`threads must be at most ${kMaxThreads}.`);
  const draft = draftOf(options);
  const { projector } = options;
  const device =
    (options.device === 'auto' && (draft || parallel > 1) ? 'wasm' : options.device) ?? 'wasm';
  if (!(parallel >= 1 && parallel <= 64) || parallel % 1) invalid('parallel must be from 1 to 64.');
  const own = wasmUrl || options.wasmBinary ? undefined : platform().wasmBinary?.(kernels);
  const cache = oneOf('cache', options.cache ?? 'default', 'default, only, reload or none');
  const sources = await sourcesOf(options, [source, draft, projector]);
  const model = await (sources ? sources.model(source) : sourceSpec(source));
  const specOf = (other: ModelSource) => (sources ? sources.spec(other) : sourceSpec(other));
  const spec: LoadSpec = {
    source: model,
    io: { cache, cacheDir: options.cacheDir, tuning: options.tuning },
    wasm: {
      url: wasmUrl?.toString(),
      binary: options.wasmBinary ?? (await own),
      full: !!(projector || skipLayersRatio || (headClusters ?? 'off') !== 'off'),
    },
    engine: {
      contextLength: Math.min(count('contextLength', options.contextLength), kMaxCount),
      kernels,
      kvType: `${kvType}`,
      kvPolicy: options.kvPolicy,
      kvSinks:
        options.kvSinks === undefined ? -1 : Math.min(count('kvSinks', options.kvSinks), kMaxCount),
      kvCapacity: Math.min(count('kvCapacity', options.kvCapacity), kMaxCount),
      skipLayersRatio: +(skipLayersRatio ?? 0),
      headClusters:
        device === 'wasm'
          ? `${headClusters ?? ''}`
          : headClusters
            ? invalid('approximate.headClusters needs device wasm.')
            : 'off',
      structuredOutput: options.structuredOutput,
      timeBreakdown: !!options.timeBreakdown,
      draft: !!options.draft,
      parallel,
    },
    memoryBudget: byteCount('memoryBudget', options.memoryBudget),
    threads: nestedInFirefox ? 1 : threads,
    draftSource: draft ? await specOf(draft) : undefined,
    projectorSource: !projector
      ? undefined
      : projector === true
        ? await sources!.beside(source, model)
        : await specOf(projector),
    imageTokens: {
      minTokens: count('imageTokens.min', imageTokens.min),
      maxTokens: count('imageTokens.max', imageTokens.max),
    },
    lora: await adapterSpecs(options.lora, options, sources),
    device: oneOf('device', device, 'wasm, webgpu or auto'),
    powerPreference: oneOf('powerPreference', powerPreference, 'low-power or high-performance'),
    gpuBudget: byteCount('gpuBudget', options.gpuBudget),
    gpuLayers:
      gpuLayers === undefined
        ? gpuLayers
        : device === 'wasm'
          ? invalid('gpuLayers needs device webgpu or auto.')
          : gpuLayers === 'auto'
            ? Infinity
            : count('gpuLayers', gpuLayers),
    gpuMinBatch: 1,
    ioWorker: !nestedInFirefox && (options.ioWorker ?? true),
  };
  const [request, close] = sources?.request() ?? [];
  spec.io.request = request;
  return [spec, close];
}

/** The draft model; undefined: there is none. */
function draftOf({ draft }: InspectOptions): ModelSource | undefined {
  if (draft === '') invalid("draft must be 'ngram' or a model.");
  return !draft || draft === 'ngram' ? undefined : draft;
}

export async function adapterSpecs(
  list: InspectOptions['lora'] = [],
  options: InspectOptions,
  sources?: Sources,
): Promise<AdapterSpec[]> {
  if (list.length === 0) return [];
  const module = await import('./adapters.js').catch(moduleError('adapters.js'));
  return module.adapterSpecs(list, {
    sources: sources ?? (await sourcesOf(options))!,
    readFile: platform().readFile,
    SluiceError,
  });
}

/** The module for sources and requests that are not plain; undefined: those in `list` all are. */
async function sourcesOf(options: InspectOptions, list?: unknown[]): Promise<Sources | undefined> {
  const { headers, token, fetch, hfEndpoint } = options;
  const { env, listFolder, storeBackend } = platform();
  const plain = list?.every((one) =>
    Array.isArray(one)
      ? one.every((part) => part instanceof Blob)
      : one instanceof Blob || (one !== true && !/^(hf|blob|data):|^\[/i.test(`${one}`)),
  );
  if (!(headers ?? token ?? fetch ?? hfEndpoint ?? env) && plain) return undefined;
  const module = await import('../io/sources.js').catch(moduleError('sources.js'));
  return new module.Sources(options, {
    sourceSpec,
    env: env ?? {},
    listFolder,
    cache: storeBackend,
  });
}

/**
 * True in a worker in Firefox 153, where starting another worker sometimes blocks forever. Only the
 * engine's own worker is started there, no I/O worker and no threads.
 */
const nestedInFirefox =
  typeof document === 'undefined' && /Firefox/.test(`${globalThis.navigator?.userAgent}`);

/** The value, if it is one of those that the text names. */
function oneOf<T extends string>(name: string, value: T, names: string): T {
  return names.split(/, | or /).includes(value) ? value : invalid(`${name} must be ${names}.`);
}

export function sourceSpec(source: ModelSource): SourceSpec {
  try {
    return specOf(source);
  } catch (cause) {
    if (cause instanceof SluiceError) throw cause;
    throw new SluiceError('INVALID_ARGUMENT', `'${source}' is not a valid model address.`, {
      cause,
    });
  }
}

function specOf(source: ModelSource): SourceSpec {
  if ((source && typeof source === 'string') || source instanceof URL) {
    const spec = platform().resolveSource(String(source));
    // fetch() cannot read these, and its error would look like a network failure.
    if (spec.kind === 'url' && /^(file|s?ftps?|[a-z]):/i.test(spec.url)) {
      invalid(`'${publicUrl(spec.url)}' cannot be read: give an http(s) address or a File.`);
    }
    return spec;
  }
  const blobs = (Array.isArray(source) ? source : [source]) as Blob[];
  if (blobs.length === 0 || !blobs.every((blob) => blob instanceof Blob)) {
    invalid('Pass a model address, a File or a list of them.');
  }
  return {
    kind: 'files',
    files: blobs,
    names: blobs.map((blob) => (blob as File).name ?? 'model'),
  };
}

/** The value rounded down; 0 if undefined. Throws if it is negative or not finite. */
export function count(name: string, value: number | undefined): number {
  if (value === undefined) return 0;
  if (Number.isFinite(value) && value >= 0) return Math.floor(value);
  return invalid(`${name} must be a number of 0 or more.`);
}

/**
 * A number of bytes, or a text such as '64M' or '1.5G' (powers of 1024); 0 if undefined or 'auto'.
 * Throws for a number below 64 KiB: no model is that small, but a shift that overflowed is.
 */
export function byteCount(name: string, value: number | string | undefined): number {
  if (value === undefined || value === 'auto') return 0;
  const text = typeof value === 'string';
  const bytes = text ? byteSize(value) : Math.floor(value);
  if (bytes >= (text ? 1 : kMinBytes) && bytes < Infinity) return bytes;
  return invalid(
    `${name} must be bytes, from ${kMinBytes}, or a text such as '64M', not '${value}'. ` +
      "4 << 30 overflows: write '4G'.",
  );
}

/** Token ids as an Int32Array. Throws if one is not an integer from 0 to vocabulary - 1. */
export function tokenIds(tokens: ArrayLike<number>, vocabulary: number): Int32Array {
  const list = typeof tokens === 'object' && tokens?.length >= 0 ? Array.from(tokens) : [NaN];
  if (!list.every(Number.isInteger))
    invalid('Pass a string or token ids; chat messages go to chat.completions.create().');
  const wrong = list.find((token) => token < 0 || token >= vocabulary);
  if (wrong !== undefined)
    invalid(`${wrong} is not a token id: they range from 0 to ${vocabulary - 1}.`);
  return Int32Array.from(list);
}

export const isText = (value: unknown): value is string => typeof value === 'string';

export function tokenizeSpec({
  addSpecial = true,
  parseSpecial = true,
  literalSpans = false,
  continuation = false,
}: TokenizeOptions): TokenizeSpec {
  return { addSpecial, parseSpecial, literalSpans, continuation };
}

export function generateSpec(
  prompt: string | ArrayLike<number>,
  options: GenerateOptions,
  vocabulary: number,
  sequence: number,
): GenerateSpec {
  const {
    stop,
    logprobs,
    logitBias,
    signal: _,
    grammar,
    regex,
    choice,
    jsonSchema,
    images: _images,
    ...sampling
  } = options;
  const maxTokens =
    (options.maxTokens ?? Infinity) === Infinity ? Infinity : count('maxTokens', options.maxTokens);
  const stops = [stop ?? []].flat();
  if (!stops.every(isText)) invalid('stop must be a string or string array.');
  for (const name of kNumbers) {
    if (!Number.isFinite(options[name] ?? 0)) invalid(`${name} must be a number.`);
  }
  for (const [token, bias] of Object.entries(logitBias ?? {})) {
    tokenIds([Number(token)], vocabulary);
    if (!Number.isFinite(bias) && bias !== -Infinity)
      invalid('logitBias values must be numbers or -Infinity.');
  }
  return {
    ...sampling,
    sequence: sequence,
    logitBias,
    // Tokens of a session may be a picture's, which are not in the vocabulary.
    prompt:
      isText(prompt) || (sequence > 0 && prompt instanceof Int32Array)
        ? prompt
        : tokenIds(prompt, vocabulary),
    maxTokens,
    stop: stops.filter((stop) => stop !== ''),
    stopTokenIds: tokenIds(options.stopTokenIds ?? [], vocabulary),
    logprobs:
      (logprobs ?? false) === false
        ? undefined
        : Math.min(count('logprobs', logprobs === true ? 0 : (logprobs as number)), kMaxCount),
    seed: seedText(options.seed),
    ...tokenizeSpec(options),
    skipSpecialTokens: options.skipSpecialTokens ?? true,
    cachePrompt: options.cachePrompt ?? true,
    ignoreEos: options.ignoreEos ?? false,
    constraint: constraintOf(grammar, regex, choice, jsonSchema),
  };
}

function constraintOf(
  grammar?: string,
  regex?: string,
  choice?: readonly string[],
  schema?: object | string | boolean,
): Constraint | undefined {
  if (choice !== undefined && !(Array.isArray(choice) && choice.every(isText)))
    invalid('choice must be a string array.');
  const given = [
    grammar,
    regex,
    choice && JSON.stringify(choice),
    schema === true ? '' : undefined,
    schema === true ? undefined : isText(schema) ? schema : schema && JSON.stringify(schema),
  ]
    .map((text, kind) => ({ kind, text }))
    .filter(({ text }) => text !== undefined);
  if (given.length > 1) invalid('Only one of grammar, regex, choice and jsonSchema can be set.');
  if (!given.every(({ text }) => isText(text)))
    invalid('grammar and regex are strings, jsonSchema an object or true.');
  return given[0] as Constraint | undefined;
}
