// Implements engine.chat.completions and engine.completions, OpenAI-compatible, complete and
// streamed. Part of templates.js, which is loaded at the first such call (completions.ts).

import { invalid, onlyKnown, throwIfAborted } from '../protocol/errors.js';
import { marked } from '../protocol/literal-spans.js';
import type { GenerateOptions, AssertSameKeys, SplitNames } from '../protocol/options.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import type { ChatEngine, Request, TextStream } from './engine.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatLogprobs,
  ChatTokenLogprob,
  ChatTool,
  Completion,
  CompletionChunk,
  CompletionLogprobs,
  CompletionParams,
  CompletionUsage,
  IgnoredParams,
  SamplingParams,
  ToolCall,
} from './openai.js';
import { HarmonyReader } from './harmony.js';
import { ThinkFilter } from './think.js';
import { ToolCallFilter } from './tool-calls.js';
import { formsToRead, isHarmony, toolForm, type Form } from './tool-forms.js';
import { answerGrammar, callOpening, spelled } from './tool-grammar.js';

/** Generates a response to the messages: the complete one, or its chunks. */
export async function answerChat(
  engine: ChatEngine,
  params: ChatCompletionParams,
  call: Request,
): Promise<ChatCompletion | AsyncGenerator<ChatCompletionChunk, void>> {
  const tools = checkChat(params);
  const { prompts } = engine;
  const prompt = await prompts.render(params.messages, {
    tools,
    template: params.chat_template,
    variables: params.chat_template_kwargs,
    parseSpecialInContent: params.parse_special_in_content,
  });
  throwIfAborted(call.controller.signal);
  const thinking = /<think>\s*$/.test(prompt.text);
  const source = params.chat_template ?? prompts.template;
  const harmony = isHarmony(source);
  const ask = asked(engine, params, tools, harmony ? 'harmony' : toolForm(source));
  const begun =
    ask.form !== 'harmony' && ask.form?.plain && prompt.text.endsWith(ask.form.pre)
      ? ask.form.pre
      : '';
  const bound = await constraint(engine, ask, source ?? '', { thinking, begun });
  throwIfAborted(call.controller.signal);
  // A required call that no grammar enforces is started in the prompt.
  const opening = ask.required && !bound ? callOpening(ask.form!, ask.name) : null;
  const closing = opening && thinking ? '\n</think>\n\n' : '';
  // The caller's tool name must not become part of a control token; plain names cannot.
  const quoted =
    opening
      ?.map((text, i) =>
        i === 1 && prompt.literalSpans && !/^[\w.-]*$/.test(text) ? marked(text) : text,
      )
      .join('') ?? '';
  const sampling = samplingOptions(params, call.controller.signal);
  const generation = engine.answer(prompt.text + closing + quoted, {
    ...sampling,
    ...bound,
    literalSpans: prompt.literalSpans,
    // In some vocabularies the marks of tool calls are control tokens.
    skipSpecialTokens: !(tools.length > 0 || harmony),
    maxTokens: params.max_completion_tokens ?? params.max_tokens ?? undefined,
    stop: [...prompt.stop, ...(sampling.stop as string[])],
    logprobs: params.logprobs ? (params.top_logprobs ?? true) : undefined,
    addSpecial: prompt.addSpecial,
  });
  call.until(generation);
  const separate = params.reasoning_format !== 'none';
  const think = separate ? new ThinkFilter(thinking && !opening) : null;
  const before = opening?.join('') ?? begun;
  const reader =
    harmony && separate ? new HarmonyAnswer(before) : new AnswerReader(think, tools, ask, before);
  const head = { id: newId('chatcmpl'), created: now(), model: engine.info.name };
  return params.stream
    ? chatChunks(head, generation, reader, params)
    : completion(head, generation, reader, params);
}

/** What the parameters require of the output. */
interface Ask {
  form: Form | 'harmony' | null;
  /** The tools that may be called. */
  tools: readonly ChatTool[];
  /** A call is required, of the function `name` if that is set. */
  required: boolean;
  name: string | undefined;
  /** At least one tool has `strict`. */
  strict: boolean;
  parallel: boolean;
  schema: object | undefined;
}

const kControlText = {
  addSpecial: false,
  parseSpecial: true,
  literalSpans: false,
  continuation: false,
};

