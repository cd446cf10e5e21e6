// Implements engine.chat.completions and engine.completions, OpenAI-compatible, complete and
// streamed. Part of templates.js, which is loaded at the first such call (completions.ts).

import { invalid, onlyKnown, throwIfAborted } from '../protocol/errors.js';
import type { GenerateOptions, AssertSameKeys, SplitNames } from '../protocol/options.js';
import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import type { Answer, AnswerPart, Call } from './answer-wasm.js';
import type { ChatEngine, ChatMessage, Request, TextStream } from './engine.js';
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
import { jsonText } from './json.js';

/** Generates a response to the messages: the complete one, or its chunks. */
export async function answerChat(
  engine: ChatEngine,
  params: ChatCompletionParams,
  call: Request,
): Promise<ChatCompletion | AsyncGenerator<ChatCompletionChunk, void>> {
  const tools = checkChat(params);
  const schema = formatSchema(engine, params.response_format);
  const { prompts, structuredOutput } = engine;
  const template = params.chat_template;
  const prompt = await prompts.render(params.messages as readonly ChatMessage[], {
    tools,
    template,
    variables: params.chat_template_kwargs,
    parseSpecialInContent: params.parse_special_in_content,
  });
  throwIfAborted(call.controller.signal);
  const json = (name: string, value: unknown): string | undefined =>
    value == null ? undefined : jsonText(name, value);
  const answer = await prompts.answer(prompt, template, {
    tools: json('tools', tools),
    toolChoice: json('tool_choice', params.tool_choice),
    responseSchema: json('response_format', schema),
    parallelToolCalls: params.parallel_tool_calls !== false,
    separateReasoning: params.reasoning_format !== 'none',
    canConstrain: structuredOutput,
  });
  try {
    throwIfAborted(call.controller.signal);
    if (answer.grammar && !structuredOutput)
      invalid('Tools with strict need an engine that was loaded with structuredOutput: true.');
    const sampling = samplingOptions(params, call.controller.signal);
    const generation = engine.answer(prompt.text + answer.opening, {
      ...sampling,
      grammar: answer.grammar || undefined,
      jsonSchema: answer.jsonSchema ? schema : undefined,
      literalSpans: prompt.literalSpans,
      skipSpecialTokens: !answer.showControlTokens,
      maxTokens: params.max_completion_tokens ?? params.max_tokens ?? undefined,
      stop: [...prompt.stop, ...(sampling.stop as string[])],
      logprobs: params.logprobs ? (params.top_logprobs ?? true) : undefined,
      addSpecial: prompt.addSpecial,
    });
    call.until(generation);
    const head = { id: newId('chatcmpl'), created: now(), model: engine.info.name };
    return params.stream
      ? chatChunks(head, generation, answer, params)
      : await completion(head, generation, answer, params);
  } catch (error) {
    answer.close();
    throw error;
  }
}

interface Head {
  id: string;
  created: number;
  model: string;
}

const toolCall = ({ id, name, arguments: json }: Call): ToolCall => ({
  id,
  type: 'function',
  function: { name, arguments: json },
});

async function completion(
  head: Head,
  generation: TextStream,
  answer: Answer,
  params: ChatCompletionParams,
): Promise<ChatCompletion> {
  const text: AnswerPart = { reasoning: '', content: '', calls: [] };
  const logprobs: ChatTokenLogprob[] = [];
  const add = (part: AnswerPart): void => {
    text.reasoning += part.reasoning;
    text.content += part.content;
    text.calls.push(...part.calls);
  };
  for await (const piece of generation) {
    add(answer.push(piece));
    logprobs.push(...chatLogprobs(piece, params));
  }
  add(answer.finish());
  answer.close();
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
          ...(text.calls.length && { tool_calls: text.calls.map(toolCall) }),
        },
        logprobs: logprobs.length ? { content: logprobs, refusal: null } : null,
        finish_reason: chatFinishReason(result, answer),
      },
    ],
    usage: usageOf(result),
    timings: result.timings,
  };
}

async function* chatChunks(
  head: Head,
  generation: TextStream,
  answer: Answer,
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
    part: AnswerPart,
    logprobs: ChatLogprobs | null,
  ): Generator<ChatCompletionChunk> {
    const first = answer.calls - part.calls.length;
    if (part.reasoning) yield delta({ reasoning_content: part.reasoning }, logprobs);
    else if (part.content || logprobs) yield delta({ content: part.content }, logprobs);
    if (part.reasoning && part.content) yield delta({ content: part.content });
    for (const [i, call] of part.calls.entries())
      yield delta({ tool_calls: [{ index: first + i, ...toolCall(call) }] });
  };
  try {
    yield delta({ role: 'assistant', content: '' });
    for await (const piece of generation) {
      const tokens = chatLogprobs(piece, params);
      const logprobs = tokens.length ? { content: tokens, refusal: null } : null;
      yield* parts(answer.push(piece), logprobs);
    }
    yield* parts(answer.finish(), null);
  } finally {
    answer.close();
  }
  const result = await generation.result;
  const last: Choice = {
    index: 0,
    delta: {},
    logprobs: null,
    finish_reason: chatFinishReason(result, answer),
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
  { calls }: Answer,
): 'stop' | 'length' | 'tool_calls' {
  const reason = finishReason(result);
  return reason === 'stop' && calls > 0 ? 'tool_calls' : reason;
}

function usageOf({ usage }: GenerationResult): CompletionUsage {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.totalTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
/** A token's own text, which the text of the response may lack; part of a character is U+FFFD. */
const nameOf = ({ bytes, text }: GeneratedToken): string => (bytes ? decoder.decode(bytes) : text);

// JSON has no infinity.
const finite = (logprob: number): number => Math.max(logprob, -9999);

/** The entry of a token, in llama-server's format for `post_sampling_probs`. */
function chatLogprobs(
  piece: GeneratedToken,
  { post_sampling_probs: post }: SamplingParams,
): ChatTokenLogprob[] {
  if (piece.logprob === undefined) return [];
  const entry = (each: GeneratedToken): ChatTokenLogprob =>
    ({
      ...(post && { id: each.token }),
      token: nameOf(each),
      ...(post ? { prob: Math.exp(each.logprob ?? 0) } : { logprob: finite(each.logprob ?? 0) }),
      bytes: each.bytes?.length ? [...each.bytes] : null,
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
    out.tokens.push(nameOf(piece));
    out.token_logprobs.push(finite(piece.logprob));
    const top = new Map<string, number>();
    for (const each of piece.topLogprobs ?? [])
      if (!top.has(nameOf(each))) top.set(nameOf(each), finite(each.logprob)); // the likeliest one
    out.top_logprobs.push(Object.fromEntries(top));
    out.text_offset.push(offset);
    offset += piece.text.length;
  }
  return out;
}
