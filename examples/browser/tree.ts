// Shows a growing JSON response as a tree. Elements of unchanged parts are kept, so that folding
// and focus stay.

import { make } from './dom.js';

type Container = Record<string, unknown> | unknown[];
const isContainer = (value: unknown): value is Container =>
  typeof value === 'object' && value !== null;

/** The value of a text that is a JSON object or array; null for any other text. */
export function jsonOf(text: string): { value: unknown } | null {
  if (!/^\s*[[{][^]*[\]}]\s*$/.test(text)) return null;
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return null;
  }
}

/** The value as text for screen readers. */
export function spoken(value: unknown): string {
  if (!isContainer(value)) return String(value);
  const named = Object.entries(value).map(
    ([name, part]) => (Array.isArray(value) ? '' : `${name}: `) + spoken(part),
  );
  return named.join(', ') || 'nothing';
}

export class TreeView {
  readonly element = make('div', { class: 'tree' });

  show(value: unknown): void {
    const [old] = this.element.children;
    if (!isContainer(value)) return this.element.replaceChildren(leaf(value));
    if (old?.tagName === 'UL') return fill(old, value);
    const list = make('ul');
    fill(list, value);
    this.element.replaceChildren(list);
  }
}

function fill(list: Element, value: Container): void {
  const entries = Object.entries(value);
  entries.forEach(([name, part], i) => {
    const old = list.children[i] as HTMLElement | undefined;
    const kept =
      old?.dataset['name'] === name &&
      isContainer(part) === (old.firstElementChild?.tagName === 'DETAILS');
    const item = kept ? old : make('li');
    item.dataset['name'] = name;
    grow(item, Array.isArray(value) ? '' : name, part);
    if (kept) return;
    if (old) old.replaceWith(item);
    else list.append(item);
  });
  while (list.childElementCount > entries.length) list.lastElementChild!.remove();
}

function grow(item: HTMLElement, name: string, value: unknown): void {
  const label = name && make('span', { class: 'name' }, name);
  if (!isContainer(value)) {
    const shown = leaf(value);
    const [...old] = item.children;
    if (old.at(-1)?.textContent !== shown.textContent)
      item.replaceChildren(...[label, shown].filter((part) => part !== ''));
    return;
  }
  if (!item.firstElementChild)
    item.append(
      make(
        'details',
        { open: true },
        make('summary', {}, label, make('span', { class: 'count' })),
        make('ul'),
      ),
    );
  const n = Object.keys(value).length;
  const unit = Array.isArray(value) ? 'item' : 'member';
  item.querySelector('.count')!.textContent = `${n} ${unit}${n === 1 ? '' : 's'}`;
  fill(item.firstElementChild!.lastElementChild!, value);
}

/** A scalar value. Strings are quoted, so that "5" differs from 5. */
function leaf(value: unknown): HTMLElement {
  return make(
    'span',
    { class: typeof value },
    typeof value === 'string' ? `"${value}"` : JSON.stringify(value),
  );
}
