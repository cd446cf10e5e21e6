// `npx sluice-llm run` and `chat`: one response, or a conversation.

import * as readline from 'node:readline';

import type { Engine } from '../api/engine.js';
import type { ChatMessage, ContentPart } from '../chat/engine.js';
import type { GenerateOptions, ImageSource } from '../protocol/options.js';
import { SluiceError } from '../protocol/errors.js';
import { kMediaMark } from '../protocol/literal-spans.js';
import { engineOptions, number, readBytes, readText, seed } from './common.js';
import { print, UsageError, type Values } from './output.js';
import { signals } from './signals.js';

const kCompletionTokens = 128;
const kHelp = `/image FILE  show a picture with the next message
/clear       forget the conversation; the system message stays
/bye, /quit, /exit
             quit; so does Ctrl-D
/help, /?    show this list
`;

function generateOptions(values: Values): GenerateOptions {
  return {
    temperature: number(values, 'temperature'),
    topK: number(values, 'top-k'),
    topP: number(values, 'top-p'),
    minP: number(values, 'min-p'),
    repeatPenalty: number(values, 'repeat-penalty'),
    frequencyPenalty: number(values, 'frequency-penalty'),
    presencePenalty: number(values, 'presence-penalty'),
    penaltyLastN: number(values, 'repeat-last-n'),
    seed: seed(values),
    stop: values['stop'] as string[] | undefined,
    ignoreEos: values['ignore-eos'] === true,
  };
}

/** The constraint of --grammar or --json-schema. */
interface Structure {
  options: Pick<GenerateOptions, 'grammar' | 'jsonSchema'>;
  /** The option, and the file if it names one. '': none is given. */
  where: string;
}

