// Notices above the page, until they are dismissed. Errors of all event handlers are shown here.

import { SluiceError } from 'sluice-llm';

import { byId, iconButton, make } from './dom.js';

const kMax = 4;

export function notice(text: string): void {
  const box = byId('notices');
  if ([...box.children].some((other) => other.firstElementChild?.textContent === text)) return;
  const line = make('div', { class: 'notice' }, make('p', {}, text));
  line.append(iconButton('close', 'Dismiss', () => line.remove()));
  box.append(line);
  while (box.childElementCount > kMax) box.firstElementChild!.remove();
}

export function report(error: unknown): void {
  const { name, message } = (error ?? {}) as Partial<Error>;
  if (name === 'AbortError') return;
  const code = error instanceof SluiceError ? ` (${error.code})` : '';
  notice(`${message || String(error)}${code}`);
}
