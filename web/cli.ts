#!/usr/bin/env node
// `npx sluice-llm`: command line program that runs the WebAssembly engine in Node. Its commands
// and options are those of the native program `sluice`.

import * as fs from 'node:fs';
import * as path from 'node:path';

import { readArguments, type Options } from './cli/arguments.js';
import { engineOptions, number, readText, size } from './cli/common.js';
import { list, pull, remove, show } from './cli/model-cache.js';
import { decimalBytes, humanNumber, print, UsageError, type Values } from './cli/output.js';
import { converse, run } from './cli/run.js';
import { signals, watchSignals } from './cli/signals.js';
import { didYouMean, otherCommand, spelling } from './cli/spellings.js';
import { Engine, SluiceError } from './node.js';
import { publicUrl } from './protocol/address.js';
import { fetchPicture, isPublicAddress } from './serve/picture-urls.js';
import { Server } from './serve/server.js';
import type { FetchPicture } from './chat/engine.js';
import type { MemoryPlan, ModelInfo, SpeedEstimate } from './protocol/types.js';

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
/** Where forward passes are computed. */
const device = {
  device: text,
  'power-preference': text,
  'gpu-budget': text,
  'gpu-layers': text,
} as const;
/** Prompts with pictures. */
const vision = { projector: text, 'image-tokens': text } as const;
const talking = {
  ...common,
  ...device,
  ...vision,
  system: text,
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
  quiet: flag,
} as const;
const cached = {
  model: { ...text, short: 'm' },
  'cache-dir': text,
  json: flag,
  help: { ...flag, short: 'h' },
} as const;
const commands: Record<
  string,
  { options: Options; run: (model: string, values: Values, word?: string) => Promise<void> }
