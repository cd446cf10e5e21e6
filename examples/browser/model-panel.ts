// From a choice to a loaded engine: the report before any download, loading with pause and resume, the
// budget of the engine that runs, and the store.

import { Engine, SluiceError, type ModelInfo, type ProgressEvent } from 'sluice-llm';

import { explain, isAbort } from './advice.js';
import { BudgetSlider } from './budget.js';
import { announce, byId, make } from './dom.js';
import { DownloadView } from './download.js';
import { bytes } from './format.js';
import { report } from './preflight.js';
import { SourcePicker } from './source.js';
import { StoreList } from './store-list.js';

const kLastModel = 'last-model';
const kSettleMs = 200;

export class ModelPanel {
  private readonly picker = new SourcePicker(() => this.chosen());
  private readonly budget = new BudgetSlider(() => this.moved(), () => void this.settled());
  private readonly download = new DownloadView(() => void this.pause(), () => void this.load());
  private readonly store = new StoreList((url) => this.picker.chooseUrl(url), (error) => this.problem(error));
  private engine: Engine | null = null;
  private loading: AbortController | null = null;
  private checking: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** Called with the engine when one has been loaded, and with null before the old one goes. */
  constructor(private readonly onEngine: (engine: Engine | null, name: string) => Promise<void>) {
    byId('model-form').addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.loading) this.loading.abort();
      else void this.load();
    });
    byId('check').addEventListener('click', () => void this.check());
    byId('unload').addEventListener('click', () => void this.unload());
    for (const id of ['context', 'threads']) byId(id).addEventListener('change', () => void this.check());
    for (const button of document.querySelectorAll<HTMLElement>('[data-sample]')) {
      button.addEventListener('click', () => {
        document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
        this.picker.chooseUrl(new URL(button.dataset['sample']!, location.href).href);
      });
    }
  }

  /** Settings from the page's address, or the model of the last visit; true when one is to be loaded. */
  async start(query: URLSearchParams): Promise<boolean> {
    const budget = Number(query.get('budget'));
    if (budget > 0) this.budget.value = budget;
    const named = query.get('model');
    const stored = await this.store.refresh();
    const last = named ?? remembered();
    if (!last) return false;
    const url = last.startsWith('hf:') ? last : new URL(last, location.href).href;
    if (!named && !stored.some((model) => model.url === url && model.complete)) return false;
    byId<HTMLInputElement>('url').value = url;
    if (!named) void this.check();
    return named !== null;
  }

  async load(): Promise<void> {
    const { source, name } = this.picker;
    if (!source) return this.ask();
    this.clear();
    this.checking?.abort();
    await this.leave();
    const control = (this.loading = new AbortController());
    byId('load').textContent = 'Cancel';
    this.download.begin('Reading the header…');
    try {
      const engine = (this.engine = await Engine.load(source, {
        ...this.settings(), signal: control.signal, onProgress: (event) => this.onProgress(event),
      }));
      if (this.download.share === 1) this.download.end();
      this.showPlan(engine.info);
      this.fold(true);
      remember(source);
      await this.onEngine(engine, engine.info.name || name);
      engine.downloaded.then(() => this.stored(), (error: unknown) => this.lost(engine, error));
    } catch (error) {
      this.download.end();
      this.problem(error);
      if (codeOf(error) === 'BUDGET_TOO_SMALL') await this.offerSmallest(control.signal);
      await this.store.refresh();
    } finally {
      this.loading = null;
      byId('load').textContent = 'Load';
    }
  }

  // --- before ----------------------------------------------------------------------------------

  private chosen(): void {
    this.download.end();
    void this.check();
  }

  /** Reads the header alone and shows the report for the budget chosen. */
  private async check(): Promise<void> {
    const { source } = this.picker;
    if (!source) return this.ask();
    if (this.loading) return;
    this.checking?.abort();
    const control = (this.checking = new AbortController());
    const box = byId('preflight');
    this.clear();
    byId('plan').hidden = false;
    box.setAttribute('aria-busy', 'true');
    if (!box.hasChildNodes()) box.replaceChildren(make('p', { class: 'muted' }, 'Reading the header…'));
    try {
      const info = await Engine.inspect(source, { ...this.settings(), signal: control.signal });
      if (control.signal.aborted) return;
      this.showPlan(info);
      announce(box.querySelector('.verdict')?.textContent ?? '');
    } catch (error) {
      if (control.signal.aborted) return;
      byId('plan').hidden = true;
      box.replaceChildren();
      this.problem(error);
      if (codeOf(error) === 'BUDGET_TOO_SMALL') await this.offerSmallest(control.signal);
    } finally {
      if (this.checking === control) this.checking = null;
      if (!this.checking) box.removeAttribute('aria-busy');
    }
  }

  /** The slider's scale begins at what works; one press goes there. */
  private async offerSmallest(signal: AbortSignal): Promise<void> {
    const info = await Engine.inspect(this.picker.source!, { ...this.settings(), memoryBudget: undefined, signal }).catch(() => null);
    if (!info) return;
    const least = Math.ceil(info.plan.minimum / 65536 + 1) * 65536;
    const use = make('button', { type: 'button', class: 'quiet' }, `Use ${bytes(least)}`);
    use.addEventListener('click', () => {
      this.budget.value = least;
      void this.settled();
      if (!this.engine) void this.check();
    });
    byId('problem').append(use);
    this.budget.scale(info);
  }

  private showPlan(info: ModelInfo): void {
    byId('plan').hidden = false;
    byId('preflight').replaceChildren(...report(info, this.budget.value > 0));
    this.budget.scale(info);
  }

  private settings(): { memoryBudget?: number; contextLength?: number; threads?: number } {
    return {
      memoryBudget: this.budget.value || undefined,
      contextLength: Number(byId<HTMLSelectElement>('context').value) || undefined,
      threads: Number(byId<HTMLSelectElement>('threads').value) || undefined,
    };
  }

  private moved(): void {
    clearTimeout(this.timer);
    if (!this.engine && this.picker.source) this.timer = setTimeout(() => void this.check(), kSettleMs);
  }

  // --- after -----------------------------------------------------------------------------------

  /** The slider was let go: an engine that runs moves to the new budget. */
  private async settled(): Promise<void> {
    const { engine } = this;
    if (!engine) return;
    this.clear();
    this.budget.enabled = false;
    byId('budget-value').textContent = 'moving…';
    try {
      await engine.setMemoryBudget(this.budget.value);
      this.showPlan(engine.info);
      announce(`The budget is now ${bytes(engine.info.plan.budget)}.`);
    } catch (error) {
      this.problem(error);
    }
    this.budget.value = engine === this.engine ? engine.info.plan.budget : this.budget.value;
    this.budget.enabled = true;
    byId('budget').focus();
  }

  private async leave(): Promise<void> {
    const { engine } = this;
    this.engine = null;
    this.fold(false);
    await this.onEngine(null, '');
    await engine?.dispose();
  }

  /** Once a model runs, what chose it makes room for what it does. */
  private fold(loaded: boolean): void {
    byId('unload').hidden = !loaded;
    byId<HTMLDetailsElement>('source').open = byId<HTMLDetailsElement>('plan').open = !loaded;
  }

  private async unload(): Promise<void> {
    await this.leave();
    this.download.end();
    await this.store.refresh();
    byId('load').focus();
  }

  private async pause(): Promise<void> {
    if (this.loading) return this.loading.abort();
    await this.leave();
    this.download.pause();
    await this.store.refresh();
    byId('pause').focus();
  }

  private async stored(): Promise<void> {
    this.download.end();
    await this.store.refresh();
  }

  private lost(engine: Engine, error: unknown): void {
    if (this.engine !== engine) return; // unloaded
    this.download.pause();
    this.problem(error);
  }

  // --- what is said ----------------------------------------------------------------------------

  private onProgress(event: ProgressEvent): void {
    if (event.phase === 'download' && event.bytesLoaded < event.bytesTotal) this.download.update(event);
    if (event.phase === 'stored') void this.stored();
    if (event.phase === 'warning') {
      byId('warning').hidden = false;
      byId('warning').textContent = event.message;
    }
  }

  private problem(error: unknown): void {
    if (isAbort(error)) return;
    const box = byId('problem');
    box.hidden = false;
    box.replaceChildren(explain(error));
    document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
  }

  private ask(): void {
    this.problem(new Error('Enter the address of a GGUF file, or choose one.'));
    byId('url').focus();
  }

  private clear(): void {
    for (const id of ['problem', 'warning']) byId(id).hidden = true;
  }
}

function codeOf(error: unknown): string {
  return error instanceof SluiceError ? error.code : '';
}

function remembered(): string | null {
  try {
    return localStorage.getItem(kLastModel);
  } catch {
    return null;
  }
}

function remember(source: unknown): void {
  try {
    if (typeof source === 'string') localStorage.setItem(kLastModel, source);
    else localStorage.removeItem(kLastModel); // a file is gone with the page
  } catch {
    // for this visit only
  }
}
