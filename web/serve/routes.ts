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
    return answers(served, [body as Params], signal, record, (params, options) =>
      served.engine.chat.completions.create(params as ChatCompletionParams, options),
    );
  }),
  '/v1/completions': post((served, body, signal, record) => {
    const { prompt } = body;
    if (prompt === undefined) throw wrong('prompt', 'a string, or a list of strings or token ids');
    const several = Array.isArray(prompt) && prompt.length > 0 && typeof prompt[0] !== 'number';
    const prompts = several ? (prompt as unknown[]) : [prompt];
    return answers(
      served,
      prompts.map((each) => ({ ...body, prompt: each }) as Params),
      signal,
      record,
      (params, options) => served.engine.completions.create(params as CompletionParams, options),
    );
  }),
  '/v1/embeddings': post(async ({ engine, queue, metrics }, body, signal, record) => {
    const { input } = body;
    if (Array.isArray(input) && input.length > kMaxTexts && typeof input[0] !== 'number')
      throw wrong('input', `a list of at most ${kMaxTexts} strings`);
    const list = await queue.run(signal, () => engine.embeddings.create(body as never, { signal }));
    metrics.add('sluice_embedded_texts_total', list.data.length);
    record.prompt_tokens = list.usage.prompt_tokens;
    return { body: list };
  }),
  '/tokenize': post(
    async (
      { engine },
      { content, add_special: addSpecial = true, parse_special: parseSpecial = true },
    ) => {
      if (typeof content !== 'string') throw wrong('content', 'a string');
      return {
        body: {
          tokens: [
            ...(await engine.tokenize(content, {
              addSpecial: addSpecial === true,
              parseSpecial: parseSpecial === true,
            })),
          ],
        },
      };
    },
  ),
  '/detokenize': post(async ({ engine }, { tokens }) => {
    if (!Array.isArray(tokens)) throw wrong('tokens', 'a list of token ids');
    return { body: { content: await engine.detokenize(tokens as number[]) } };
  }),
};

const wrong = (param: string, what: string): HttpError =>
  new HttpError(400, 'INVALID_ARGUMENT', `'${param}' must be ${what}.`, { param });

/** The route of a path, and its name for logs and metrics. Errors: 404, 405. */
export function routeOf(
  method: string,
  path: string,
  model: string,
): { name: string; route: Route } {
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
    throw wrong(
      list.length > 1 ? 'prompt' : 'n',
      `such that prompts times n is an integer from 1 to ${kMaxAnswers}`,
    );
  }
  return list.flatMap((params) =>
    Array.from({ length: n }, (_, i) => {
      const { seed } = params;
      return { ...params, n: 1, ...(typeof seed === 'number' && n > 1 && { seed: seed + i }) };
    }),
  );
}

async function answers(
  { queue, metrics }: Served,
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
  if (record.stream) return { chunks: await begun(queue, each, signal, create, note, over) };
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
    return { body: { ...wholes[0]!, choices, usage: summed(wholes.map(({ usage }) => usage!)) } };
  });
}

function summed(usages: CompletionUsage[]): CompletionUsage {
  const [first] = usages;
  if (usages.length === 1) return first!;
  const sum = (of: (usage: CompletionUsage) => number): number =>
    usages.reduce((all, usage) => all + of(usage), 0);
  return {
    ...first!,
    prompt_tokens: sum((u) => u.prompt_tokens),
    completion_tokens: sum((u) => u.completion_tokens),
    total_tokens: sum((u) => u.total_tokens),
    ...(first!.prompt_tokens_details && {
      prompt_tokens_details: {
        ...first!.prompt_tokens_details,
        cached_tokens: sum((u) => u.prompt_tokens_details?.cached_tokens ?? 0),
      },
    }),
  } as CompletionUsage;
}

/**
 * Chunks of all generations as they arrive. The request keeps its slot until the last chunk has
 * been read, or reading stops. Resolves when the first chunk is there, so that an error of the
 * request can still set the status.
 */
async function begun(
  queue: Queue,
  each: Params[],
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
        if (chunk.usage) usages.push(chunk.usage);
        if (chunk.choices.length === 0) continue;
        const { usage: _, ...rest } = chunk;
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
    if (withUsage && head) yield { ...head, choices: [], usage: summed(usages) } as Chunk;
  };
  let leave!: () => void;
  const left = new Promise<void>((resolve) => (leave = resolve));
  signal.addEventListener('abort', () => leave()); // even if nobody reads the chunks
  const { chunks, head } = await new Promise<{
    chunks: AsyncGenerator<Chunk, void>;
    head: IteratorResult<Chunk, void>;
  }>((resolve, reject) => {
    queue
      .run(signal, async () => {
        const chunks = source();
        try {
          resolve({ chunks, head: await chunks.next() });
          await left;
        } finally {
          over();
        }
      })
      .catch(reject);
  });
  return (async function* () {
    try {
      if (!head.done) yield head.value;
      yield* chunks;
    } finally {
      leave();
    }
  })();
}