function structure(values: Values): Structure {
  const { grammar, 'json-schema': schema } = values as Record<string, string | undefined>;
  if (grammar !== undefined && schema !== undefined)
    throw new UsageError('give either --grammar or --json-schema, not both');
  const given = grammar ?? schema;
  if (given === undefined) return { options: {}, where: '' };
  const isText = grammar === undefined ? /^\s*\{/.test(given) : given.includes('::=');
  const text = isText ? given : readText(given);
  return {
    options: grammar === undefined ? { jsonSchema: text } : { grammar: text },
    where: `--${grammar === undefined ? 'json-schema' : 'grammar'}${isText ? '' : ` "${given}"`}`,
  };
}

/** An error of a constraint, with where the constraint came from. */
function located({ where }: Structure, error: unknown): unknown {
  if (!where || !(error instanceof SluiceError) || !/^(GRAMMAR|SCHEMA)_/.test(error.code))
    return error;
  return new SluiceError(error.code, `${where}: ${error.message}`, { cause: error });
}

/** undefined: as many as fit. */
function maxTokens(values: Values, fallback?: number): number | undefined {
  const n = number(values, 'n-predict') ?? fallback;
  return n === -1 ? undefined : n;
}

/** PROMPT, --prompt or --file; undefined if none is given. */
function promptOf(values: Values, word: string | undefined): string | undefined {
  const given = [
    ['PROMPT', word],
    ['--prompt', values['prompt']],
    ['--file', values['file']],
  ].filter(([, value]) => value !== undefined) as [string, string][];
  if (given.length > 1)
    throw new UsageError(`give either ${given[0]![0]} or ${given[1]![0]}, not both`);
  if (given.length === 0) return undefined;
  const [name, value] = given[0]!;
  return name === '--file' || value === '-' ? readText(value) : value;
}

/** The pictures of --image: files or addresses. */
const imagesOf = ({ image = [] }: Values): ImageSource[] =>
  (image as string[]).map((one) => (/^(https?|data):/i.test(one) ? one : readBytes(one)));

/** The prompt of a text with pictures, of which those without a mark come first. */
function withMarks(text: string, images: ImageSource[]): string {
  const marks = text.split(kMediaMark).length - 1;
  return kMediaMark.repeat(Math.max(0, images.length - marks)) + text;
}

const imagePart = (image: ImageSource): ContentPart => ({ type: 'image', image });
const textPart = (text: string): ContentPart[] => (text ? [{ type: 'text', text }] : []);

/** The prompt as a message: each mark in it is the next picture. */
function messageOf(prompt: string, images: ImageSource[]): string | ChatMessage {
  if (images.length === 0) return prompt;
  const [first = '', ...texts] = withMarks(prompt, images).split(kMediaMark);
  if (texts.length > images.length)
    throw new SluiceError('INVALID_ARGUMENT', `${kMediaMark} occurs more often than --image`);
  const parts = texts.flatMap((text, i) => [imagePart(images[i]!), ...textPart(text)]);
  return { role: 'user', content: [...textPart(first), ...parts] };
}

type Generation = ReturnType<Engine['generate']>;

/** Writes a response as it is generated. A terminal shows its reasoning dimmed. */
async function stream(generation: Generation): Promise<void> {
  const styled = process.stdout.isTTY;
  let dim = false;
  for await (const { text, content, reasoning } of generation) {
    if (content === undefined) {
      process.stdout.write(text);
      continue;
    }
    if (reasoning && styled) {
      process.stdout.write(`${dim ? '' : '\x1b[2m'}${reasoning}`);
      dim = true;
    }
    if (!content) continue;
    process.stdout.write(`${dim ? '\x1b[0m\n\n' : ''}${content}`);
    dim = false;
  }
  process.stdout.write(dim ? '\x1b[0m\n' : '\n');
}

async function printRates(generation: Generation): Promise<void> {
  const { finishReason, usage, timings } = await generation.result;
  const rate = (tokens: number, perSecond: number): string =>
    `${tokens} tokens, ${perSecond.toFixed(1)} tok/s`;
  process.stderr.write(
    `prompt ${rate(usage.promptTokens, timings.promptTokensPerSecond)} | generated ` +
      `${rate(usage.completionTokens, timings.tokensPerSecond)}` +
      `${finishReason === 'length' ? ' | stopped by --n-predict' : ''}\n`,
  );
}

async function printJson(engine: Engine, generation: Generation, chat: boolean): Promise<void> {
  const result = await generation.result;
  const { finishReason, usage, timings } = result;
  const stats = engine.stats();
  print({
    text: chat ? result.content : result.text,
    ...(chat && { reasoning: result.reasoning }),
    finishReason,
    promptTokens: usage.promptTokens,
    promptMs: timings.promptMs,
    generatedTokens: usage.completionTokens,
    generateMs: timings.generateMs,
    bytesFetched: stats.bytesFetched,
    bytesFromCache: stats.bytesFromCache,
    kernels: stats.kernels,
    threads: stats.threads,
    device: stats.device,
    memory: engine.memory(),
  });
}

/** Answers a prompt; without one, holds a conversation. */
export async function run(
  engines: typeof Engine,
  model: string,
  values: Values,
  word?: string,
): Promise<void> {
  const prompt = promptOf(values, word);
  if (prompt === undefined) {
    const needs = ['raw', 'json', 'grammar', 'json-schema'].find((name) => values[name]);
    if (needs)
      throw new SluiceError('PROMPT_EMPTY', `--${needs} needs a prompt: write it after MODEL`);
    return converse(engines, model, values, true);
  }
  if (prompt === '') {
    throw new SluiceError(
      'PROMPT_EMPTY',
      'the prompt is empty: write it after MODEL, as in sluice-llm run MODEL "Hello"',
    );
  }
  const constraint = structure(values);
  const images = imagesOf(values);
  const options = { ...generateOptions(values), ...constraint.options };
  const system = values['system'] as string | undefined;
  if (values['raw'] && system !== undefined)
    throw new UsageError('give either --raw or --system, not both');
  const engine = await engines.load(model, engineOptions(values));
  try {
    const chat = !values['raw'] && engine.info.chatTemplate !== undefined;
    if (system !== undefined && !chat)
      throw new SluiceError(
        'CHAT_TEMPLATE',
        '--system needs a chat template, which the model lacks',
      );
    options.maxTokens = maxTokens(values, chat ? undefined : kCompletionTokens);
    const generation = chat
      ? engine.session({ system }).send(messageOf(prompt, images), options)
      : images.length > 0
        ? engine.generate(withMarks(prompt, images), { ...options, images })
        : engine.generate(prompt, options);
    let interrupted = false;
    signals.handle = () => {
      if (interrupted) process.exit(130);
      interrupted = true;
      generation.cancel();
    };
    if (values['json']) await printJson(engine, generation, chat);
    else await stream(generation);
    if (!values['json'] && !values['quiet']) await printRates(generation);
    if (interrupted) process.exitCode = 130;
  } catch (error) {
    throw located(constraint, error);
  } finally {
    await engine.dispose();
  }
}

/** A conversation: a line is a message or a command. */
export async function converse(
  engines: typeof Engine,
  model: string,
  values: Values,
  needsTemplate = false,
): Promise<void> {
  if (values['json'])
    throw new SluiceError('INVALID_ARGUMENT', 'chat has no --json; use run or serve');
  const options = { ...generateOptions(values), maxTokens: maxTokens(values) };
  const engine = await engines.load(model, engineOptions(values));
  try {
    if (needsTemplate && engine.info.chatTemplate === undefined) {
      throw new SluiceError(
        'PROMPT_EMPTY',
        'the model has no chat template to begin a conversation with: give a prompt after MODEL ' +
          'or with --prompt, or use sluice-llm chat',
      );
    }
    await talk(engine, values, options);
  } finally {
    await engine.dispose();
  }
}

const complain = (message: string): void => void process.stderr.write(`sluice: ${message}\n`);

/** `/image`: adds a picture to those of the next message. */
function addImage(engine: Engine, file: string, images: ImageSource[]): void {
  try {
    if (!engine.info.modalities.includes('image'))
      complain('the model takes no pictures: name its projector (mmproj*.gguf) with --projector');
    else if (!file) complain('/image needs a file name');
    else images.push(...imagesOf({ image: [file] }));
  } catch (error) {
    complain((error as Error).message);
  }
}

async function talk(engine: Engine, values: Values, options: GenerateOptions): Promise<void> {
  const system = values['system'] as string | undefined;
  const terminal = process.stdin.isTTY && process.stdout.isTTY;
  let session = engine.session({ system });
  let generation: Generation | undefined;
  let images: ImageSource[] = [];
  const lines = readline.createInterface({
    input: process.stdin,
    ...(terminal && { output: process.stdout, prompt: '> ' }),
  });
  const interrupt = (): void => {
    if (generation) return generation.cancel();
    process.exitCode = 130;
    lines.close();
  };
  signals.handle = interrupt;
  lines.on('SIGINT', interrupt);
  if (terminal && !values['quiet']) process.stdout.write('/help lists the commands.\n');
  if (terminal) lines.prompt();
  for await (const line of lines) {
    if (/^\/(bye|quit|exit)$/.test(line)) break;
    if (/^\/(help|\?)$/.test(line)) process.stdout.write(kHelp);
    else if (/^\/(clear|reset)$/.test(line)) {
      session = engine.session({ system });
      images = [];
    } else if (/^\/image(\s|$)/.test(line)) addImage(engine, line.slice(6).trim(), images);
    else if (/^\/[a-z]*$/.test(line)) complain(`unknown command ${line}; /help lists the commands`);
    else if (line !== '') {
      const content = [...images.map(imagePart), ...textPart(line)];
      generation = session.send(images.length ? { role: 'user', content } : line, options);
      images = [];
      try {
        await stream(generation);
        if (terminal && !values['quiet']) await printRates(generation);
      } catch (error) {
        if (!(error instanceof SluiceError) || error.code === 'WORKER_LOST') throw error;
        complain(error.message); // the conversation stays as it was
        if (!terminal) process.exitCode = 1;
      }
      generation = undefined;
    }
    if (terminal) lines.prompt();
  }
  lines.close();
}