/** The constraint on the output, as options of generate(); undefined: unconstrained. */
async function constraint(
  engine: ChatEngine,
  ask: Ask,
  source: string,
  prompt: { thinking: boolean; begun: string },
): Promise<GenerateOptions | undefined> {
  const { form, schema, strict, required } = ask;
  if (schema === undefined && !strict && !(required && engine.structuredOutput)) return undefined;
  const thinks = source.includes('<think>');
  if (ask.tools.length === 0 && !thinks && !prompt.thinking && form !== 'harmony')
    return { jsonSchema: schema! };
  const used = ask.tools.length > 0 || form === 'harmony' ? form : null;
  const texts = await engine.prompts.controls();
  const loose = texts.filter(
    (text) =>
      source.includes(text) &&
      /think|respon|text/i.test(text) &&
      !/(end|begin)_?of|eo[stm]|tool/i.test(text),
  );
  const needed = texts.filter((text) => loose.includes(text) || spelled(used).includes(text));
  const ids = await Promise.all(needed.map((text) => engine.ask('tokenize', text, kControlText)));
  const tokens = new Map(
    needed.flatMap((text, i) => (ids[i]!.length === 1 ? [[text, ids[i]![0]!] as const] : [])),
  );
  return { grammar: answerGrammar({ ...ask, form: used, ...prompt, thinks, tokens, loose }) };
}

interface Head {
  id: string;
  created: number;
  model: string;
}

interface Part {
  reasoning: string;
  content: string;
  calls: ToolCall[];
}

/** Splits the generated text into reasoning, content and tool calls. */
interface Answering {
  /** Number of tool calls so far. */
  readonly calls: number;
  push(text: string): Part;
  finish(): Part;
}

class HarmonyAnswer implements Answering {
  calls = 0;
  readonly #reader = new HarmonyReader();

  /** `begun`: the start of the response that is already in the prompt. */
  constructor(begun: string) {
    this.#reader.push(begun);
  }

  push(text: string): Part {
    return this.#counted(this.#reader.push(text));
  }

  finish(): Part {
    return this.#counted(this.#reader.finish());
  }

  #counted(part: Part): Part {
    this.calls += part.calls.length;
    return part;
  }
}

class AnswerReader implements Answering {
  calls = 0;
  readonly #tools: ToolCallFilter | null;
  readonly #think: ThinkFilter | null;

  constructor(
    think: ThinkFilter | null,
    tools: readonly ChatTool[],
    { form, strict }: Ask,
    /** The start of the response that is already in the prompt. */
    begun: string,
  ) {
    this.#think = think;
    this.#tools = tools.length
      ? new ToolCallFilter(tools, formsToRead(form === 'harmony' ? null : form, strict))
      : null;
    if (begun) this.#tools?.push(begun);
  }

  push(text: string): Part {
    const { reasoning, content } = this.#think?.push(text) ?? { reasoning: '', content: text };
    return this.#part(reasoning, this.#tools?.push(content) ?? { content, calls: [] });
  }

  finish(): Part {
    const { reasoning, content } = this.#think?.finish() ?? { reasoning: '', content: '' };
    const pushed = this.#tools?.push(content) ?? { content, calls: [] };
    const rest = this.#tools?.finish() ?? { content: '', calls: [] };
    return this.#part(reasoning, {
      content: pushed.content + rest.content,
      calls: [...pushed.calls, ...rest.calls],
    });
  }

  #part(reasoning: string, { content, calls }: { content: string; calls: ToolCall[] }): Part {
    this.calls += calls.length;
    return { reasoning, content, calls };
  }
}

async function completion(
  head: Head,
  generation: TextStream,
  reader: Answering,
  params: ChatCompletionParams,
): Promise<ChatCompletion> {
  const text: Part = { reasoning: '', content: '', calls: [] };
  const logprobs: ChatTokenLogprob[] = [];
  const add = (part: Part): void => {
    text.reasoning += part.reasoning;
    text.content += part.content;
    text.calls.push(...part.calls);
  };
  for await (const piece of generation) {
    add(reader.push(piece.text));
    logprobs.push(...chatLogprobs(piece, params));
  }
  add(reader.finish());
  const result = await generation.result;
  return {
    ...head,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: text.content || text.calls.length === 0 ? text.content : null,
          refusal: null,
          ...(text.reasoning && { reasoning_content: text.reasoning }),
          ...(text.calls.length && { tool_calls: text.calls }),
        },
        logprobs: logprobs.length ? { content: logprobs, refusal: null } : null,
        finish_reason: chatFinishReason(result, reader),
      },
    ],
    usage: usageOf(result),
    timings: result.timings,
  };
}

