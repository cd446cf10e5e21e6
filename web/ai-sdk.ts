// Provider for the Vercel AI SDK on a loaded engine. It is version 3 of the provider interface, which
// AI SDK 6 and 7 take; ai-sdk-v4.ts is version 4.
//   import { sluice } from 'sluice-llm/ai-sdk';
//   const { textStream } = streamText({ model: sluice(engine), prompt: 'Once upon a time' });
// Only types are imported from @ai-sdk/provider.

import type {
  EmbeddingModelV3,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3Message,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolCall,
  LanguageModelV3ToolResultPart,
  LanguageModelV3Usage,
  RerankingModelV3,
  SharedV3Warning,
} from '@ai-sdk/provider';

import type { Engine } from './api/engine.js';
import type { ChatMessage, TextPart } from './chat/engine.js';
import type { ChatCompletionParams, ChatTool, CompletionUsage, ToolCall } from './chat/openai.js';

/**
 * The engine as a language model of the AI SDK. `providerOptions.sluice` may contain further
 * parameters of chat.completions.create, such as min_p. An unsupported one is an error.
 *
 * @example
 * ```ts
 * import { streamText } from 'ai';
 * import { sluice } from 'sluice-llm/ai-sdk';
 *
 * const { textStream } = streamText({ model: sluice(engine), prompt: 'Why is the sky blue?' });
 * for await (const text of textStream) console.log(text);
 * ```
 */
export function sluice(engine: Engine, modelId = engine.info.name): LanguageModelV3 {
  return {
    specificationVersion: 'v3',
    provider: 'sluice',
    modelId,
    supportedUrls: {},
    async doGenerate(options) {
      const warnings = warningsFor(engine, options);
      const answer = await engine.chat.completions.create(chatParams(engine, options), {
        signal: options.abortSignal,
      });
      const { message, finish_reason } = answer.choices[0]!;
      const content: LanguageModelV3Content[] = [];
      if (message.reasoning_content)
        content.push({ type: 'reasoning', text: message.reasoning_content });
      if (message.content) content.push({ type: 'text', text: message.content });
      content.push(...(message.tool_calls ?? []).map(toolCall));
      return {
        content,
        finishReason: finishReason(finish_reason),
        usage: usageOf(answer.usage),
        response: { id: answer.id, modelId, timestamp: new Date(answer.created * 1000) },
        warnings,
      };
    },
    async doStream(options) {
      const params = {
        ...chatParams(engine, options),
        stream: true as const,
        stream_options: { include_usage: true },
      };
      const warnings = warningsFor(engine, options);
      const { abortSignal: signal } = options;
      const stream = await engine.chat.completions.create(params, { signal });
      const parts = streamParts(stream, warnings, signal);
      return {
        stream: new ReadableStream<LanguageModelV3StreamPart>({
          async pull(controller) {
            const { done, value } = await parts.next();
            if (done) controller.close();
            else controller.enqueue(value);
          },
          cancel: () => stream.controller.abort(),
        }),
      };
    },
  };
}

/**
 * The engine as an embedding model of the AI SDK. `providerOptions.sluice` may contain options of
 * engine.embed().
 *
 * @example
 * ```ts
 * import { embedMany } from 'ai';
 * import { sluiceEmbedding } from 'sluice-llm/ai-sdk';
 *
 * const values = ['a hot meal', 'a cold drink'];
 * const { embeddings } = await embedMany({ model: sluiceEmbedding(engine), values });
 * ```
 */
export function sluiceEmbedding(engine: Engine, modelId = engine.info.name): EmbeddingModelV3 {
  return {
    specificationVersion: 'v3',
    provider: 'sluice',
    modelId,
    maxEmbeddingsPerCall: Infinity,
    supportsParallelCalls: false,
    async doEmbed({ values, abortSignal, providerOptions }) {
      const vectors = await engine.embed(values, {
        ...providerOptions?.['sluice'],
        ...(abortSignal && { signal: abortSignal }),
      });
      return { embeddings: vectors.map((vector) => Array.from(vector)), warnings: [] };
    },
  };
}

