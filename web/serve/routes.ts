// Routes of the OpenAI-compatible server. Handlers call the package's own chat and completions,
// which are OpenAI-compatible already. Several prompts or choices (`n`) in one request become
// parallel requests to the engine.

import { setMaxListeners } from 'node:events';

import type { Engine } from '../api/engine.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  Completion,
  CompletionChunk,
  CompletionParams,
  CompletionUsage,
} from '../chat/openai.js';
import { HttpError } from './errors.js';
import type { Metrics } from './metrics.js';
import type { Queue } from './queue.js';

const kMaxAnswers = 16;
const kMaxTexts = 2048;

/** Fields of the access log. */
export interface Record {
  route: string;
  stream?: boolean;
  prompt_tokens?: number;
  completion_tokens?: number;
  finish?: string;
  error?: string;
}

/** Response of a handler: JSON, text, or a stream of chunks. */
export type Answer =
  | { body: unknown; status?: number }
  | { text: string; type: string }
  | { chunks: AsyncIterable<unknown> };

type Body = { [name: string]: unknown };
type Params = (ChatCompletionParams | CompletionParams) & Body;
type Whole = ChatCompletion | Completion;
type Chunk = ChatCompletionChunk | CompletionChunk;

export interface Served {
  engine: Engine;
  model: string;
  /** The package's version, for `system_fingerprint`. */
  version: string;
  queue: Queue;
  metrics: Metrics;
  /** false while the server is shutting down. */
  open: () => boolean;
  /** Why the engine has failed; '': it works. */
  failure: string;
}

interface Route {
  method: 'GET' | 'POST';
  answer: (served: Served, body: Body, signal: AbortSignal, record: Record) => Promise<Answer>;
}

const created = Math.floor(Date.now() / 1000);
const modelOf = (id: string): unknown => ({ id, object: 'model', created, owned_by: 'sluice' });
const post = (answer: Route['answer']): Route => ({ method: 'POST', answer });
const get = (body: (served: Served) => Answer): Route => ({
  method: 'GET',
  answer: async (served) => body(served),
});