async function* chatChunks(
  head: Head,
  generation: TextStream,
  reader: Answering,
  params: ChatCompletionParams,
): AsyncGenerator<ChatCompletionChunk, void, undefined> {
  const withUsage = params.stream_options?.include_usage ?? false;
  type Choice = ChatCompletionChunk['choices'][number];
  const chunk = (
    choices: Choice[],
    more: Partial<ChatCompletionChunk> = {},
  ): ChatCompletionChunk => {
    return {
      ...head,
      object: 'chat.completion.chunk',
      choices,
      ...(withUsage && { usage: null }),
      ...more,
    };
  };
  const delta = (
    value: Choice['delta'],
    logprobs: ChatLogprobs | null = null,
  ): ChatCompletionChunk => {
    return chunk([{ index: 0, delta: value, logprobs, finish_reason: null }]);
  };
  const parts = function* (
    part: Part,
    logprobs: ChatLogprobs | null,
  ): Generator<ChatCompletionChunk> {
    const first = reader.calls - part.calls.length;
    if (part.reasoning) yield delta({ reasoning_content: part.reasoning }, logprobs);
    else if (part.content || logprobs) yield delta({ content: part.content }, logprobs);
    if (part.reasoning && part.content) yield delta({ content: part.content });
    for (const [i, call] of part.calls.entries())
      yield delta({ tool_calls: [{ index: first + i, ...call }] });
  };
  yield delta({ role: 'assistant', content: '' });
  for await (const piece of generation) {
    const tokens = chatLogprobs(piece, params);
    const logprobs = tokens.length ? { content: tokens, refusal: null } : null;
    yield* parts(reader.push(piece.text), logprobs);
  }
  yield* parts(reader.finish(), null);
  const result = await generation.result;
  const last: Choice = {
    index: 0,
    delta: {},
    logprobs: null,
    finish_reason: chatFinishReason(result, reader),
  };
  yield chunk([last], { timings: result.timings });
  if (withUsage) yield chunk([], { usage: usageOf(result) });
}

/** Continues the prompt: the complete text, or its chunks. */
export async function answerText(
  engine: ChatEngine,
  params: CompletionParams,
  call: Request,
): Promise<Completion | AsyncGenerator<CompletionChunk, void>> {
  check('completions.create()', params, kText, 'echo suffix');
  if ((params as { best_of?: number }).best_of! > 1) invalid('best_of must be 1.');
  throwIfAborted(call.controller.signal);
  const generation = engine.answer(onePrompt(params.prompt), {
    ...samplingOptions(params, call.controller.signal),
    maxTokens: params.max_tokens ?? 16,
    logprobs: params.logprobs ?? undefined,
    jsonSchema: formatSchema(engine, params.response_format),
  });
  call.until(generation);
  const head = {
    id: newId('cmpl'),
    created: now(),
    model: engine.info.name,
    object: 'text_completion' as const,
  };
  if (params.stream) return textChunks(head, generation, params);
  const pieces: GeneratedToken[] = [];
  for await (const piece of generation) pieces.push(piece);
  const result = await generation.result;
  const logprobs = params.logprobs == null ? null : textLogprobs(pieces, 0, params);
  return {
    ...head,
    choices: [{ index: 0, text: result.text, logprobs, finish_reason: finishReason(result) }],
    usage: usageOf(result),
    timings: result.timings,
  };
}

async function* textChunks(
  head: Head & { object: 'text_completion' },
  generation: TextStream,
  params: CompletionParams,
): AsyncGenerator<CompletionChunk, void, undefined> {
  let offset = 0;
  for await (const piece of generation) {
    const logprobs = params.logprobs == null ? null : textLogprobs([piece], offset, params);
    offset += piece.text.length;
    if (piece.text || logprobs)
      yield { ...head, choices: [{ index: 0, text: piece.text, logprobs, finish_reason: null }] };
  }
  const result = await generation.result;
  const last = { index: 0, text: '', logprobs: null, finish_reason: finishReason(result) };
  yield { ...head, choices: [last], timings: result.timings };
  if (params.stream_options?.include_usage) yield { ...head, choices: [], usage: usageOf(result) };
}

