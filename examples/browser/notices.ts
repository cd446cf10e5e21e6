// Notices above the page, until they are dismissed or no longer true. Errors of all event handlers
// are shown here.

import { byId, iconButton, make, type Child } from './dom.js';
import { explain, isAbort } from './error-advice.js';

const kMax = 4;

/** `topic`: what it is about, for withdraw(). */
export function notice(content: Child, topic = ''): void {
  const box = byId('notices');
  const body = typeof content === 'string' ? make('p', {}, content) : content;
  const line = make('div', { class: 'notice' }, body);
  if ([...box.children].some(({ textContent }) => textContent === line.textContent)) return;
  line.dataset['topic'] = topic;
  line.append(iconButton('close', 'Dismiss', () => line.remove()));
  box.append(line);
  while (box.childElementCount > kMax) box.firstElementChild!.remove();
}

/** Removes the notices about a problem that is over. */
export function withdraw(topic: string): void {
  for (const line of byId('notices').querySelectorAll<HTMLElement>('.notice'))
    if (line.dataset['topic'] === topic) line.remove();
}

export function report(error: unknown): void {
  if (!isAbort(error)) notice(explain(error));
}
