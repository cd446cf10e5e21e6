// Progress of the download, with pause and resume.

import type { ProgressEvent } from 'sluice-llm';

import { announce, byId, on } from './dom.js';
import { bytes, seconds } from './format.js';

export class DownloadView {
  private readonly box = byId('progress');
  private readonly bar = byId<HTMLProgressElement>('progress-bar');
  private spoken = 0;
  /** Downloaded fraction of the file, 0 to 1; 1 if there is no download. */
  share = 1;

  /** Called by the button, which pauses or resumes. */
  constructor(onPause: () => unknown, onResume: () => unknown) {
    on(byId('pause'), 'click', () => (this.paused ? onResume() : onPause()));
  }

  private paused = false;

  /** Downloaded part of the file for the head of the page; '' if nothing is downloaded. */
  get percent(): string {
    return this.share < 1 ? `${Math.floor(this.share * 100)} %` : '';
  }

  begin(text: string): void {
    this.paused = false;
    this.share = 1;
    this.spoken = 0;
    this.bar.removeAttribute('value'); // indeterminate
    this.show(text, 'Cancel');
  }

  update(event: Extract<ProgressEvent, { phase: 'download' }>): void {
    if (event.bytesTotal === 0) return;
    this.share = event.bytesLoaded / event.bytesTotal;
    this.bar.value = this.share;
    const left = event.secondsLeft ? `, ${seconds(event.secondsLeft)} left` : '';
    this.show(
      `${bytes(event.bytesLoaded)} of ${bytes(event.bytesTotal)}, ` +
        `${bytes(event.bytesPerSecond)}/s${left}`,
      'Pause',
    );
    const quarter = Math.floor(this.share * 4);
    if (quarter <= this.spoken) return;
    this.spoken = quarter;
    announce(`${quarter * 25} % downloaded`);
  }

  /** Shows that the download is paused and can be resumed. */
  pause(): void {
    this.paused = true;
    this.show(`Paused at ${Math.floor(this.share * 100)} %. Downloaded data is kept.`, 'Resume');
  }

  end(): void {
    this.share = 1;
    this.box.hidden = true;
  }

  private show(text: string, button: string): void {
    this.box.hidden = false;
    byId('progress-text').textContent = text;
    if (byId('pause').textContent !== button) byId('pause').textContent = button;
  }
}
