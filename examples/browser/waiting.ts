// What a response waits for: the download of the weights, reading them, or the prompt. From the
// engine's progress events.

import type { ProgressEvent } from 'sluice-llm';

import { bytes, seconds } from './format.js';

export class Waiting {
  private weights = '';
  private prompt = '';

  /** Another model or another response: what was said before no longer holds. */
  begin(): void {
    this.prompt = '';
  }

  take(event: ProgressEvent): void {
    if (event.phase === 'download' || event.phase === 'weights') {
      const { bytesLoaded, bytesTotal } = event;
      const left =
        event.phase === 'download' && event.secondsLeft
          ? `, about ${seconds(event.secondsLeft)} left`
          : '';
      this.weights =
        bytesLoaded < bytesTotal
          ? `Waiting for the model: ${bytes(bytesLoaded)} of ${bytes(bytesTotal)}${left}`
          : '';
    }
    if (event.phase === 'cached') this.weights = '';
    if (event.phase === 'prefill')
      this.prompt = `Reading your prompt: ${Math.floor((100 * event.layer) / event.layers)} %`;
  }

  /** '' if nothing is known. */
  get text(): string {
    return this.weights || this.prompt;
  }
}
