// Routes of the server. Requests to the endpoints of chat-server.wasm are checked and answered there
// (web/chat/exchange.ts), as in the native server; this file runs the engine for them. All outputs
// of a request (`n`, several prompts) are generated in parallel.

import { setMaxListeners } from 'node:events';

import type { Engine } from '../api/engine.js';
import { imageSpecs } from '../api/images.js';
import { tokenizeSpec } from '../api/options.js';
import { bytesOf, embedInputs } from '../chat/embeddings.js';
import type { Job } from '../chat/engine.js';
import type { DescribedError, Exchange, RouteMethod, Work } from '../chat/exchange.js';
import { respond } from '../chat/response.js';
import { unmarked } from '../protocol/literal-spans.js';
import type { GenerationResult } from '../protocol/types.js';
import { HttpError } from './errors.js';
import type { Metrics } from './metrics.js';
import type { Queue } from './queue.js';

/** Fields of the access log. */
export interface Record {
  route: string;
  stream?: boolean;
  prompt_tokens?: number;
  completion_tokens?: number;
  finish?: string;
  error?: string;
}

/** Response of a handler: a text, or the parts of a stream. */
export type Answer =
  | { text: string; type: string; status?: number }
  | { parts: AsyncIterable<string>; type: string; failed: (error: DescribedError) => string };

export interface Served {
  engine: Engine;
  model: string;
  queue: Queue;
  metrics: Metrics;
  /** Settles when no request is being read. */
  reading: Promise<unknown>;
  /** Paths and their methods. */
  routes: ReadonlyMap<string, RouteMethod>;
  /** false while the server is shutting down. */
  open: () => boolean;
  /** Why the engine has failed; '': it works. */
  failure: string;
}

/** A request that is being answered. */
interface Asked {
  served: Served;
  signal: AbortSignal;
  record: Record;
  exchange: Exchange;
  jobs: readonly Job[];
}

const json = (text: string, status = 200): Answer => ({ text, type: 'application/json', status });

/** Pages about this server. chat-server.wasm writes the others. */
const kPages: { [path: string]: (served: Served) => Answer } = {
  '/health': ({ open, failure }) => {
    const status = failure ? 'failed' : open() ? 'ok' : 'closing';
    const body = { status, ...(failure && { error: failure }) };
    return json(JSON.stringify(body), status === 'ok' ? 200 : 503);
  },
  '/metrics': ({ metrics }) => ({
    text: metrics.text(),
    type: 'text/plain; version=0.0.4; charset=utf-8',
  }),
};
const kModels = '/v1/models';

/** The path of a request as the sources write it, and its name for logs and metrics. */
export interface Route {
  path: string;
  name: string;
  method: RouteMethod;
}

/** The route of a path. Errors: 404, 405. */
export function routeOf(method: string, given: string, { routes }: Served): Route {
  const nameOf = (path: string): string => (path.startsWith(`${kModels}/`) ? kModels : path);
  // Paths that begin with /v1 are served without it, too.
  const path = [`/v1${given}`, given].find((each) => routes.has(nameOf(each)));
  if (path === undefined) throw new HttpError(404, 'unknown_url', 'There is nothing at this path.');
  const name = nameOf(path);
  const own = routes.get(name)!;
  const allowed = own === 'GET' ? 'GET, HEAD' : own;
  if (allowed && !allowed.split(', ').includes(method))
    throw new HttpError(405, 'method_not_allowed', 'This path does not support the method.', {
      headers: { allow: allowed },
    });
  return { path, name, method: own };
}

/** Answers a request. `closing`: what to do once the response is over. */
export async function answer(
  served: Served,
  { path }: Route,
  body: Uint8Array,
  signal: AbortSignal,
  record: Record,
  closing: (() => void)[],
): Promise<Answer> {
  if (Object.hasOwn(kPages, path)) return kPages[path]!(served);
  // One request at a time is read and rendered, because that takes many times its size.
  const read = served.reading.then(async () => {
    const prompts = await served.engine.prompts();
    const exchange = await prompts.open(path, body, served.model);
    closing.push(() => exchange.close());
    const { kind } = exchange.work;
    const planned = kind === 'count' || generates(exchange.work);
    const { structuredOutput } = served.engine;
    const plan = (): Promise<Job[]> => prompts.plan(exchange, structuredOutput);
    let jobs = planned ? await plan() : [];
    while (kind === 'infill' && exchange.files > 0 && !(await fits(served.engine, jobs[0]!))) {
      exchange.dropFiles();
      jobs = await plan();
    }
    return { exchange, jobs };
  });
  served.reading = read.catch(() => {});
  const { exchange, jobs } = await read;
  const { work } = exchange;
  const asked = { served, signal, record, exchange, jobs };
  if (generates(work)) return generate(asked, work, closing);
  if (work.kind === 'page') {
    const { type, body: text } = await (await served.engine.prompts()).page(exchange, body);
    return { type, text };
  }
  return json(await kWork[work.kind](asked, work as never));
}