// --- parameters ---------------------------------------------------------------------------------

const kIgnored =
  'user store metadata service_tier safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention';
const kShared =
  'model stream stream_options temperature top_p top_k min_p repeat_penalty max_tokens stop seed n frequency_penalty presence_penalty logit_bias post_sampling_probs signal';
const kChat =
  'messages max_completion_tokens logprobs top_logprobs tools tool_choice parallel_tool_calls response_format chat_template chat_template_kwargs parse_special_in_content reasoning_format';
const kText = 'prompt logprobs response_format';
true satisfies AssertSameKeys<SplitNames<typeof kIgnored>, keyof IgnoredParams>;
true satisfies AssertSameKeys<
  SplitNames<typeof kIgnored | typeof kShared | typeof kChat>,
  keyof ChatCompletionParams
>;
true satisfies AssertSameKeys<
  SplitNames<typeof kIgnored | typeof kShared | typeof kText>,
  keyof CompletionParams
>;

/**
 * Throws INVALID_ARGUMENT for unknown parameters. The OpenAI parameters in `off` are not supported
 * and would change the output, so they may only be falsy.
 */
function check(call: string, params: SamplingParams, own: string, off: string): void {
  if (typeof (params ?? 0) !== 'object')
    invalid('create() takes an object with messages or prompt.');
  for (const name of off.split(' ')) {
    if ((params as Record<string, unknown>)[name]) invalid(`${name} is not supported.`);
  }
  onlyKnown(
    call,
    Object.fromEntries(
      Object.entries(params).filter(
        ([name]) => !`${off} best_of modalities ${kIgnored}`.split(' ').includes(name),
      ),
    ),
    `${own} ${kShared}`,
  );
  if ((params.n ?? 1) !== 1) invalid('n must be 1.');
}

/** Validates the parameters. Returns the tools that the model may call. */
function checkChat(params: ChatCompletionParams): ChatTool[] {
  check(
    'chat.completions.create()',
    params,
    kChat,
    'functions function_call audio prediction web_search_options moderation reasoning_effort ' +
      'verbosity',
  );
  const { modalities } = params as { modalities?: unknown };
  if ([modalities ?? 'text'].flat().some((kind) => kind !== 'text'))
    invalid("modalities: only 'text' is supported.");
  const { tools } = params;
  if (tools && !Array.isArray(tools)) invalid('tools must be a list of functions.');
  if (params.tool_choice === 'none') return [];
  for (const tool of tools ?? []) {
    const { name } = (tool as ChatTool | null)?.function ?? {};
    if (tool?.type !== 'function' || typeof name !== 'string' || !name)
      invalid("Every tool needs type 'function' and function.name.");
  }
  return (tools ?? []) as ChatTool[];
}

/** The JSON schema of response_format; undefined: plain text. */
function formatSchema(
  engine: ChatEngine,
  format: ChatCompletionParams['response_format'],
): object | undefined {
  const { type = 'text', json_schema: named } = (format ?? {}) as {
    type?: string;
    json_schema?: { schema?: object };
  };
  if (type === 'text') return undefined;
  if (!/^json_(object|schema)$/.test(type))
    invalid(`response_format '${type}' is not text, json_object or json_schema.`);
  if (!engine.structuredOutput)
    invalid(
      `response_format '${type}' needs an engine that was loaded with structuredOutput: true.`,
    );
  if (type === 'json_object') return { type: 'object' };
  const schema = named?.schema;
  if (typeof schema !== 'object' || schema === null)
    invalid('response_format json_schema needs json_schema.schema, an object.');
  return schema;
}

/** What the parameters require: which tools may or must be called, and the response format. */
function asked(
  engine: ChatEngine,
  params: ChatCompletionParams,
  tools: ChatTool[],
  form: Form | 'harmony' | null,
): Ask {
  const choice = params.tool_choice ?? 'auto';
  const name = typeof choice === 'object' ? choice.function?.name : undefined;
  const required = name !== undefined || choice === 'required';
  if (!required && choice !== 'auto' && choice !== 'none') {
    invalid(
      "tool_choice must be 'none', 'auto', 'required' or { type: 'function', function: { name } }.",
    );
  }
  const callable = name === undefined ? tools : tools.filter((tool) => tool.function.name === name);
  if (required && callable.length === 0)
    invalid('tool_choice names a function that is not in tools.');
  const strict = callable.some((tool) => tool.function.strict === true);
  if ((required || strict) && !form) {
    invalid(
      `The model's chat template does not support tools: ` +
        `${required ? "use tool_choice 'auto'" : 'omit strict'}, or use another model.`,
    );
  }
  if (strict && !engine.structuredOutput)
    invalid('Tools with strict need an engine that was loaded with structuredOutput: true.');
  return {
    form,
    tools: callable,
    required,
    name,
    strict,
    parallel: params.parallel_tool_calls !== false,
    schema: formatSchema(engine, params.response_format),
  };
}