const kRoutes: { [path: string]: Route } = {
  '/health': get(({ open, failure }) => {
    const status = failure ? 'failed' : open() ? 'ok' : 'closing';
    return {
      body: { status, ...(failure && { error: failure }) },
      status: status === 'ok' ? 200 : 503,
    };
  }),
  '/metrics': get(({ metrics }) => ({
    text: metrics.text(),
    type: 'text/plain; version=0.0.4; charset=utf-8',
  })),
  '/v1/models': get(({ model }) => ({ body: { object: 'list', data: [modelOf(model)] } })),
  '/v1/chat/completions': post((served, body, signal, record) => {
    if (!Array.isArray(body['messages']) || body['messages'].length === 0)
      throw wrong('messages', 'a list of messages that is not empty');
    return answers(served, [translated(body, served, kChat)], signal, record, (params, options) =>
      served.engine.chat.completions.create(params as ChatCompletionParams, options),
    );
  }),
  '/v1/completions': post((served, body, signal, record) => {
    const { prompt } = body;
    checkInputs('prompt', prompt, kMaxAnswers);
    const several = Array.isArray(prompt) && prompt.length > 0 && typeof prompt[0] !== 'number';
    const prompts = several ? (prompt as unknown[]) : [prompt];
    return answers(
      served,
      prompts.map((each) => ({ ...translated(body, served, kText), prompt: each }) as Params),
      signal,
      record,
      (params, options) => served.engine.completions.create(params as CompletionParams, options),
    );
  }),
  '/v1/embeddings': post(async ({ engine, queue, metrics }, body, signal, record) => {
    checkEmbedding(body);
    const list = await queue.run(signal, () => engine.embeddings.create(body as never, { signal }));
    metrics.add('sluice_embedded_texts_total', list.data.length);
    record.prompt_tokens = list.usage.prompt_tokens;
    return { body: list };
  }),
  '/v1/rerank': post(async (served, body, signal, record) => {
    const { query, top_n: topN } = body;
    const tei = body['documents'] == null && body['texts'] != null;
    const key = tei ? 'texts' : 'documents';
    const given = body[key];
    onlyFields(body, 'query documents texts top_n return_documents return_text');
    if (typeof query !== 'string') throw wrong('query', 'a string');
    if (!Array.isArray(given) || given.length === 0 || given.length > kMaxTexts)
      throw wrong(key, `a list of 1 to ${kMaxTexts} strings`);
    const texts = given.map((each) => (each as { text?: unknown } | null)?.text ?? each);
    if (!texts.every((each) => typeof each === 'string')) throw wrong(key, 'a list of strings');
    if (topN != null && !(Number.isInteger(topN) && (topN as number) > 0))
      throw wrong('top_n', 'a positive integer');
    const spec = { pooling: 4, normalize: false, dimensions: 0, query };
    const { engine, queue, model } = served;
    const { values, width, tokens } = await queue.run(signal, () =>
      engine.embedTexts(texts as string[], spec, signal, () => {}),
    );
    record.prompt_tokens = tokens;
    const full = body['return_documents'] === true || body['return_text'] === true;
    const scored = texts.map((text, index) => ({ index, text, score: values[index * width]! }));
    const results = scored
      .sort((a, b) => b.score - a.score)
      .slice(0, (topN as number | null) ?? undefined)
      .map(({ index, text, score }) =>
        tei
          ? { index, score, ...(full && { text }) }
          : { index, relevance_score: score, ...(full && { document: { text } }) },
      );
    const usage = { prompt_tokens: tokens, total_tokens: tokens };
    return { body: tei ? results : { object: 'list', model, usage, results } };
  }),
  '/props': get(({ engine: { info }, model }) => ({
    body: {
      default_generation_settings: { n_ctx: info.plan.contextLength },
      total_slots: info.plan.parallel,
      model_alias: model,
      chat_template: info.chatTemplate ?? '',
      modalities: { vision: false, audio: false },
    },
  })),
  '/tokenize': post(async ({ engine }, body) => {
    onlyFields(body, 'content add_special parse_special');
    const { content, add_special: addSpecial = true, parse_special: parseSpecial = true } = body;
    if (typeof content !== 'string') throw wrong('content', 'a string');
    if (typeof addSpecial !== 'boolean') throw wrong('add_special', 'true or false');
    if (typeof parseSpecial !== 'boolean') throw wrong('parse_special', 'true or false');
    return {
      body: {
        tokens: [
          ...(await engine.tokenize(content, {
            addSpecial,
            parseSpecial,
          })),
        ],
      },
    };
  }),
  '/detokenize': post(async ({ engine }, body) => {
    onlyFields(body, 'tokens');
    const { tokens } = body;
    if (!Array.isArray(tokens)) throw wrong('tokens', 'a list of token ids');
    return { body: { content: await engine.detokenize(tokens as number[]) } };
  }),
};

// What the package's types would exclude: each field's check, and what it must be.
type Check = readonly [(value: unknown) => boolean, string];
const kFlag: Check = [(value) => typeof value === 'boolean', 'true or false'];
const kObject: Check = [(value) => typeof value === 'object' && !Array.isArray(value), 'an object'];
const whole = (least: number, most: number): Check => [
  (value) => Number.isInteger(value) && (value as number) >= least && (value as number) <= most,
  `an integer from ${least} to ${most}`,
];
const oneOf = (...names: string[]): Check => [
  (value) => names.includes(value as string),
  `one of ${names.join(', ')}`,
];
const kLimit = whole(-1, 2 ** 31 - 1);
const kBoth: { [name: string]: Check } = {
  top_k: whole(0, 2 ** 31 - 1),
  max_tokens: kLimit,
  n_predict: kLimit,
  n: whole(1, kMaxAnswers),
  stream: kFlag,
  post_sampling_probs: kFlag,
  stop: [(value) => [value].flat().every((text) => typeof text === 'string' && text), 'strings'],
  logit_bias: [
    (value) => kObject[0](value) && Object.values(value as object).every((b) => Math.abs(b) <= 100),
    'an object of numbers from -100 to 100',
  ],
  stream_options: [
    (value) =>
      kObject[0](value) &&
      Object.keys(value as object).every((name) => /^include_(usage|obfuscation)$/.test(name)),
    'an object with include_usage',
  ],
  response_format: [
    (value) => /^(text|json_object|json_schema)$/.test((value as { type: string }).type),
    "an object with the type 'text', 'json_object' or 'json_schema'",
  ],
};
const kText = { ...kBoth, logprobs: whole(0, 20), best_of: whole(1, kMaxAnswers) };
const kChat = {
  ...kBoth,
  max_completion_tokens: kLimit,
  logprobs: kFlag,
  top_logprobs: whole(0, 20),
  parallel_tool_calls: kFlag,
  parse_special_in_content: kFlag,
  chat_template_kwargs: kObject,
  reasoning_format: oneOf('auto', 'deepseek', 'none'),
  reasoning_effort: oneOf('none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'),
};

