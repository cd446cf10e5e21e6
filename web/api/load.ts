// Starts a worker that opens a model, for Engine.load and Engine.inspect.

import { abortable, type SluiceError } from '../protocol/errors.js';
import type { LoadSpec } from '../protocol/messages.js';
import type { InspectOptions, ModelSource } from '../protocol/options.js';
import { snapshot } from '../protocol/snapshot.js';
import { EngineWorker } from './engine-worker.js';
import { modelCache } from './store.js';
import { checkLoad, loadSpec } from './options.js';

/** Resolves when engines whose loading was aborted have closed their files. */
let leaving: Promise<unknown> = Promise.resolve();

/**
 * Starts a worker and calls it by `ask`. On failure its files are
 * closed before this rejects; on abort it rejects immediately, and the next load waits until they
 * are closed.
 */
export async function openWorker<T>(
  ask: (worker: EngineWorker, spec: LoadSpec) => Promise<T>,
  source: ModelSource,
  options: InspectOptions,
  full?: boolean,
): Promise<[EngineWorker, T]> {
  source = snapshot(source);
  options = snapshot(options);
  checkLoad(options);
  const { signal } = options;
  const deleted = modelCache.turns.call(async () => {}); // what was called before
  const [spec, close] = await loadSpec(source, options);
  spec.wasm.full ||= full;
  const worker = new EngineWorker(options, spec, close);
  try {
    const answer = await abortable({ signal }, async () => {
      await leaving;
      await deleted;
      return ask(worker, spec);
    });
    return [worker, answer];
  } catch (error) {
    const over = worker.dispose();
    if (signal?.aborted) leaving = Promise.all([leaving, over]);
    else await over;
    // The full engine: few files need it.
    const another = !(spec.wasm.full || spec.wasm.url || spec.wasm.binary);
    if (another && (error as SluiceError).code === 'NOT_IN_BUILD')
      return openWorker(ask, source, options, true);
    throw error;
  }
}
