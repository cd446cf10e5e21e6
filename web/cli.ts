#!/usr/bin/env node
// `npx sluice-llm`: command line program that runs the WebAssembly engine in Node. Its commands
// and options are those of the native program `sluice`.

import * as fs from 'node:fs';
import * as path from 'node:path';
import { parseArgs, type ParseArgsConfig } from 'node:util';

import { list, pull, remove, requestOptions, show } from './cli/model-cache.js';
import {
  decimalBytes,
  humanNumber,
  print,
  printTrouble,
  UsageError,
  type Values,
} from './cli/output.js';
import { Engine, SluiceError } from './node.js';
import { Server } from './serve/server.js';
import type { EngineOptions } from './protocol/options.js';
import type { ModelInfo } from './protocol/types.js';

const text = { type: 'string' } as const;
const flag = { type: 'boolean' } as const;
/** How model files are requested. */
const requests = {
  header: { ...text, multiple: true },
  token: text,
  'hf-endpoint': text,
} as const;
const common = {
  ...requests,
  'memory-budget': text,
  threads: { ...text, short: 't' },
  'ctx-size': { ...text, short: 'c' },
  model: { ...text, short: 'm' },
  kernels: text,
  'cache-dir': text,
  json: flag,
  help: { ...flag, short: 'h' },
} as const;
const cached = {
  model: { ...text, short: 'm' },
  'cache-dir': text,
  json: flag,
  help: { ...flag, short: 'h' },
} as const;
const commands: Record<
  string,
  { options: ParseArgsConfig['options']; run: (model: string, values: Values) => Promise<void> }
> = {
  run: {
    options: {
      ...common,
      prompt: { ...text, short: 'p' },
      'n-predict': { ...text, short: 'n' },
      temperature: text,
      'top-k': text,
      'top-p': text,
      'min-p': text,
      'repeat-penalty': text,
      'frequency-penalty': text,
      'presence-penalty': text,
      'repeat-last-n': text,
      seed: text,
      stop: { ...text, multiple: true },
      'ignore-eos': flag,
      chat: flag,
    },
    run: generate,
  },
  serve: {
    options: {
      ...common,
      port: text,
      host: text,
      parallel: text,
      'max-queue': text,
      'api-key': text,
      'cors-origin': text,
      'max-body-size': text,
      timeout: text,
      'shutdown-timeout': text,
      draft: text,
      'no-structured-output': flag,
      'chat-template': text,
      'chat-template-file': text,
      quiet: flag,
    },
    run: serve,
  },
  tokenize: {
    options: {
      ...common,
      file: { ...text, short: 'f' },
      'no-add-special': flag,
      'no-parse-special': flag,
    },
    run: tokenize,
  },
  info: { options: common, run: info },
  pull: { options: { ...cached, ...requests }, run: (...given) => pull(Engine, ...given) },
  list: { options: cached, run: (...given) => list(Engine, ...given) },
  show: { options: cached, run: (...given) => show(Engine, ...given) },
  rm: {
    options: { ...cached, 'max-size': text },
    run: (model, values) => remove(Engine, model, values, size(values, 'max-size', 0)),
  },
};
/** Commands that need no MODEL. */
const withoutModel = ['list', 'rm'];

const usage = `Usage: sluice-llm COMMAND MODEL [options]
MODEL is a GGUF file, an http(s) URL, hf:owner/repo[:Q4_K_M] or hf:owner/repo/file.gguf, with @revision.

  run MODEL -p TEXT    generate text after TEXT ("-": standard input)
      [--chat]         TEXT is a user message; uses the model's chat template
      [-n N] [--temp T] [--top-k K] [--top-p P] [--min-p P] [--seed S] [--stop TEXT]… [--ignore-eos]
      [--repeat-penalty R] [--frequency-penalty F] [--presence-penalty P] [--repeat-last-n N]
  serve MODEL          OpenAI-compatible HTTP server: chat, completions, embeddings, models
      [--port 8080] [--host 127.0.0.1] [--parallel N] [--api-key K] [--cors-origin ORIGIN]
      [--max-queue 64] [--max-body-size 4M] [--timeout S] [--shutdown-timeout S]
      [--draft ngram|MODEL|off] [--no-structured-output] [--quiet]
      [--chat-template TEXT | --chat-template-file FILE]
  tokenize MODEL -f FILE [--no-add-special] [--no-parse-special]    print token ids, as JSON
  info MODEL           print metadata, memory plan and speed estimate

      [--memory-budget 64M] [--threads T] [-c N] [--kernels NAME]
      [--header 'NAME: VALUE']… [--token T] [--hf-endpoint URL]    also of pull (HF_TOKEN, HF_ENDPOINT)

The model cache, which the native program shares (SLUICE_CACHE, else ~/.cache/sluice):
  pull MODEL           download a model; resumes
  list                 list the cached models, the last used first
  show MODEL           show a cached model
  rm MODEL             delete a cached model
  rm --max-size 8G     delete the least recently used models until 8 GB remain

All commands:
      [--cache-dir DIR | none] [--json]
`;