function onePrompt(prompt: CompletionParams['prompt']): string | ArrayLike<number> {
  const one =
    Array.isArray(prompt) && prompt.length === 1 ? (prompt[0] as string | number) : prompt;
  if (typeof one === 'string') return one;
  if (typeof prompt !== 'object') invalid('prompt must be one string or one list of token ids.');
  return prompt as ArrayLike<number>;
}

function samplingOptions(params: SamplingParams, signal: AbortSignal): GenerateOptions {
  const { stop } = params;
  const options: GenerateOptions = {
    temperature: params.temperature ?? undefined,
    topP: params.top_p ?? undefined,
    topK: params.top_k ?? undefined,
    minP: params.min_p ?? undefined,
    repeatPenalty: params.repeat_penalty ?? undefined,
    frequencyPenalty: params.frequency_penalty ?? undefined,
    presencePenalty: params.presence_penalty ?? undefined,
    seed: params.seed ?? undefined,
    postSamplingProbs: params.post_sampling_probs ?? undefined,
    stop: [stop ?? []].flat(),
    signal,
  };
  if (params.logit_bias) options.logitBias = params.logit_bias as unknown as Record<number, number>;
  return options;
}

// --- answers ------------------------------------------------------------------------------------

const now = (): number => Math.floor(Date.now() / 1000);

function newId(kind: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `${kind}-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

function finishReason(result: GenerationResult): 'stop' | 'length' {
  return result.finishReason === 'length' ? 'length' : 'stop';
}

function chatFinishReason(
  result: GenerationResult,
  reader: Answering,
): 'stop' | 'length' | 'tool_calls' {
  const reason = finishReason(result);
  return reason === 'stop' && reader.calls > 0 ? 'tool_calls' : reason;
}

function usageOf({ usage }: GenerationResult): CompletionUsage {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.totalTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}

const encoder = new TextEncoder();
const bytesOf = (text: string): number[] | null => (text ? [...encoder.encode(text)] : null);

// JSON has no infinity.
const finite = (logprob: number): number => Math.max(logprob, -9999);

/** The entry of a token, in llama-server's format for `post_sampling_probs`. */
function chatLogprobs(
  piece: GeneratedToken,
  { post_sampling_probs: post }: SamplingParams,
): ChatTokenLogprob[] {
  if (piece.logprob === undefined) return [];
  const entry = ({ token, text, logprob = 0 }: GeneratedToken): ChatTokenLogprob =>
    ({
      ...(post && { id: token }),
      token: text,
      ...(post ? { prob: Math.exp(logprob) } : { logprob: finite(logprob) }),
      bytes: bytesOf(text),
    }) as ChatTokenLogprob;
  const top = (piece.topLogprobs ?? []).map(entry);
  return [{ ...entry(piece), [post ? 'top_probs' : 'top_logprobs']: top }];
}

function textLogprobs(
  pieces: GeneratedToken[],
  start: number,
  params: CompletionParams,
): CompletionLogprobs {
  if (params.post_sampling_probs) {
    const content = pieces.flatMap((piece) => chatLogprobs(piece, params));
    return { content } as unknown as CompletionLogprobs;
  }
  const out: CompletionLogprobs = {
    tokens: [],
    token_logprobs: [],
    top_logprobs: [],
    text_offset: [],
  };
  let offset = start;
  for (const piece of pieces) {
    if (piece.logprob === undefined) continue;
    out.tokens.push(piece.text);
    out.token_logprobs.push(finite(piece.logprob));
    const top = new Map<string, number>();
    for (const { text, logprob } of piece.topLogprobs ?? [])
      if (!top.has(text)) top.set(text, finite(logprob)); // of several tokens, the likeliest
    out.top_logprobs.push(Object.fromEntries(top));
    out.text_offset.push(offset);
    offset += piece.text.length;
  }
  return out;
}
