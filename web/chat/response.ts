// Runs the generations of a request and writes its response, for the package and Node's server. The
// engine generates all outputs in parallel; the Exchange makes text of them.

import type { GenerationResult, GeneratedToken } from '../protocol/types.js';
import type { ChatEngine, Job, TextStream } from './engine.js';
import type { Exchange } from './exchange.js';

/** A response that is being generated. */
export interface Response {
  generations: TextStream[];
  /**
   * The parts of the response as they are known: frames of a stream, or in the end the document.
   * The first part comes before any token. Leaving the loop cancels the generations.
   */
  parts: AsyncGenerator<string, void>;
}

/** Starts all generations, in a turn of the engine. `ended` is called at the end of each. */
export function respond(
  engine: ChatEngine,
  exchange: Exchange,
  jobs: readonly Job[],
  signal: AbortSignal,
  ended: (result: GenerationResult) => void = () => {},
): Response {
  const generations = jobs.map(({ prompt, options, extra }) =>
    engine.answer(prompt, { ...options, signal }, extra),
  );
  return { generations, parts: partsOf(exchange, generations, ended) };
}

async function* partsOf(
  exchange: Exchange,
  generations: TextStream[],
  ended: (result: GenerationResult) => void,
): AsyncGenerator<string, void> {
  yield exchange.begin();
  const readers = generations.map((generation) => generation[Symbol.asyncIterator]());
  type Taken = Promise<{ index: number; step: IteratorResult<GeneratedToken, void> }>;
  const next = new Map<number, Taken>();
  const take = (index: number): void => {
    const taken = readers[index]!.next().then((step) => ({ index, step }));
    taken.catch(() => {}); // of several errors the first is reported; of a stream that is left, none
    next.set(index, taken);
  };
  readers.forEach((_, index) => take(index));
  try {
    while (next.size > 0) {
      const { index, step } = await Promise.race(next.values());
      if (step.done) {
        next.delete(index);
        const result = await generations[index]!.result;
        const part = exchange.end(index, result);
        ended(result);
        yield part;
      } else {
        take(index);
        yield exchange.push(index, step.value);
      }
    }
  } finally {
    for (const reader of readers) void reader.return?.();
  }
  yield exchange.finish();
}