/** Whether the prompt of an infill leaves room for its output. */
async function fits(engine: Engine, { prompt, options }: Job): Promise<boolean> {
  const { literalSpans, addSpecial } = options;
  const { length } = await engine.tokenize(prompt as string, { literalSpans, addSpecial });
  const context = engine.info.plan.contextLength;
  const output = Math.min(options.maxTokens ?? context / 4, context / 2);
  return length <= context - Math.floor(output);
}

type Generating = Extract<Work, { stream: boolean }>;
const generates = (work: Work): work is Generating => 'stream' in work;

/** Work that generates nothing. Each returns a document. */
const kWork: {
  [Kind in Exclude<Work['kind'], Generating['kind'] | 'page'>]: (
    asked: Asked,
    work: Extract<Work, { kind: Kind }>,
  ) => Promise<string>;
} = {
  async embed({ served: { engine, queue, metrics }, signal, record, exchange }, work) {
    const { texts, spec } = await embedInputs(engine, work);
    const { values, width, tokens } = await queue.run(signal, () =>
      engine.embedding({ signal }, (calls) => calls.run(texts, spec)),
    );
    metrics.add('sluice_embedded_texts_total', texts.length);
    record.prompt_tokens = tokens;
    return exchange.document([bytesOf(values)], width, tokens);
  },
  async rerank({ served: { engine, queue }, signal, record, exchange }, { query, documents }) {
    const spec = { pooling: 4, normalize: false, dimensions: 0, query };
    const { values, width, tokens } = await queue.run(signal, () =>
      engine.embedding({ signal }, (calls) => calls.run(documents, spec)),
    );
    record.prompt_tokens = tokens;
    return exchange.document([bytesOf(values)], width, tokens);
  },
  async render({ served: { engine }, exchange }) {
    const prompts = await engine.prompts();
    return exchange.document([unmarked((await prompts.prompt(exchange)).text)]);
  },
  async count({ served: { engine }, exchange, jobs }) {
    const { prompt, options } = jobs[0]!;
    const { literalSpans, addSpecial, images } = options;
    const how = tokenizeSpec({ literalSpans, addSpecial });
    const tokens = await (images
      ? engine.call('layout', prompt as string, { ...how, images: await imageSpecs(images) })
      : engine.call('tokenize', prompt as string, how));
    return exchange.document([], 0, tokens.length);
  },
  async tokenize({ served: { engine }, exchange }, { text, addSpecial, parseSpecial, withPieces }) {
    const tokens = await engine.tokenize(text, { addSpecial, parseSpecial });
    const pieces = withPieces ? await engine.call('tokenBytes', tokens) : [];
    return exchange.document([bytesOf(tokens), ...pieces]);
  },
  async detokenize({ served: { engine }, exchange }, { tokens }) {
    return exchange.document([await engine.detokenize(tokens)]);
  },
};

/** A signal for all generations of a request. */
function joined(signal: AbortSignal): AbortSignal {
  const control = new AbortController();
  setMaxListeners(0, control.signal); // each generation adds some
  const follow = (): void => control.abort(signal.reason);
  if (signal.aborted) follow();
  signal.addEventListener('abort', follow);
  return control.signal;
}

async function generate(
  { served: { engine, queue, metrics }, signal, record, exchange, jobs }: Asked,
  { stream, type }: Generating,
  closing: (() => void)[],
): Promise<Answer> {
  record.stream = stream;
  const ended = ({ usage }: GenerationResult): void => {
    record.finish = exchange.finishReason;
    metrics.add('sluice_answers_total', 1, `finish="${record.finish}"`);
    metrics.add('sluice_prompt_tokens_total', usage.promptTokens - usage.cachedTokens);
    metrics.add('sluice_prefix_cache_hit_tokens_total', usage.cachedTokens);
    metrics.add('sluice_generation_tokens_total', usage.completionTokens);
  };
  let leave!: () => void;
  const left = new Promise<void>((resolve) => (leave = resolve));
  closing.push(() => {
    ({ prompt: record.prompt_tokens, completion: record.completion_tokens } = exchange.usage);
    if (signal.aborted)
      metrics.add('sluice_answers_total', 1, `finish="${(record.finish = 'aborted')}"`);
    leave();
  });
  // The request keeps its slot until the response is over.
  const parts = await new Promise<AsyncGenerator<string, void>>((resolve, reject) => {
    const work = async (): Promise<void> => {
      const response = await engine.turn(async () =>
        respond(engine, exchange, jobs, joined(signal), ended),
      );
      resolve(response.parts);
      await left;
      await response.parts.return();
    };
    queue.run(signal, work).catch(reject);
  });
  if (!stream) {
    let text = '';
    for await (const part of parts) text += part;
    return json(text);
  }
  // Errors up to the first token set the status.
  const first = [await parts.next(), await parts.next()].map(({ value }) => value ?? '').join('');
  const all = async function* (): AsyncGenerator<string> {
    yield first;
    yield* parts;
  };
  return { parts: all(), type, failed: (error) => exchange.errorFrames(error) };
}