/** Other names of options: our short forms, and llama.cpp's. */
const spellings: Record<string, string> = {
  '--ctx': '--ctx-size',
  '--temp': '--temperature',
  '-np': '--parallel',
  '-md': '--draft',
  '--model-draft': '--draft',
};

/** What SIGINT and SIGTERM do. Commands that can end gracefully replace it. */
let onSignal: () => void = () => process.exit(130);

function number(values: Values, name: string): number | undefined {
  const value = values[name];
  if (value === undefined) return undefined;
  const parsed = Number(value);
  if (value !== '' && Number.isFinite(parsed)) return parsed;
  throw new UsageError(`--${name} needs a number, not "${String(value)}"`);
}

/** A size option in bytes, written like 64M or 1.5G. */
function size(values: Values, name: string, least = 1): number | undefined {
  const value = values[name];
  if (value === undefined) return undefined;
  const match = /^(\d+(?:\.\d+)?|\.\d+)([kKmMgG]?)(?:i?B)?$/.exec(String(value));
  if (!match) throw new UsageError(`"${String(value)}" is not a size such as 64M or 1.5G`);
  const bytes = Math.round(
    Number(match[1]) * 1024 ** ' kmg'.indexOf(match[2]!.toLowerCase() || ' '),
  );
  if (bytes < least) throw new UsageError(`--${name} must be more than 0 bytes`);
  return bytes;
}

function engineOptions(values: Values): EngineOptions {
  return {
    memoryBudget: size(values, 'memory-budget')?.toString(),
    threads: number(values, 'threads'),
    contextLength: number(values, 'ctx-size'),
    kernels: values['kernels'] as string | undefined,
    cacheDir: values['cache-dir'] as string | undefined,
    ...requestOptions(values),
    onProgress: printTrouble,
  };
}

function readText(path: string): string {
  try {
    return fs.readFileSync(path === '-' ? 0 : path, 'utf8');
  } catch {
    throw new SluiceError('NOT_FOUND', `the file "${path}" cannot be read`);
  }
}

async function generate(model: string, values: Values): Promise<void> {
  if (values['prompt'] === undefined) throw new UsageError('--prompt is required');
  const prompt = values['prompt'] === '-' ? readText('-') : String(values['prompt']);
  const options = {
    maxTokens: number(values, 'n-predict') ?? 128,
    temperature: number(values, 'temperature'),
    topK: number(values, 'top-k'),
    topP: number(values, 'top-p'),
    minP: number(values, 'min-p'),
    repeatPenalty: number(values, 'repeat-penalty'),
    frequencyPenalty: number(values, 'frequency-penalty'),
    presencePenalty: number(values, 'presence-penalty'),
    penaltyLastN: number(values, 'repeat-last-n'),
    seed: /^-?\d+$/.test(`${values['seed']}`)
      ? BigInt(values['seed'] as string)
      : number(values, 'seed'),
    stop: values['stop'] as string[] | undefined,
    ignoreEos: values['ignore-eos'] === true,
  };
  let interrupted = false;
  const engine = await Engine.load(model, engineOptions(values));
  const generation = values['chat']
    ? engine.session().send(prompt, options)
    : engine.generate(prompt, options);
  onSignal = () => {
    if (interrupted) process.exit(130);
    interrupted = true;
    generation.cancel();
  };
  try {
    for await (const piece of generation) if (!values['json']) process.stdout.write(piece.text);
    const { text: all, finishReason, usage: used, timings } = await generation.result;
    const stats = engine.stats();
    if (values['json']) {
      print({
        text: all,
        finishReason,
        promptTokens: used.promptTokens,
        promptMs: timings.promptMs,
        generatedTokens: used.completionTokens,
        generateMs: timings.generateMs,
        bytesFetched: stats.bytesFetched,
        bytesFromCache: stats.bytesFromCache,
        kernels: stats.kernels,
        threads: stats.threads,
        memory: engine.memory(),
      });
    } else {
      process.stdout.write('\n');
      const rate = (tokens: number, perSecond: number): string =>
        `${tokens} tokens ${perSecond.toFixed(1)} tok/s`;
      process.stderr.write(
        `prompt ${rate(used.promptTokens, timings.promptTokensPerSecond)} | generated ` +
          `${rate(used.completionTokens, timings.tokensPerSecond)}\n`,
      );
    }
    if (interrupted) process.exitCode = 130;
  } finally {
    await engine.dispose();
  }
}

