// What a response waits for: the download of the weights, reading them, or the prompt. From the
// engine's progress events.

import type { ProgressEvent } from 'sluice-llm';

import { bytes, seconds } from './format.js';

export class Waiting {
  private download = '';
  private weights = '';
  private prompt = '';

  /** A new response: its prompt is not being read yet. */
  begin(): void {
    this.prompt = '';
  }

  /** Another model. */
  reset(): void {
    this.download = this.weights = this.prompt = '';
  }

  take(event: ProgressEvent): void {
    if (event.phase === 'download') {
      const left = event.secondsLeft ? `, about ${seconds(event.secondsLeft)} left` : '';
      this.download = part('Waiting for the model', event, left);
    }
    if (event.phase === 'cached') this.download = '';
    if (event.phase === 'weights')
      this.weights = part(
        `${event.source === 'cache' ? 'Reading' : 'Waiting for'} the model`,
        event,
      );
    if (event.phase === 'prefill')
      this.prompt = `Reading your prompt: ${Math.floor((100 * event.layer) / event.layers)} %`;
  }

  /** '' if nothing is known. */
  get text(): string {
    return this.download || this.weights || this.prompt;
  }
}

/** "What: 1 MB of 2 MB", or '' when all is there. */
function part(
  what: string,
  { bytesLoaded, bytesTotal }: { bytesLoaded: number; bytesTotal: number },
  more = '',
): string {
  if (bytesLoaded >= bytesTotal) return '';
  return `${what}: ${bytes(bytesLoaded)} of ${bytes(bytesTotal)}${more}`;
}