> = {
  run: {
    options: {
      ...talking,
      prompt: { ...text, short: 'p' },
      file: { ...text, short: 'f' },
      raw: flag,
      grammar: text,
      'json-schema': text,
      image: { ...text, multiple: true },
      'no-display-prompt': flag, // never displayed here
    },
    run: (...given) => run(Engine, ...given),
  },
  chat: { options: talking, run: (model, values) => converse(Engine, model, values) },
  serve: {
    options: {
      ...common,
      ...device,
      ...vision,
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
      'allow-image-urls': flag,
      'allow-private-image-urls': flag,
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
  info: { options: { ...common, ...device, ...vision }, run: info },
  pull: {
    options: { ...cached, ...requests, quiet: flag },
    run: (model, values) => pull(Engine, model, values),
  },
  list: { options: cached, run: (_, values) => list(Engine, values) },
  show: { options: cached, run: (model, values) => show(Engine, model, values) },
  rm: {
    options: { ...cached, 'max-size': text },
    run: (model, values) => remove(Engine, model, values, size(values, 'max-size', 0)),
  },
};
/** Commands that need no MODEL. */
const withoutModel = ['list', 'rm'];

const usage = `Usage: sluice-llm COMMAND MODEL [options]
MODEL is a GGUF file, an http(s) URL, hf:owner/repo[:Q4_K_M] or hf:owner/repo/file.gguf, with @revision.

  run MODEL [PROMPT]   answer a prompt ("-": standard input); without one, hold a conversation
      [-p PROMPT | -f FILE] [--raw]    --raw: continue the prompt without the chat template
      [--grammar G | --json-schema S]    structured output: the text itself, or a file with it
      [--image FILE]…    pictures, for a model with a projector
  chat MODEL           hold a conversation
      [--system TEXT] [-n N] [--temp 0.8] [--top-k 40] [--top-p 0.95] [--min-p 0.05] [--seed S]
      [--stop TEXT]… [--ignore-eos] [--repeat-penalty 1] [--frequency-penalty 0]
      [--presence-penalty 0] [--repeat-last-n 64] [--quiet]
  serve MODEL          OpenAI-compatible HTTP server: chat, completions, embeddings, models
      [--port 8080] [--host 127.0.0.1] [--parallel 1] [--api-key K] [--cors-origin ORIGIN]
      [--max-queue 64] [--max-body-size 4M, with a projector 32M] [--timeout 600] [--shutdown-timeout 10]
      [--draft ngram|MODEL|off] [--no-structured-output] [--quiet]
      [--chat-template TEXT | --chat-template-file FILE]
      [--allow-image-urls [--allow-private-image-urls]]    fetch pictures that requests name by URLs
  tokenize MODEL -f FILE [--no-add-special] [--no-parse-special]    print token ids, as JSON
  info MODEL           print metadata, memory plan and speed estimate

      [--memory-budget 64M] [--threads T] [-c N] [--kernels NAME]
      [--device wasm|webgpu|auto] [--gpu-budget 4G] [--gpu-layers N]
      [--power-preference low-power|high-performance]    a GPU needs the npm package webgpu:
      npx -p sluice-llm -p webgpu sluice-llm serve MODEL --device webgpu
      [--projector P | off] [--image-tokens MIN:MAX]    vision projector; with --image the one beside the model
      [--header 'NAME: VALUE']… [--token T] [--hf-endpoint URL]    also of pull (HF_TOKEN, HF_ENDPOINT)

The model cache, which the native program shares (SLUICE_CACHE, else ~/.cache/sluice):
  pull MODEL           download a model; resumes
  list                 list the cached models, the last used first
  show MODEL           show a cached model
  rm MODEL             delete a cached model
  rm --max-size 8G     delete the least recently used models until 8 GB remain

All commands:
      [--cache-dir DIR | none] [--json]

Example: sluice-llm run model.gguf "Why is the sky blue?"
`;

/** A chat template in place of the model's. */
function chatTemplate(values: Values): string | undefined {
  const { 'chat-template': source, 'chat-template-file': file } = values;
  if (source !== undefined && file !== undefined)
    throw new UsageError('give either --chat-template or --chat-template-file, not both');
  const text = file === undefined ? source : readText(String(file));
  if (text === undefined || String(text).includes('{')) return text as string | undefined;
  const shown = String(text).slice(0, 32);
  throw new UsageError(`--chat-template: "${shown}" is not a Jinja template, since it has no {`);
}

/** Gets pictures from public addresses, or from all. */
function pictureFetcher(values: Values): FetchPicture {
  const allows = values['allow-private-image-urls'] ? (): boolean => true : isPublicAddress;
  return (url) => fetchPicture(url, { allows });
}

async function serve(model: string, values: Values): Promise<void> {
  const maxBody = size(values, 'max-body-size');
  if (maxBody !== undefined && (maxBody < 1024 || maxBody > 64 << 20)) {
    const given = String(values['max-body-size']);
    throw new UsageError(`--max-body-size: "${given}" is not a size from 1K to 64M`);
  }
  if (values['allow-private-image-urls'] && !values['allow-image-urls'])
    throw new UsageError('--allow-private-image-urls needs --allow-image-urls');
  const draft = String(values['draft'] ?? 'off');
  const options = {
    port: number(values, 'port') ?? 8080,
    host: String(values['host'] ?? '127.0.0.1'),
    queue: number(values, 'max-queue') ?? 64,
    requestMs: 1000 * (number(values, 'timeout') ?? 600),
    apiKey: String(values['api-key'] ?? process.env['SLUICE_API_KEY'] ?? ''),
    cors: String(values['cors-origin'] ?? ''),
    ...(values['allow-image-urls'] && { fetchPicture: pictureFetcher(values) }),
    ...(!values['quiet'] && { log: (line: string) => void process.stderr.write(`${line}\n`) }),
  };
  const template = chatTemplate(values);
  const grace = number(values, 'shutdown-timeout') ?? 10;
  const parallel = number(values, 'parallel') ?? 1;
  const engine = await Engine.load(model, {
    ...engineOptions(values),
    parallel,
    structuredOutput: !values['no-structured-output'],
    draft: draft !== 'off' && draft,
  });
  try {
    if (template) {
      engine.info.chatTemplate = template;
      delete engine.info.toolTemplate;
      await engine.renderPrompt([{ role: 'user', content: 'x' }]); // errors at the start
    }
    const name = engine.info.name || path.parse(model).name;
    const largest = (engine.info.modalities.includes('image') ? 32 : 4) << 20;
    const server = new Server(engine, { ...options, model: name, maxBody: maxBody ?? largest });
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
    signals.handle = () => {
      resolve();
      signals.handle = () => hurry.abort();
    };
  });
  return { first, hurry };
}

async function tokenize(model: string, values: Values): Promise<void> {
  if (values['file'] === undefined)
    throw new UsageError('--file is missing; sluice-llm --help shows the usage');
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
    ...expertLines(speed),
  ];
}

/** What the estimate assumes of a mixture's router. */
function expertLines(speed: SpeedEstimate): [string, string][] {
  const { expertsInMemory, expertHitRate, bytesReadPerToken } = speed;
  if (expertHitRate === undefined) return [];
  const percent = (share = 0): string => `${humanNumber(100 * share)} %`;
  return [
    [
      '  experts',
      `${percent(expertsInMemory)} in memory, hit rate ${percent(expertHitRate)} if chosen uniformly at random`,
    ],
    ['  reads', `${decimalBytes(bytesReadPerToken ?? 0)} per token`],
  ];
}