/** An integer option; `fallback` if it is not given. */
function within(values: Values, name: string, min: number, max: number, fallback: number): number {
  const value = number(values, name) ?? fallback;
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(
    `--${name} must be an integer from ${min} to ${max}, not ${String(values[name])}`,
  );
}

/** A chat template in place of the model's. */
function chatTemplate(values: Values): string | undefined {
  const { 'chat-template': source, 'chat-template-file': file } = values;
  if (source !== undefined && file !== undefined)
    throw new UsageError('--chat-template excludes --chat-template-file');
  const text = file === undefined ? source : fs.readFileSync(String(file), 'utf8');
  if (text === undefined || String(text).includes('{')) return text as string | undefined;
  const shown = String(text).slice(0, 32);
  throw new UsageError(`"${shown}" is not a Jinja template`);
}

async function serve(model: string, values: Values): Promise<void> {
  const maxBody = size(values, 'max-body-size') ?? 4 << 20;
  if (maxBody < 1024 || maxBody > 64 << 20)
    throw new UsageError('--max-body-size must be from 1k to 64M');
  const draft = String(values['draft'] ?? 'off');
  const options = {
    port: within(values, 'port', 0, 65535, 8080),
    host: String(values['host'] ?? '127.0.0.1'),
    queue: within(values, 'max-queue', 1, 4096, 64),
    requestMs: 1000 * within(values, 'timeout', 1, 86400, 600),
    apiKey: String(values['api-key'] ?? process.env['SLUICE_API_KEY'] ?? ''),
    cors: String(values['cors-origin'] ?? ''),
    maxBody,
    ...(!values['quiet'] && { log: (line: string) => void process.stderr.write(`${line}\n`) }),
  };
  const template = chatTemplate(values);
  const grace = within(values, 'shutdown-timeout', 0, 3600, 10);
  const parallel = within(values, 'parallel', 1, 64, 1);
  const engine = await Engine.load(model, {
    ...engineOptions(values),
    parallel,
    structuredOutput: !values['no-structured-output'],
    draft: draft !== 'off' && draft,
  });
  try {
    if (template) {
      engine.info.chatTemplate = template;
      await engine.renderPrompt([{ role: 'user', content: 'x' }]); // errors at the start
    }
    const name = engine.info.name || path.parse(model).name;
    const server = new Server(engine, { ...options, model: name });
    const signalled = interrupts();
    const url = await server.listen();
    if (values['json']) process.stdout.write(`${JSON.stringify({ url, model: name })}\n`);
    else process.stdout.write(`sluice: serving ${name} at ${url}\n`);
    if (!/^(127\.|localhost$|::1$)/.test(options.host) && !options.apiKey) {
      process.stderr.write(
        `sluice: anyone who can reach ${url} can use this server: --api-key is not set\n`,
      );
    }
    await signalled.first;
    const late = setTimeout(() => signalled.hurry.abort(), 1000 * grace);
    await server.close(signalled.hurry.signal);
    clearTimeout(late);
  } finally {
    await engine.dispose();
  }
}

/** `first` resolves at the first SIGINT or SIGTERM; a second one aborts `hurry`. */
function interrupts(): { first: Promise<void>; hurry: AbortController } {
  const hurry = new AbortController();
  const first = new Promise<void>((resolve) => {
    onSignal = () => {
      resolve();
      onSignal = () => hurry.abort();
    };
  });
  return { first, hurry };
}

async function tokenize(model: string, values: Values): Promise<void> {
  if (values['file'] === undefined) throw new UsageError('--file is required');
  const input = readText(String(values['file']));
  const engine = await Engine.load(model, {
    ...engineOptions(values),
    contextLength: number(values, 'ctx-size') ?? 16,
    threads: 1,
  });
  try {
    const ids = await engine.tokenize(input, {
      addSpecial: !values['no-add-special'],
      parseSpecial: !values['no-parse-special'],
    });
    process.stdout.write(`${JSON.stringify([...ids])}\n`);
  } finally {
    await engine.dispose();
  }
}

async function info(model: string, values: Values): Promise<void> {
  const found = await Engine.inspect(model, engineOptions(values));
  if (values['json']) print(found);
  else
    process.stdout.write(
      `${infoLines(found)
        .map(([label, value]) => `${label.padEnd(16)} ${value}\n`)
        .join('')}`,
    );
}