/** Checks the fields, and replaces those of servers by those of the package. */
function translated(body: Body, { engine }: Served, checks: { [name: string]: Check }): Params {
  for (const [name, [is, what]] of Object.entries(checks))
    if (body[name] != null && !is(body[name])) throw wrong(name, what);
  const { n_predict: predict, reasoning_effort: effort, response_format: format, ...rest } = body;
  const params: Body = { ...rest };
  if ((params['top_logprobs'] as number) > 0 && params['logprobs'] !== true)
    throw wrong('top_logprobs', "used with 'logprobs': true");
  if (params['stream_options'] != null && params['stream'] !== true)
    throw wrong('stream_options', "used with 'stream': true");
  if (params['reasoning_format'] === 'auto') delete params['reasoning_format'];
  if (predict != null) params['max_tokens'] ??= predict;
  for (const name of ['max_tokens', 'max_completion_tokens'])
    if (params[name] === -1) params[name] = engine.info.plan.contextLength;
  if (effort != null) {
    params['chat_template_kwargs'] = {
      ...(effort === 'none' ? { enable_thinking: false } : { reasoning_effort: effort }),
      ...(params['chat_template_kwargs'] as object | undefined),
    };
  }
  const { type, schema } = (format ?? {}) as Body;
  const named = type === 'json_object' && schema != null;
  params['response_format'] = named
    ? { type: 'json_schema', json_schema: { name: 'schema', schema } }
    : format;
  return params as Params;
}

/** Checks what the package's own types would exclude. */
function checkEmbedding({ input, dimensions }: Body): void {
  checkInputs('input', input, kMaxTexts);
  if (dimensions != null && !(Number.isInteger(dimensions) && (dimensions as number) > 0))
    throw wrong('dimensions', 'a positive integer');
}

/** A string, token ids, or a list of both: prompts, and inputs of embeddings. */
function checkInputs(name: string, value: unknown, most: number): void {
  const ids = (each: unknown): boolean =>
    Array.isArray(each) &&
    each.length > 0 &&
    each.every((id) => Number.isInteger(id) && (id as number) >= 0);
  const text = (each: unknown): boolean => typeof each === 'string' || ids(each);
  if (text(value)) return;
  if (!Array.isArray(value) || value.length === 0 || !value.every(text))
    throw wrong(name, 'a string, a list of strings, or lists of token ids');
  if (value.length > most) throw wrong(name, `a list of at most ${most} strings`);
}

function onlyFields(body: Body, names: string): void {
  const known = `${names} model user`.split(' ');
  for (const name of Object.keys(body))
    if (!known.includes(name)) throw wrong(name, `one of the fields of this path: ${names}`);
}

const wrong = (param: string, what: string): HttpError =>
  new HttpError(400, 'INVALID_ARGUMENT', `'${param}' must be ${what}.`, { param });

/** The route of a path, and its name for logs and metrics. Errors: 404, 405. */
export function routeOf(
  method: string,
  path: string,
  model: string,
): { name: string; route: Route } {
  // Paths that begin with /v1 are served without it, too.
  const full = `/v1${path}`;
  if (Object.hasOwn(kRoutes, full) || full.startsWith('/v1/models/')) path = full;
  const one = path.startsWith('/v1/models/');
  const name = one ? '/v1/models' : path;
  const route = kRoutes[name];
  if (!route || !Object.hasOwn(kRoutes, name))
    throw new HttpError(404, 'unknown_url', 'There is nothing at this path.');
  const allowed = route.method === 'GET' ? 'GET, HEAD' : 'POST';
  if (!allowed.split(', ').includes(method))
    throw new HttpError(405, 'method_not_allowed', 'This path does not support the method.', {
      headers: { allow: allowed },
    });
  if (!one) return { name, route };
  if (![model, encodeURI(model), encodeURIComponent(model)].includes(path.slice(name.length + 1)))
    throw new HttpError(404, 'model_not_found', 'This model is not loaded.', { param: 'model' });
  return { name, route: get(() => ({ body: modelOf(model) })) };
}