/**
 * The engine as a reranking model of the AI SDK.
 *
 * @example
 * ```ts
 * import { rerank } from 'ai';
 * import { sluiceReranking } from 'sluice-llm/ai-sdk';
 *
 * const documents = ['Paris is in France.', 'Pandas eat bamboo.'];
 * const model = sluiceReranking(engine);
 * const { ranking } = await rerank({ model, documents, query: 'What do pandas eat?' });
 * ```
 */
export function sluiceReranking(engine: Engine, modelId = engine.info.name): RerankingModelV3 {
  return {
    specificationVersion: 'v3',
    provider: 'sluice',
    modelId,
    async doRerank({ documents, query, topN, abortSignal }) {
      const texts = documents.values.map((value) =>
        typeof value === 'string' ? value : JSON.stringify(value),
      );
      const ranked = await engine.rerank(query, texts, {
        ...(topN && { topN }),
        ...(abortSignal && { signal: abortSignal }),
      });
      return { ranking: ranked.map(({ index, score }) => ({ index, relevanceScore: score })) };
    },
  };
}

type Reason = 'stop' | 'length' | 'tool_calls';

function finishReason(raw: Reason): LanguageModelV3FinishReason {
  return { unified: raw === 'tool_calls' ? 'tool-calls' : raw, raw };
}

function toolCall({ id, function: called }: ToolCall): LanguageModelV3ToolCall {
  return { type: 'tool-call', toolCallId: id, toolName: called.name, input: called.arguments };
}

type Chunks = AsyncIterable<import('./chat/openai.js').ChatCompletionChunk>;

async function* streamParts(
  chunks: Chunks,
  warnings: SharedV3Warning[],
  signal: AbortSignal | undefined,
): AsyncGenerator<LanguageModelV3StreamPart, void> {
  yield { type: 'stream-start', warnings };
  let open: 'text' | 'reasoning' | null = null;
  let reason: Reason = 'stop';
  let usage: CompletionUsage | undefined;
  try {
    for await (const chunk of chunks) {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices[0];
      reason = choice?.finish_reason ?? reason;
      for (const [kind, delta] of [
        ['reasoning', choice?.delta.reasoning_content],
        ['text', choice?.delta.content],
      ] as const) {
        if (!delta) continue;
        if (open && open !== kind) yield { type: `${open}-end`, id: open };
        if (open !== kind) yield { type: `${kind}-start`, id: kind };
        open = kind;
        yield { type: `${kind}-delta`, id: kind, delta };
      }
      yield* (choice?.delta.tool_calls ?? []).map(toolCall);
    }
  } catch (error) {
    if (signal?.aborted) throw error; // an abort is not reported as an error part
    yield { type: 'error', error };
    return;
  }
  if (open) yield { type: `${open}-end`, id: open };
  yield { type: 'finish', finishReason: finishReason(reason), usage: usageOf(usage) };
}

function usageOf(usage: CompletionUsage | undefined): LanguageModelV3Usage {
  const cached = usage?.prompt_tokens_details.cached_tokens;
  return {
    inputTokens: {
      total: usage?.prompt_tokens,
      noCache: usage && usage.prompt_tokens - cached!,
      cacheRead: cached,
      cacheWrite: undefined,
    },
    outputTokens: { total: usage?.completion_tokens, text: undefined, reasoning: undefined },
  };
}

function warningsFor(engine: Engine, options: LanguageModelV3CallOptions): SharedV3Warning[] {
  const warnings: SharedV3Warning[] = [];
  const unsupported = (feature: string, details: string): number =>
    warnings.push({ type: 'unsupported', feature, details });
  if (!engine.structuredOutput) {
    const advice = 'The engine was loaded with structuredOutput: false';
    if (options.responseFormat?.type === 'json')
      unsupported('responseFormat', `${advice}: the response is plain text.`);
    if (options.tools?.some((tool) => tool.type === 'function' && tool.strict))
      unsupported('tools', `${advice}: strict is ignored.`);
  }
  if (options.tools?.some((tool) => tool.type !== 'function'))
    unsupported('tools', 'Only function tools are supported.');
  return warnings;
}