function speedLines({ speed = {} }: ModelInfo): [string, string][] {
  const line = (label: string, value: number | undefined, unit: string): [string, string][] =>
    value === undefined ? [] : [[`  ${label}`, `${humanNumber(value)} ${unit}`]];
  const megabytes = (bytes?: number): number | undefined => bytes && bytes / 1e6;
  return [
    ['estimated speed', ''],
    ...line('decode', speed.tokensPerSecond, 'tokens/s'),
    ...line('compute bound', speed.computeTokensPerSecond, 'tokens/s at most'),
    ...line('model cache', megabytes(speed.cacheBytesPerSecond), 'MB/s'),
    ...line('network', megabytes(speed.networkBytesPerSecond), 'MB/s'),
    ...line('download', speed.downloadSeconds, 's left'),
  ];
}

function infoLines(model: ModelInfo): [string, string][] {
  const { plan } = model;
  return [
    ['architecture', model.architecture],
    ['name', model.name],
    ['parameters', String(model.parameters)],
    ['weights', decimalBytes(model.bytes)],
    ...Object.entries(model.types).map(([type, bytes]): [string, string] => [
      '',
      `${type} ${decimalBytes(bytes)}`,
    ]),
    ['layers', String(model.layers)],
    ['widths', `${model.embeddingLength} hidden, ${model.feedForwardLength} feed-forward`],
    ['heads', `${model.attentionHeads} of ${model.headDim}, ${model.kvHeads} KV heads`],
    ['vocabulary', String(model.vocabSize)],
    ['kernels', `${model.kernels}, ${plan.threads} thread${plan.threads === 1 ? '' : 's'}`],
    ['context', `${model.trainContextLength} trained, ${plan.contextLength} planned`],
    ['memory plan', plan.budget > 0 ? `for a budget of ${decimalBytes(plan.budget)}` : ''],
    ['  pinned', decimalBytes(plan.pinned)],
    ['  stream buffer', `${decimalBytes(plan.streamBuffer)} (${plan.streamSlots} slots)`],
    ['  KV cache', decimalBytes(plan.kv)],
    ['  activations', decimalBytes(plan.activations)],
    ['  tokenizer', decimalBytes(plan.tokenizer)],
    ['  small tensors', decimalBytes(plan.smallTensors)],
    ['  adapters', decimalBytes(plan.adapters)],
    ['  scratch', decimalBytes(plan.scratch)],
    ['  generation', decimalBytes(plan.generation)],
    ['  grammar', decimalBytes(plan.grammar)],
    ['  draft model', decimalBytes(plan.draft)],
    ['  other', decimalBytes(plan.other)],
    ['  total', decimalBytes(plan.total)],
    ['  smallest', decimalBytes(plan.minimum)],
    ['  per pass', `${decimalBytes(plan.bytesPerPass)} streamed in ${plan.units} units`],
    ...speedLines(model),
  ];
}

async function main(argv: string[]): Promise<void> {
  const [name = '--help', ...rest] = argv;
  if (name === '--help' || name === '-h') return void process.stdout.write(usage);
  if (name === '--version') return void process.stdout.write(`${version()}\n`);
  const command = commands[name];
  if (!command)
    throw new UsageError(`unknown command "${name}": use ${Object.keys(commands).join(', ')}`);
  let parsed;
  try {
    const args = rest.map((arg) => arg.replace(/^[^=]+/, (name) => spellings[name] ?? name));
    parsed = parseArgs({ args, options: command.options, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
  const values = parsed.values as Values;
  if (values['help']) return void process.stdout.write(usage);
  const named = values['model'] === undefined ? [] : [String(values['model'])];
  const [model, ...others] = [...parsed.positionals, ...named];
  if (others.length > 0 || (model === undefined && !withoutModel.includes(name)))
    throw new UsageError('give exactly one MODEL');
  await command.run(model ?? '', values);
}

function version(): string {
  const file = new URL('../package.json', import.meta.url);
  return (JSON.parse(fs.readFileSync(file, 'utf8')) as { version: string }).version;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => onSignal());
main(process.argv.slice(2)).catch((error: unknown) => {
  const wrong = error instanceof UsageError;
  const code = wrong ? 'INVALID_ARGUMENT' : error instanceof SluiceError ? error.code : 'INTERNAL';
  process.stderr.write(`sluice: ${(error as Error).message} [${code}]\n`);
  process.exitCode = wrong ? 2 : 1;
});