// --- answers of the model ------------------------------------------------------------------------

type Create = (
  params: Params,
  options: { signal: AbortSignal },
) => Promise<Whole | AsyncIterable<Chunk>>;

/** A controller for all generations of a request. It aborts when the request's signal does. */
function joined(signal: AbortSignal): AbortController {
  const control = new AbortController();
  setMaxListeners(0, control.signal); // each generation adds some
  const follow = (): void => control.abort(signal.reason);
  if (signal.aborted) follow();
  signal.addEventListener('abort', follow);
  return control;
}

/** Parameters of each generation: `n` per prompt, with consecutive seeds. */
function asked(list: Params[]): Params[] {
  const { n: given } = list[0] ?? {};
  const n = given ?? 1;
  if (!Number.isInteger(n) || n < 1 || list.length * n > kMaxAnswers || list.length === 0) {
    throw wrong('n', `such that prompts times n is an integer from 1 to ${kMaxAnswers}`);
  }
  return list.flatMap((params) =>
    Array.from({ length: n }, (_, i) => {
      const { seed } = params;
      return { ...params, n: 1, ...(typeof seed === 'number' && n > 1 && { seed: seed + i }) };
    }),
  );
}

/** Timings in llama-server's format, as the native server reports them. */
function timingsOf({ timings, usage }: Partial<Pick<Whole, 'timings' | 'usage'>>): unknown {
  if (!timings || !usage) return undefined;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return {
    cache_n: cached,
    prompt_n: usage.prompt_tokens - cached,
    prompt_ms: timings.promptMs,
    prompt_per_second: timings.promptTokensPerSecond,
    predicted_n: usage.completion_tokens,
    predicted_ms: timings.generateMs,
    predicted_per_second: timings.tokensPerSecond,
  };
}

async function answers(
  { queue, metrics, version }: Served,
  list: Params[],
  signal: AbortSignal,
  record: Record,
  create: Create,
): Promise<Answer> {
  // A template is a program, which clients must not run on the server.
  if (list[0]?.['chat_template'] != null)
    throw new HttpError(400, 'INVALID_ARGUMENT', "'chat_template' is not supported.", {
      param: 'chat_template',
    });
  const each = asked(list);
  const n = each.length / list.length;
  const shared = { system_fingerprint: `sluice-${version}` };
  const note = ({
    choices,
    usage,
  }: {
    choices: { finish_reason: string | null }[];
    usage?: CompletionUsage | null;
  }): void => {
    record.finish = choices[0]?.finish_reason ?? record.finish ?? '';
    if (choices[0]?.finish_reason)
      metrics.add('sluice_answers_total', 1, `finish="${record.finish}"`);
    if (!usage) return;
    record.prompt_tokens = (record.prompt_tokens ?? 0) + usage.prompt_tokens;
    record.completion_tokens = (record.completion_tokens ?? 0) + usage.completion_tokens;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    metrics.add('sluice_prompt_tokens_total', usage.prompt_tokens - cached);
    metrics.add('sluice_prefix_cache_hit_tokens_total', cached);
    metrics.add('sluice_generation_tokens_total', usage.completion_tokens);
  };
  const over = (): void => {
    if (signal.aborted && record.finish !== 'aborted')
      metrics.add('sluice_answers_total', 1, `finish="${(record.finish = 'aborted')}"`);
  };
  record.stream = each[0]!['stream'] === true;
  if (record.stream) {
    const chunks = await begun(queue, each, n, signal, create, note, over);
    return { chunks: withMembers(chunks, shared) };
  }
  return queue.run(signal, async () => {
    const control = joined(signal);
    let wholes: Whole[];
    try {
      wholes = await Promise.all(
        each.map(async (params) => {
          const whole = (await create(params, control)) as Whole;
          note(whole);
          return whole;
        }),
      );
    } finally {
      control.abort();
      over();
    }
    const choices = wholes.map(({ choices: [choice] }, index) => ({ ...choice!, index }));
    const usage = summed(
      wholes.map((whole) => whole.usage!),
      n,
    );
    const timings = timingsOf({ ...wholes[0]!, usage });
    return { body: { ...wholes[0]!, ...shared, choices, usage, timings } };
  });
}

