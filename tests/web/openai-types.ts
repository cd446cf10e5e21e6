// Compiled, never run: checks that the engine's responses have the types of the openai package.
import type OpenAI from 'openai';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatTool,
  Completion,
  ToolCall,
} from '../../web/chat/openai.js';
import type { ChatMessage } from '../../web/chat/engine.js';
import type { Engine } from '../../web/api/engine.js';

type Exactly<T extends U, U> = T;
export type A = Exactly<ChatCompletion, OpenAI.Chat.Completions.ChatCompletion>;
export type B = Exactly<ChatCompletionChunk, OpenAI.Chat.Completions.ChatCompletionChunk>;
export type C = Exactly<Completion, OpenAI.Completions.Completion>;

export type D = Exactly<ToolCall, OpenAI.Chat.Completions.ChatCompletionMessageFunctionToolCall>;
/** A conversation that was written for either is one for the other. */
export type F = Exactly<
  OpenAI.Chat.Completions.ChatCompletionMessageParam[],
  ChatCompletionParams['messages']
>;
export type G = Exactly<
  ChatCompletion['choices'][number]['message'],
  OpenAI.Chat.Completions.ChatCompletionMessageParam
>;
export type H = Exactly<
  ChatCompletion['choices'][number]['message'],
  ChatCompletionParams['messages'][number]
>;

export type E = Exactly<ChatTool, OpenAI.Chat.Completions.ChatCompletionFunctionTool>;

/** A conversation with tools, as written for OpenAI's client. */
export async function call(
  engine: Engine,
  tools: OpenAI.Chat.Completions.ChatCompletionTool[],
): Promise<unknown> {
  const messages: ChatMessage[] = [{ role: 'user', content: 'Weather?' }];
  const tool_choice = {
    type: 'function',
    function: { name: 'weather' },
  } satisfies OpenAI.Chat.Completions.ChatCompletionToolChoiceOption;
  const { message, finish_reason } = (
    await engine.chat.completions.create({ messages, tools, tool_choice })
  ).choices[0]!;
  const [first] = finish_reason === 'tool_calls' ? (message.tool_calls ?? []) : [];
  const stream = await engine.chat.completions.create({
    messages,
    tools,
    tool_choice: 'required',
    stream: true,
  });
  for await (const chunk of stream) {
    const deltas: OpenAI.Chat.Completions.ChatCompletionChunk.Choice.Delta.ToolCall[] =
      chunk.choices[0]?.delta.tool_calls ?? [];
    if (deltas[0]?.function?.arguments) break;
  }
  return first && JSON.parse(first.function.arguments);
}

export async function use(
  engine: Engine,
  messages: OpenAI.Chat.Completions.ChatCompletionMessageParam[],
): Promise<string> {
  const params = {
    messages,
    temperature: 0,
  } satisfies Partial<OpenAI.Chat.Completions.ChatCompletionCreateParams>;
  const answer: OpenAI.Chat.Completions.ChatCompletion =
    await engine.chat.completions.create(params);
  messages.push(answer.choices[0]!.message);
  await engine.renderPrompt(messages);
  const response_format = {
    type: 'json_schema',
    json_schema: { name: 'x', strict: true, schema: { type: 'object' } },
  } satisfies OpenAI.ResponseFormatJSONSchema;
  const stream = await engine.chat.completions.create({
    messages: [{ role: 'user', content: 'Hi' }],
    stream: true,
    response_format,
    parallel_tool_calls: false,
  });
  for await (const chunk of stream) {
    const part: OpenAI.Chat.Completions.ChatCompletionChunk = chunk;
    if (part.choices[0]?.finish_reason) stream.controller.abort();
  }
  return answer.choices[0]?.message.content ?? '';
}