/** The parts of the memory plan, in the order of the native program. */
const kMemoryParts = [
  ...(['pinned', 'streamBuffer', 'smallTensors', 'kv', 'activations', 'scratch'] as const),
  ...(['tokenizer', 'generation', 'grammar', 'adapters', 'nextn', 'reserve'] as const),
  ...(['other', 'draft'] as const),
];

/** "streamBuffer" as "stream buffer". */
const wordsOf = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

function partText(plan: MemoryPlan, name: (typeof kMemoryParts)[number]): string {
  const text = decimalBytes(plan[name]);
  if (name === 'streamBuffer') return `${text} (${plan.streamSlots} slots)`;
  return name === 'kv' ? `${text} as ${plan.kvType}` : text;
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
    [
      'context',
      `${model.trainContextLength} trained, ${plan.contextLength} planned (${plan.contextFrom})`,
    ],
    ...(model.device ? [['device', model.device.reason] as [string, string]] : []),
    ['memory plan', plan.budget > 0 ? `for a budget of ${decimalBytes(plan.budget)}` : ''],
    ...kMemoryParts
      .filter((name) => plan[name] > 0)
      .map((name): [string, string] => [`  ${wordsOf(name)}`, partText(plan, name)]),
    ['  total', decimalBytes(plan.total)],
    ['  smallest', decimalBytes(plan.minimum)],
    ['  per pass', `${decimalBytes(plan.bytesPerPass)} streamed in ${plan.units} units`],
    ...speedLines(model),
  ];
}

async function main(argv: string[]): Promise<void> {
  const [given = '--help', ...rest] = argv;
  const name = spelling('Command', given) ?? given;
  if (['--help', '-h', 'help'].includes(name)) return void process.stdout.write(usage);
  if (name === '--version') return void process.stdout.write(`${version()}\n`);
  otherCommand(name);
  const command = commands[name];
  if (!command) {
    if (name.startsWith('-'))
      throw new UsageError(`the command comes before ${name}, such as sluice-llm run`);
    if (/\.(gguf|qsf)$|^(hf|https?):/i.test(name))
      throw new UsageError(
        `"${name}" is a model: the command comes before it, as in sluice-llm run ${name}`,
      );
    const near = didYouMean(name, Object.keys(commands));
    throw new UsageError(`"${name}" is not a command${near}; sluice-llm --help lists the commands`);
  }
  const { values, positionals } = readArguments(name, command.options, rest);
  if (values['help']) return void process.stdout.write(usage);
  const model =
    values['model'] === undefined && name !== 'list'
      ? positionals.shift()
      : (values['model'] as string | undefined);
  if (model === undefined && !withoutModel.includes(name))
    throw new UsageError('MODEL is missing; sluice-llm --help shows the usage');
  const word = name === 'run' ? positionals.shift() : undefined;
  if (positionals.length > 0) {
    const quote = name === 'run' ? ': put a prompt of several words in quotes' : '';
    throw new UsageError(
      `"${positionals[0]}" is one argument too many${quote}; sluice-llm --help shows the usage`,
    );
  }
  await command.run(model ?? '', values, word).catch((error: unknown) => {
    throw about(model ?? '', error);
  });
}

function version(): string {
  const file = new URL('../package.json', import.meta.url);
  return (JSON.parse(fs.readFileSync(file, 'utf8')) as { version: string }).version;
}

/** An error about a model's contents, with the model's name. */
function about(model: string, error: unknown): unknown {
  const contents = ['NOT_GGUF', 'TRUNCATED', 'BAD_HEADER', 'UNSUPPORTED_VERSION'];
  if (!(error instanceof SluiceError)) return error;
  const { code, message } = error;
  if (contents.includes(code) && !message.includes(model))
    return new SluiceError(code, `${publicUrl(model)}: ${message}`, { cause: error });
  if (code !== 'NOT_FOUND' || /[/\\]|\.gguf$/.test(model) || !message.includes('does not exist'))
    return error;
  const kinds = 'a model is a file, a directory, a URL or hf:owner/repo/file.gguf';
  return new SluiceError(code, `${message.replace(/\.$/, '')}; ${kinds}`, { cause: error });
}

function fail(error: unknown): void {
  const wrong = error instanceof UsageError;
  const code = wrong ? 'INVALID_ARGUMENT' : error instanceof SluiceError ? error.code : 'INTERNAL';
  process.stderr.write(`sluice: ${(error as Error).message} [${code}]\n`);
  process.exitCode = wrong ? 2 : 1;
}

const kBrokenPipe = 141; // as a shell reports SIGPIPE
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(kBrokenPipe);
  fail(new SluiceError('IO', 'cannot write to standard output', { cause: error }));
  process.exit();
});
watchSignals();
main(process.argv.slice(2)).catch(fail);
