// Pictures for the next message: chosen, taken with a phone's camera, pasted or dropped. Each shows
// what it costs before it is sent.

import type { Engine } from 'sluice-llm';

import { announce, byId, iconButton, make, on, run } from './dom.js';
import { bytes } from './format.js';

export const isPicture = ({ type }: Blob): boolean => type.startsWith('image/');

/** A small copy of a picture. Its address is freed once it is drawn. */
export function thumbnail(picture: Blob, name = 'Picture'): HTMLImageElement {
  const image = make('img', { class: 'thumbnail', alt: name });
  image.onload = image.onerror = () => URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(picture);
  return image;
}

export class Pictures {
  private readonly list = byId('pictures');
  private readonly input = byId<HTMLInputElement>('picture');
  private readonly button = byId('add-picture');
  private readonly chosen = new Map<Blob, HTMLElement>();
  private engine: Engine | null = null;

  constructor() {
    on(this.input, 'change', () => {
      this.add([...(this.input.files ?? [])]);
      this.input.value = '';
    });
    on<ClipboardEvent>(byId('prompt'), 'paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])].filter(isPicture);
      if (files.length === 0 || !this.sees) return;
      event.preventDefault();
      this.add(files);
    });
    on<CustomEvent<File[]>>(document, 'pictures', ({ detail }) => this.add(detail));
  }

  /** Sets the engine; null: none. Pictures that were chosen stay. */
  use(engine: Engine | null): void {
    this.engine = engine;
    this.button.hidden = !this.sees;
    if (!engine) return;
    for (const [picture, entry] of this.chosen) run(() => this.price(picture, entry));
  }

  get empty(): boolean {
    return this.chosen.size === 0;
  }

  /** The chosen pictures, which leave the form. */
  take(): Blob[] {
    const pictures = [...this.chosen.keys()];
    this.chosen.clear();
    this.list.replaceChildren();
    return pictures;
  }

  private get sees(): boolean {
    return this.engine?.info.modalities.includes('image') ?? false;
  }

  private add(files: Blob[]): void {
    if (!this.sees) return announce('This model takes no pictures: load it with its projector.');
    for (const picture of files) {
      const name = (picture as File).name ?? 'Picture';
      const cost = make('span', { class: 'muted' }, '…');
      const entry = make('li', {}, thumbnail(picture, name), cost);
      entry.append(
        iconButton('close', `Remove ${name}`, () => {
          this.chosen.delete(picture);
          entry.remove();
          byId('prompt').focus();
        }),
      );
      this.chosen.set(picture, entry);
      this.list.append(entry);
      run(() => this.price(picture, entry));
    }
    byId('prompt').focus({ preventScroll: true });
  }

  /** Shows the tokens and the memory that a picture takes, or why it cannot be read. */
  private async price(picture: Blob, entry: HTMLElement): Promise<void> {
    const { engine } = this;
    const text = entry.querySelector('span')!;
    try {
      const bitmap = await createImageBitmap(picture);
      const { width, height } = bitmap;
      bitmap.close();
      const cost = await engine!.imageCost(width, height);
      text.textContent = `${cost.tokens} tokens, ${bytes(cost.bytes)} while it is read`;
    } catch (error) {
      text.textContent = (error as Error).message;
    }
    announce(text.textContent);
  }
}
