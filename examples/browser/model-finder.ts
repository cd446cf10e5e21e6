// Finds a model: suggestions with their sizes, a search by name on Hugging Face, and the files of a
// repository by quantization. Each says whether it fits the memory budget.

import { announce, byId, make, on, run } from './dom.js';
import { isAbort, sentence, problemOf } from './error-advice.js';
import { fitsIn } from './budget.js';
import { bytes, count } from './format.js';
import { filesOf, searchModels, type Repository } from './hub.js';
import { kSuggested } from './models-to-try.js';
import type { Lookup } from './source.js';

const kPauseMs = 400;

export class ModelFinder {
  private readonly field = byId<HTMLInputElement>('find');
  private readonly list = byId('find-list');
  private asking: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `onPick` receives an address; `budget` returns the bytes that a model may take. */
  constructor(
    private readonly onPick: (url: string) => unknown,
    private readonly budget: () => number,
  ) {
    on(this.field, 'input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => run(() => this.find()), kPauseMs);
    });
    on<KeyboardEvent>(this.field, 'keydown', ({ key, isComposing }) => {
      if (key === 'Enter' && !isComposing) return this.find();
      return undefined;
    });
    for (const type of ['online', 'offline']) on(window, type, () => this.find());
    this.suggest();
  }

  /** Draws what fits again, for another budget. */
  refresh(): void {
    if (this.field.value.trim() === '') this.suggest();
  }

  /** Finds what was entered as an address. */
  look({ name = '', repository }: Lookup): Promise<void> {
    if (repository) return this.openRepository({ id: repository, downloads: 0, gated: false });
    this.field.value = name;
    return this.find();
  }

  private async find(): Promise<void> {
    clearTimeout(this.timer);
    this.asking?.abort();
    const name = this.field.value.trim();
    if (name === '') return this.suggest();
    await this.ask('Searching…', async (signal) => {
      const found = await searchModels(name, signal);
      const rows = found.map((repository) => this.repositoryRow(repository));
      const none = 'No model of this name has GGUF files. Try a part of the name.';
      this.show(found.length ? `Found on Hugging Face: ${found.length}` : none, rows);
      announce(byId('find-status').textContent ?? '');
    });
  }

  private suggest(): void {
    this.asking?.abort();
    const budget = this.budget();
    const best = [...kSuggested].reverse().find((model) => fitsIn(model.bytes, budget));
    const rows = kSuggested.map((model) =>
      this.row(
        model.name,
        `${bytes(model.bytes)} · ${this.fit(model.bytes)}`,
        () => this.onPick(model.url),
        model === best && 'Recommended for this device',
      ),
    );
    const title = navigator.onLine
      ? 'Models to try:'
      : 'You are offline. These models need a connection. Cached models work, and files too:';
    this.show(title, rows);
  }

  private async openRepository({ id, gated }: Repository): Promise<void> {
    this.asking?.abort();
    await this.ask(`Reading the files of ${id}…`, async (signal) => {
      const files = await filesOf(id, signal);
      const rows = files.map((file) =>
        this.row(
          file.quantization ?? file.path,
          [
            bytes(file.bytes),
            ...(file.parts > 1 ? [`${file.parts} parts`] : []),
            this.fit(file.bytes),
          ].join(' · '),
          () => this.onPick(file.url),
        ),
      );
      const terms = gated ? ' It may ask you to accept its terms there first.' : '';
      const title = files.length ? `Files of ${id}:${terms}` : `${id} has no GGUF file.`;
      if (files.length === 0)
        rows.push(
          this.row('Its safetensors files', 'if it has some', () => this.onPick(`hf:${id}`)),
        );
      this.show(title, [this.backRow(), ...rows]);
      this.list.querySelector('button')?.focus();
    });
  }

  /** Runs a request, of which only the last one counts. A failure is shown as a sentence. */
  private async ask(text: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    if (!navigator.onLine) return this.show('You are offline. The search needs a connection.', []);
    const { signal } = (this.asking = new AbortController());
    this.show(text, []);
    this.list.setAttribute('aria-busy', 'true');
    try {
      await work(signal);
    } catch (error) {
      if (!isAbort(error) && !signal.aborted)
        this.show(sentence(problemOf(error)), text.startsWith('S') ? [] : [this.backRow()]);
    } finally {
      if (!signal.aborted) this.list.removeAttribute('aria-busy');
    }
  }

  private fit(size: number): string {
    return fitsIn(size, this.budget()) ? 'fits in memory' : 'streams: slower';
  }

  private show(status: string, rows: HTMLElement[]): void {
    byId('find-status').textContent = status;
    this.list.replaceChildren(...rows);
  }

  private repositoryRow(repository: Repository): HTMLElement {
    const { id, downloads, gated } = repository;
    const note = `${count(downloads)} downloads${gated ? ' · asks for a sign-in' : ''}`;
    return this.row(id, note, () => this.openRepository(repository));
  }

  private backRow(): HTMLElement {
    const back = make('button', { type: 'button', class: 'quiet' }, 'Back');
    on(back, 'click', async () => {
      await this.find();
      this.field.focus();
    });
    return make('li', {}, back);
  }

  private row(
    name: string,
    note: string,
    act: () => unknown,
    badge: string | false = false,
  ): HTMLElement {
    const pick = make(
      'button',
      { type: 'button', class: 'pick' },
      make('span', { class: 'name' }, name),
      make('small', {}, note),
      badge && make('small', { class: 'badge' }, badge),
    );
    on(pick, 'click', act);
    return make('li', { class: 'row-item' }, pick);
  }
}
