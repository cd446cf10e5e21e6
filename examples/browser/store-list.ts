// List of cached models, with their size and how much of each is cached.

import { Engine, type CachedModel } from 'sluice-llm';

import { announce, byId, deleteButton, make, on } from './dom.js';
import { ago, bytes, fileName } from './format.js';

export class StoreList {
  /** `onPick` receives the URL of a chosen model, `onProblem` an error. */
  constructor(
    private readonly onPick: (url: string) => unknown,
    private readonly onProblem: (error: unknown) => void,
  ) {
    on(byId('evict'), 'click', () => this.evictOldest());
  }

  /** Reads the model cache again. Returns its models. */
  async refresh(): Promise<CachedModel[]> {
    const box = byId('stored');
    const models = await Engine.modelCache.list().catch(() => []); // no cache: shows nothing
    box.hidden = models.length === 0;
    const total = models.reduce((sum, model) => sum + model.bytesCached, 0);
    const free = await navigator.storage?.estimate?.().catch(() => null);
    const room = free?.quota ? `, ${bytes(Math.max(0, free.quota - (free.usage ?? 0)))} free` : '';
    byId('stored-size').textContent =
      `${bytes(total)} in ${models.length === 1 ? 'one model' : `${models.length} models`}${room}`;
    byId('stored-list').replaceChildren(...models.map((model) => this.row(model)));
    byId('evict').hidden = models.length < 2;
    return models;
  }

  private row(model: CachedModel): HTMLElement {
    const name = fileName(model.url);
    const share = model.size ? model.bytesCached / model.size : 0;
    const held = model.complete
      ? bytes(model.size)
      : `${Math.floor(100 * share)} % of ${bytes(model.size)}`;
    const bar = make('i', { class: 'share' });
    bar.style.width = `${100 * share}%`;
    const pick = make(
      'button',
      { type: 'button', class: 'pick', title: model.url },
      make('span', { class: 'name' }, name),
      make('small', {}, `${held} · used ${ago(model.used.getTime())}`),
      bar,
    );
    on(pick, 'click', () => this.onPick(model.url));
    const drop = deleteButton(`Delete ${name}`, () => this.remove(model.url, name));
    return make('li', { class: 'row-item' }, pick, drop);
  }

  private async remove(url: string, name: string): Promise<void> {
    try {
      await Engine.modelCache.delete(url);
      announce(`${name} was deleted.`);
    } catch (error) {
      this.onProblem(error);
    }
    await this.refresh();
    (byId('stored-list').querySelector('button') ?? byId('url')).focus();
  }

  private async evictOldest(): Promise<void> {
    const total = await Engine.modelCache.size();
    const [gone] = await Engine.modelCache.evictOldest(total - 1);
    announce(gone ? `${fileName(gone)} was deleted.` : 'All cached models are in use.');
    await this.refresh();
  }
}
