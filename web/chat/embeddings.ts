// Implements engine.embeddings: the same exchange as a server's, whose document is parsed. Part of
// templates.js, which is loaded at the first such call (web/api/embeddings.ts). Node's server takes
// from here what it passes to the engine.

import type { Embedded, EmbedSpec, EmbedTexts } from '../protocol/messages.js';
import type { Prompts } from './engine.js';
import type { Work } from './exchange.js';
import { jsonText } from './json.js';
import type { EmbeddingList, EmbeddingParams } from './openai.js';

/** The part of Engine that is used here. */
export interface EmbeddingEngine {
  readonly info: { name: string; plan: { contextLength: number } };
  prompts(): Promise<Prompts>;
  tokenize(text: string, options: { parseSpecial: boolean }): Promise<Int32Array>;
  detokenize(tokens: Int32Array): Promise<string>;
}

export const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/** The inputs of a request, cut to the length that it allows, and how they are embedded. */
export async function embedInputs(
  engine: EmbeddingEngine,
  { inputs, dimensions, truncate }: Extract<Work, { kind: 'embed' }>,
): Promise<{ texts: EmbedTexts; spec: EmbedSpec }> {
  const context = engine.info.plan.contextLength;
  const most = truncate < 0 ? context : Math.min(truncate, context);
  const texts = await Promise.all(
    inputs.map((input) => (most > 0 ? cut(engine, input, most) : inputOf(input))),
  );
  return { texts, spec: { pooling: -1, normalize: true, dimensions } };
}

/** Answers engine.embeddings.create(). `run` embeds. */
export async function embeddings(
  engine: EmbeddingEngine,
  params: EmbeddingParams,
  run: (texts: EmbedTexts, spec: EmbedSpec) => Promise<Embedded>,
): Promise<EmbeddingList> {
  const prompts = await engine.prompts();
  const body = jsonText('embeddings.create()', { ...params, input: plain(params?.input) });
  const exchange = await prompts.open('/v1/embeddings', body, engine.info.name);
  try {
    const { texts, spec } = await embedInputs(engine, exchange.work as never);
    const { values, width, tokens } = await run(texts, spec);
    return JSON.parse(exchange.document([bytesOf(values)], width, tokens)) as EmbeddingList;
  } finally {
    exchange.close();
  }
}

/** Typed arrays as lists. */
function plain(input: unknown): unknown {
  if (ArrayBuffer.isView(input)) return Array.from(input as Int32Array);
  return Array.isArray(input) ? input.map(plain) : input;
}

const inputOf = (input: string | number[]): string | Int32Array =>
  typeof input === 'string' ? input : Int32Array.from(input);

/** At most `most` tokens of an input. [SEP] or EOS stays at the end of a text. */
async function cut(
  engine: EmbeddingEngine,
  input: string | number[],
  most: number,
): Promise<Int32Array> {
  if (typeof input !== 'string') return Int32Array.from(input.slice(0, most));
  const tokens = await engine.tokenize(input, { parseSpecial: false });
  const last = tokens.slice(-1);
  const kept = tokens.slice(0, most);
  if (kept.length < tokens.length && !(await engine.detokenize(last))) kept.set(last, most - 1);
  return kept;
}
