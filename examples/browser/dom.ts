// DOM helpers: elements, icons, delete buttons with confirmation, and event handlers. All handlers
// run through run(), which reports their errors to the page.

/** The element with this id. Throws if it does not exist. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return element as T;
}

/** Runs an event handler. Errors, also asynchronous ones, are reported to main.ts. */
export function run(work: () => unknown): void {
  new Promise((resolve) => resolve(work())).catch((error: unknown) => {
    document.dispatchEvent(new CustomEvent('failed', { detail: error }));
  });
}

/** addEventListener() through run(). */
export function on<E extends Event = Event>(
  target: EventTarget,
  type: string,
  work: (event: E) => unknown,
): void {
  target.addEventListener(type, (event) => run(() => work(event as E)));
}

let release: Promise<void> | undefined;
document.addEventListener('pointerdown', () => {
  release ??= new Promise((resolve) => {
    const done = (): void => {
      for (const type of ['pointerup', 'pointercancel']) document.removeEventListener(type, done);
      release = undefined;
      setTimeout(resolve); // after the click
    };
    for (const type of ['pointerup', 'pointercancel']) document.addEventListener(type, done);
  });
});

/**
 * Resolves when the pointer is released and its click is handled, immediately if it is not pressed.
 * A button that moves between press and release gets no click.
 */
export const released = async (): Promise<void> => release;

export type Child = Node | string | null | undefined | false;

/**
 * Creates an element. `props` are assigned as properties, except `class` and names with a dash,
 * which become attributes.
 */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === 'class' || key.includes('-')) element.setAttribute(key, String(value));
    else (element as Record<string, unknown>)[key] = value;
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/** Makes a field as high as its text, at most `limit` pixels. */
export function grow(field: HTMLTextAreaElement, limit = Infinity): void {
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight + 2, limit)}px`;
}

const kIcons = {
  again: 'M4 12a8 8 0 1 0 3-6.2M4 4v4.5h4.5',
  check: 'M5 12.5l4.5 4.5L19 7',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h11v11H9zM15 5V4H4v11h1',
  pencil: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  plus: 'M12 5v14M5 12h14',
  trash: 'M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13M10 11v5M14 11v5',
} as const;
export type Icon = keyof typeof kIcons;

export function icon(name: Icon): SVGElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(svg.namespaceURI, 'path');
  path.setAttribute('d', kIcons[name]);
  svg.append(path);
  return svg as SVGElement;
}

/** A button with an icon. The label is its accessible name and its tooltip. */
export function iconButton(name: Icon, label: string, onClick: () => unknown): HTMLButtonElement {
  const button = make(
    'button',
    { type: 'button', class: 'icon', title: label, 'aria-label': label },
    icon(name),
  );
  on(button, 'click', onClick);
  return button;
}

/** A delete button: the first press asks for confirmation, a second one within 4 s deletes. */
export function deleteButton(label: string, act: () => unknown): HTMLButtonElement {
  let armed: ReturnType<typeof setTimeout> | undefined;
  const disarm = (): void => {
    clearTimeout(armed);
    armed = undefined;
    button.classList.remove('armed');
    button.setAttribute('aria-label', label);
    button.replaceChildren(icon('trash'));
  };
  const button = iconButton('trash', label, () => {
    if (armed !== undefined) {
      disarm();
      return act();
    }
    armed = setTimeout(disarm, 4000);
    button.classList.add('armed');
    button.setAttribute('aria-label', `Really ${label.charAt(0).toLowerCase()}${label.slice(1)}?`);
    button.replaceChildren('Sure?');
    return undefined;
  });
  on(button, 'blur', disarm);
  return button;
}

/** Announces text to screen readers through the page's live region. */
export function announce(text: string): void {
  const region = byId('announcer');
  region.append(make('p', {}, text));
  while (region.childElementCount > 20) region.firstElementChild!.remove();
}

export function swatch(color: string): HTMLElement {
  const mark = make('i');
  mark.style.background = `var(${color})`;
  return mark;
}