async function* withMembers(chunks: AsyncIterable<Chunk>, shared: object): AsyncGenerator<unknown> {
  for await (const chunk of chunks) yield { ...chunk, ...shared };
}

/** The usage of a request. A prompt counts once for its `n` choices. */
function summed(usages: CompletionUsage[], n: number): CompletionUsage {
  const sum = (list: CompletionUsage[], of: (usage: CompletionUsage) => number): number =>
    list.reduce((all, usage) => all + of(usage), 0);
  const prompts = usages.filter((_, i) => i % n === 0);
  const prompt = sum(prompts, (u) => u.prompt_tokens);
  const completion = sum(usages, (u) => u.completion_tokens);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: {
      cached_tokens: sum(prompts, (u) => u.prompt_tokens_details?.cached_tokens ?? 0),
    },
  };
}

/**
 * Chunks of all generations as they arrive. The request keeps its slot until the last chunk has
 * been read, or reading stops. Resolves when the first token is there, so that an error of the
 * request can still set the status.
 */
async function begun(
  queue: Queue,
  each: Params[],
  n: number,
  signal: AbortSignal,
  create: Create,
  note: (chunk: Chunk) => void,
  over: () => void,
): Promise<AsyncIterable<Chunk>> {
  const withUsage =
    (each[0]!.stream_options as { include_usage?: boolean } | null | undefined)?.include_usage ===
    true;
  const source = async function* (): AsyncGenerator<Chunk, void> {
    const usages: CompletionUsage[] = [];
    let head: Chunk | undefined;
    const control = joined(signal);
    type Taken = { index: number; chunks: AsyncIterator<Chunk>; step: IteratorResult<Chunk> };
    const take = async (index: number, chunks: AsyncIterator<Chunk>): Promise<Taken> => ({
      index,
      chunks,
      step: await chunks.next(),
    });
    const next = new Map(
      each.map((params, index) => [
        index,
        (async () => {
          const chunks = await create(
            { ...params, stream_options: { include_usage: true } } as Params,
            control,
          );
          return take(index, (chunks as AsyncIterable<Chunk>)[Symbol.asyncIterator]());
        })(),
      ]),
    );
    try {
      while (next.size > 0) {
        const { index, chunks, step } = await Promise.race(next.values());
        if (step.done) {
          next.delete(index);
          continue;
        }
        next.set(index, take(index, chunks));
        const chunk = step.value;
        note(chunk);
        head ??= chunk;
        if (chunk.usage) usages[index] = chunk.usage;
        if (chunk.choices.length === 0) continue;
        const { usage: _, timings: __, ...rest } = chunk;
        yield {
          ...rest,
          id: head.id,
          created: head.created,
          choices: chunk.choices.map((choice) => ({ ...choice, index })),
          ...(withUsage && { usage: null }),
        } as Chunk;
      }
    } finally {
      for (const left of next.values()) left.catch(() => {}); // the first error is reported
      control.abort();
    }
    if (withUsage && head) yield { ...head, choices: [], usage: summed(usages, n) } as Chunk;
  };
  let leave!: () => void;
  const left = new Promise<void>((resolve) => (leave = resolve));
  signal.addEventListener('abort', () => leave()); // even if nobody reads the chunks
  const { chunks, heads } = await new Promise<{
    chunks: AsyncGenerator<Chunk, void>;
    heads: Chunk[];
  }>((resolve, reject) => {
    queue
      .run(signal, async () => {
        const chunks = source();
        try {
          resolve({ chunks, heads: await untilToken(chunks) });
          await left;
        } finally {
          over();
        }
      })
      .catch(reject);
  });
  return (async function* () {
    try {
      yield* heads;
      yield* chunks;
    } finally {
      leave();
    }
  })();
}

/** The chunks up to the first that a token made. Those before it only name the role. */
async function untilToken(chunks: AsyncGenerator<Chunk, void>): Promise<Chunk[]> {
  const heads: Chunk[] = [];
  for (;;) {
    const { done, value } = await chunks.next();
    if (done || !value) return heads;
    heads.push(value);
    const [choice] = value.choices;
    if (!choice || !('delta' in choice) || choice.delta.role === undefined) return heads;
  }
}