function chatParams(
  engine: Engine,
  options: LanguageModelV3CallOptions,
): ChatCompletionParams & { stream?: false } {
  const choice = options.toolChoice;
  const tools = options.tools?.flatMap((tool): ChatTool[] =>
    tool.type !== 'function'
      ? []
      : [
          {
            type: 'function',
            function: {
              name: tool.name,
              description: tool.description ?? '',
              parameters: tool.inputSchema as Record<string, unknown>,
              ...(tool.strict && engine.structuredOutput && { strict: true }),
            },
          },
        ],
  );
  const format =
    engine.structuredOutput && options.responseFormat?.type === 'json'
      ? options.responseFormat
      : undefined;
  const own = options.providerOptions?.['sluice'];
  const { reasoning = 'provider-default' } = options as { reasoning?: string }; // of version 4
  const thinking =
    reasoning === 'none' ? { enable_thinking: false } : { reasoning_effort: reasoning };
  return {
    messages: options.prompt.flatMap(chatMessages),
    max_tokens: options.maxOutputTokens,
    temperature: options.temperature,
    top_p: options.topP,
    top_k: options.topK,
    frequency_penalty: options.frequencyPenalty,
    presence_penalty: options.presencePenalty,
    seed: options.seed,
    stop: options.stopSequences,
    tools,
    ...(format && {
      response_format: format.schema
        ? { type: 'json_schema', json_schema: { schema: format.schema } }
        : { type: 'json_object' },
    }),
    tool_choice:
      choice?.type === 'tool'
        ? { type: 'function', function: { name: choice.toolName } }
        : choice?.type,
    ...own,
    ...(reasoning !== 'provider-default' && {
      chat_template_kwargs: { ...thinking, ...(own?.['chat_template_kwargs'] as object) },
    }),
  };
}

/** A file's content: version 4 says what kind of content it is. */
type FileData =
  string | Uint8Array | URL | { type: string; text?: string; data?: FileData; url?: URL | string };

/** The text of a file that is passed as text, or its picture; otherwise the part itself. */
function partOf(part: { type: string; mediaType?: string; data?: FileData }): object {
  const { data, mediaType = '' } = part;
  const tagged = typeof data === 'object' && 'type' in data ? data : undefined;
  if (tagged?.type === 'text') return { type: 'text', text: tagged.text };
  const given = tagged ? (tagged.url ?? tagged.data) : data;
  if (!given || !mediaType.startsWith('image')) return part;
  const isBase64 = typeof given === 'string' && !/^[a-z]+:/i.test(given);
  const image = isBase64 ? `data:${mediaType};base64,${given}` : given;
  return { type: 'image', image: image instanceof URL ? image.href : image };
}

/** What the model reads of a tool's result. */
function toolResult(output: LanguageModelV3ToolResultPart['output']): string {
  if (output.type === 'execution-denied') return output.reason ?? 'The user denied this call.';
  if (typeof output.value === 'string') return output.value;
  const texts =
    output.type === 'content' && output.value.map((part) => 'text' in part && part.text);
  return texts && texts.every((text) => text !== false)
    ? texts.join('\n')
    : JSON.stringify(output.value);
}

function chatMessages(message: LanguageModelV3Message): ChatMessage[] {
  if (message.role === 'system') return [{ role: 'system', content: message.content }];
  if (message.role === 'tool') {
    return message.content.flatMap((part) =>
      part.type !== 'tool-result'
        ? []
        : [
            {
              role: 'tool',
              tool_call_id: part.toolCallId,
              name: part.toolName,
              content: toolResult(part.output),
            },
          ],
    );
  }
  const parts: readonly { type: string }[] = message.content;
  const calls =
    message.role !== 'assistant'
      ? []
      : message.content.flatMap((part) =>
          part.type !== 'tool-call'
            ? []
            : [
                {
                  id: part.toolCallId,
                  type: 'function',
                  function: { name: part.toolName, arguments: part.input },
                },
              ],
        );
  // Files are kept so that rendering throws an error that names them. Reasoning is omitted.
  const content = parts.filter((part) => part.type === 'text' || part.type === 'file').map(partOf);
  return [
    {
      role: message.role,
      content: content as TextPart[],
      ...(calls.length && { tool_calls: calls }),
    },
  ];
}
