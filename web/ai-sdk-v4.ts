// Version 4 of the AI SDK's provider interface, which AI SDK 7 has:
//   import { sluice } from 'sluice-llm/ai-sdk/v4';
// For text and tools the versions differ in their number alone, so ai-sdk.ts, which is version 3,
// does the work. It also reads what only version 4 has: `reasoning`, and files of plain text.

import type { EmbeddingModelV4, LanguageModelV4, RerankingModelV4 } from '@ai-sdk/provider';

import * as v3 from './ai-sdk.js';
import type { Engine } from './api/engine.js';

const specificationVersion = 'v4';

/**
 * The engine as a language model of version 4. `reasoning` sets the chat template's variables
 * enable_thinking and reasoning_effort. `providerOptions.sluice` may contain further parameters of
 * chat.completions.create, such as min_p.
 *
 * @example
 * ```ts
 * import { streamText } from 'ai';
 * import { sluice } from 'sluice-llm/ai-sdk/v4';
 *
 * const { textStream } = streamText({ model: sluice(engine), prompt: 'Why is the sky blue?' });
 * for await (const text of textStream) console.log(text);
 * ```
 */
export function sluice(engine: Engine, modelId?: string): LanguageModelV4 {
  const model = { ...v3.sluice(engine, modelId), specificationVersion };
  return model as unknown as LanguageModelV4; // it makes no files, whose type is another
}

/**
 * The engine as an embedding model of version 4. `providerOptions.sluice` may contain options of
 * engine.embed().
 *
 * @example
 * ```ts
 * import { embedMany } from 'ai';
 * import { sluiceEmbedding } from 'sluice-llm/ai-sdk/v4';
 *
 * const values = ['a hot meal', 'a cold drink'];
 * const { embeddings } = await embedMany({ model: sluiceEmbedding(engine), values });
 * ```
 */
export function sluiceEmbedding(engine: Engine, modelId?: string): EmbeddingModelV4 {
  return { ...v3.sluiceEmbedding(engine, modelId), specificationVersion };
}

/**
 * The engine as a reranking model of version 4.
 *
 * @example
 * ```ts
 * import { rerank } from 'ai';
 * import { sluiceReranking } from 'sluice-llm/ai-sdk/v4';
 *
 * const documents = ['Paris is in France.', 'Pandas eat bamboo.'];
 * const model = sluiceReranking(engine);
 * const { ranking } = await rerank({ model, documents, query: 'What do pandas eat?' });
 * ```
 */
export function sluiceReranking(engine: Engine, modelId?: string): RerankingModelV4 {
  return { ...v3.sluiceReranking(engine, modelId), specificationVersion };
}
