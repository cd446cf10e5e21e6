// Compiled, never run: the openai package's types accept what the engine answers.
import type OpenAI from 'openai';
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionParams, Completion } from '../../web/openai.js';
import type { Engine } from '../../web/engine.js';

type Exactly<T extends U, U> = T;
export type A = Exactly<ChatCompletion, OpenAI.Chat.Completions.ChatCompletion>;
export type B = Exactly<ChatCompletionChunk, OpenAI.Chat.Completions.ChatCompletionChunk>;
export type C = Exactly<Completion, OpenAI.Completions.Completion>;

export async function use(engine: Engine, messages: OpenAI.Chat.Completions.ChatCompletionMessageParam[]): Promise<string> {
  const params = { messages, temperature: 0 } satisfies Partial<OpenAI.Chat.Completions.ChatCompletionCreateParams>;
  const answer: OpenAI.Chat.Completions.ChatCompletion = await engine.chat.completions.create({ ...params, messages: messages as unknown as ChatCompletionParams['messages'] });
  const stream = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }], stream: true });
  for await (const chunk of stream) {
    const part: OpenAI.Chat.Completions.ChatCompletionChunk = chunk;
    if (part.choices[0]?.finish_reason) stream.controller.abort();
  }
  return answer.choices[0]?.message.content ?? '';
}
