// Implements engine.chat.completions and engine.completions: the same exchange as a server's, whose
// documents and chunks are parsed. Part of templates.js, which is loaded at the first such call
// (completions.ts). Here is what only JavaScript knows: signals, bigints, -Infinity and templates.

import { invalid, onlyKnown, throwIfAborted, type CallOptions } from '../protocol/errors.js';
import type { ImageSource } from '../protocol/options.js';
import type { ChatEngine, Request } from './engine.js';
import { jsonText } from './json.js';
import { respond } from './response.js';

/** Answers a call: the complete result, or its chunks. `path`: of the endpoint, without /v1. */
export async function answer<Whole, Chunk>(
  engine: ChatEngine,
  path: string,
  params: object,
  { controller: { signal }, until }: Request,
  options: CallOptions | undefined,
): Promise<Whole | AsyncGenerator<Chunk, void>> {
  // Request options of OpenAI's client that only concern the network are accepted and ignored.
  onlyKnown('create()', options, 'signal headers query maxRetries idempotencyKey');
  if (typeof (params ?? 0) !== 'object')
    invalid('create() takes an object with messages or prompt.');
  const { chat_template: template, signal: _, ...fields } = params as Params;
  const prompts = await engine.prompts();
  const images: ImageSource[] = [];
  const body = requestText(fields, images);
  const exchange = await prompts.open(`/v1/${path}`, body, engine.info.name, images);
  try {
    throwIfAborted(signal);
    const jobs = await prompts.plan(exchange, engine.structuredOutput, template);
    throwIfAborted(signal);
    const [job] = jobs;
    if (!job || jobs.length > 1)
      invalid('n must be 1, and prompt one string or list of token ids.');
    if (job.extra.constraint && !engine.structuredOutput)
      invalid('JSON and strict tools are off: the engine was loaded with structuredOutput: false.');
    const { generations, parts } = respond(engine, exchange, jobs, signal);
    until(generations[0]!);
    if ('stream' in exchange.work && exchange.work.stream)
      return chunksOf<Chunk>(parts, () => exchange.close());
    let document = '';
    for await (const part of parts) document += part;
    exchange.close();
    return JSON.parse(document) as Whole;
  } catch (error) {
    exchange.close();
    throw error;
  }
}

interface Params {
  chat_template?: string;
  signal?: unknown;
  prompt?: unknown;
  logit_bias?: object | null;
}

/** The body of a request with these fields. */
function requestText(
  { prompt, logit_bias: biases, ...others }: Params,
  images: ImageSource[],
): string {
  const bias = (value: unknown): unknown => (value === -Infinity ? false : value); // JSON has none
  const fields = {
    prompt: ArrayBuffer.isView(prompt) ? Array.from(prompt as Int32Array) : prompt,
    logit_bias:
      !biases || Array.isArray(biases)
        ? biases
        : Object.fromEntries(Object.entries(biases).map(([token, value]) => [token, bias(value)])),
    ...others,
  };
  const members = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(
      ([name, value]) =>
        `${JSON.stringify(name)}:${jsonText(name, value, name === 'messages' ? images : undefined)}`,
    );
  return `{${members.join()}}`;
}

/** The documents in the frames of a stream. */
async function* chunksOf<Chunk>(
  parts: AsyncGenerator<string, void>,
  close: () => void,
): AsyncGenerator<Chunk, void> {
  try {
    for await (const part of parts) {
      for (const frame of part.split('\n\n')) {
        const data = frame.slice('data: '.length);
        if (data && data !== '[DONE]') yield JSON.parse(data) as Chunk;
      }
    }
  } finally {
    close();
  }
}
