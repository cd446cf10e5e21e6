// The model panel: preflight report, loading with pause and resume, changing the budget of a
// running engine, and the list of cached models.

import {
  Engine,
  SluiceError,
  type ModelInfo,
  type ModelSource,
  type ProgressEvent,
} from 'sluice-llm';

import { explain, isAbort, problemOf, reloadHelps } from './error-advice.js';
import { BudgetChange } from './budget-change.js';
import { BudgetSlider, deviceBudget } from './budget.js';
import { announce, byId, make, on, released, run } from './dom.js';
import { DownloadView } from './download.js';
import { bytes } from './format.js';
import { loadOptions, rememberedModel, rememberModel } from './load-options.js';
import { ModelFinder } from './model-finder.js';
import { report } from './preflight.js';
import { SourcePicker } from './source.js';
import { StoreList } from './store-list.js';

const kSettleMs = 200;
const kApplyMs = 300;

/** Source of a model for Engine.load, and its name. */
interface Choice {
  readonly source: ModelSource | null;
  readonly projector: ModelSource | undefined;
  readonly name: string;
}

export class ModelPanel {
  private readonly picker = new SourcePicker(
    () => this.chosen(),
    () => this.edited(),
  );
  private readonly budget = new BudgetSlider(
    () => this.moved(),
    () => this.released(),
  );
  private readonly finder = new ModelFinder(
    (url) => this.picker.chooseUrl(url),
    () => this.budget.value || deviceBudget(),
  );
  private readonly download = new DownloadView(
    () => this.pause(),
    () => this.load(),
  );
  private readonly store = new StoreList(
    (url) => this.picker.chooseUrl(url),
    (error) => this.problem(error),
  );
  private engine: Engine | null = null;
  private loading: AbortController | null = null;
  private checking: AbortController | null = null;
  /** Name of the running model. */
  private title = '';
  /** Name of the model of the report. */
  private reported = '';
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Source of the loaded engine; the form may have changed since. */
  private loaded: Choice | null = null;
  private readonly change = new BudgetChange(this.budget, {
    changed: (engine) => this.showPlan(engine.info),
    failed: (error, before) => this.unmoved(error, before),
  });

  /** `onEngine` receives the engine once it is loaded, and null before it is disposed of. */
  constructor(private readonly onEngine: (engine: Engine | null, name: string) => Promise<void>) {
    on(byId('model-form'), 'submit', (event) => {
      event.preventDefault();
      if (this.loading) this.loading.abort();
      else return this.load();
    });
    on(byId('check'), 'click', () => this.check());
    on(byId('unload'), 'click', () => this.unload());
    on(document, 'load-again', () => this.load(this.loaded ?? this.picker));
    for (const id of ['context', 'threads', 'device']) on(byId(id), 'change', () => this.check());
    for (const button of document.querySelectorAll<HTMLElement>('[data-sample]')) {
      on(button, 'click', () => {
        if (this.loading) return undefined;
        this.picker.setUrl(new URL(button.dataset['sample']!, location.href).href);
        return this.load();
      });
    }
    on(byId('find-open'), 'click', () => {
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
      byId<HTMLDetailsElement>('finder').open = true;
      byId('find').focus();
    });
  }

  /**
   * Fills in settings from the page's URL, which take effect after a click. Otherwise shows the
   * report of the last visit's model, without network, if it is cached.
   */
  async start(query: URLSearchParams): Promise<void> {
    const budget = Number(query.get('budget'));
    if (budget > 0) this.budget.value = budget;
    const named = query.get('model');
    if (named !== null) {
      byId<HTMLInputElement>('url').value = named;
      this.named(named);
    }
    byId<HTMLButtonElement>('load').disabled = false; // earlier, the form would reload the page
    const stored = await this.store.refresh();
    const last = named === null && rememberedModel();
    const untouched = this.picker.empty && !this.engine && !this.loading;
    if (!last || !untouched || !stored.some(({ url, complete }) => url === last && complete))
      return;
    byId<HTMLInputElement>('url').value = last;
    await this.check('only');
  }

  private async load(choice: Choice = this.picker): Promise<void> {
    if (this.loading) return;
    if (choice === this.picker && this.lookedUp()) return;
    const control = (this.loading = new AbortController());
    byId('load').textContent = 'Cancel';
    this.status('Loading…');
    let failure: unknown;
    try {
      await this.open(choice, control.signal);
    } catch (error) {
      failure = error;
      this.status(this.engine ? this.title : 'No model');
      if (isAbort(error) && this.download.share < 1) this.download.pause();
      else this.download.end();
    } finally {
      this.loading = null;
      byId('load').textContent = 'Load';
      byId('log-status').textContent = '';
    }
    if (!failure) return;
    // After loading has ended, so that the buttons beside the problem work immediately.
    this.problem(failure);
    await this.store.refresh();
    if (codeOf(failure) === 'BUDGET_TOO_SMALL' && !this.loading)
      await this.offerSmallest((this.checking = new AbortController()).signal);
  }

  private async open(choice: Choice, signal: AbortSignal): Promise<void> {
    const { source, projector, name } = choice; // read once, because the picker's can change
    if (!source) return this.ask();
    this.clear();
    this.checking?.abort();
    if (byId('preflight').hasAttribute('aria-busy')) this.noReport();
    this.download.begin('Reading the header…');
    const settings = loadOptions(this.budget.value, projector);
    // Another model that cannot be loaded leaves the running one alone.
    if (this.engine && choice !== this.loaded)
      await Engine.inspect(source, { ...settings, device: 'wasm', signal });
    await this.leave();
    this.status('Loading…');
    const engine = await Engine.load(source, {
      ...settings,
      signal,
      onProgress: (event) => this.onProgress(event),
    });
    if (signal.aborted) return await this.cancelled(engine);
    this.engine = engine;
    this.loaded = { source, projector, name };
    this.change.applied = settings.memoryBudget ?? 0;
    if (this.download.share === 1) this.download.end();
    this.showPlan(engine.info);
    this.fold(true);
    rememberModel(source);
    run(() =>
      engine.downloaded.then(
        () => this.stored(),
        (error: unknown) => this.lost(engine, error),
      ),
    );
    this.title = engine.info.name || name;
    this.status(this.title);
    await this.onEngine(engine, this.title);
    // The slider was moved meanwhile.
    if (this.budget.value !== this.change.applied) run(() => this.settled());
  }

  private async cancelled(engine: Engine): Promise<void> {
    this.download.end();
    await engine.dispose();
  }

  // --- before loading --------------------------------------------------------------------------

  /** The address is being edited: what is shown about the last one no longer holds. */
  private edited(): void {
    if (this.loading) return;
    this.checking?.abort();
    this.clear();
    if (!this.engine) this.noReport();
  }

  /** Whether the address is no file but something to find: shows what is found. */
  private lookedUp(): boolean {
    const { lookup } = this.picker;
    if (!lookup) return false;
    this.edited();
    byId<HTMLDetailsElement>('finder').open = true;
    byId('finder').scrollIntoView({ block: 'nearest' });
    run(() => this.finder.look(lookup));
    return true;
  }

  private noReport(): void {
    byId('plan').hidden = true;
    byId('preflight').replaceChildren();
    byId('preflight').removeAttribute('aria-busy');
  }

  private async chosen(): Promise<void> {
    await released(); // from the press that ended the edit, perhaps on Load
    if (this.loading) return; // loading continues
    this.download.end();
    byId<HTMLDetailsElement>('source').open = true; // with the button that loads it
    await this.check();
  }

  /** Warns that a link names a model. Nothing is downloaded from there without a click. */
  private named(address: string): void {
    byId<HTMLDetailsElement>('finder').open = false;
    byId('warning').hidden = false;
    byId('warning').textContent =
      `The link that you followed names ${address}. Nothing is downloaded before you ` +
      'press “Will it run?”, which reads the header, or “Load”.';
    document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
  }

  /** Reads only the header and shows the report for the chosen budget. */
  private async check(cache: 'default' | 'only' = 'default'): Promise<void> {
    if (this.loading || this.lookedUp()) return;
    this.checking?.abort();
    const control = (this.checking = new AbortController());
    const box = byId('preflight');
    this.clear();
    try {
      const { source } = this.picker;
      if (!source) return this.ask();
      byId('plan').hidden = false;
      byId<HTMLDetailsElement>('plan').open = true;
      box.setAttribute('aria-busy', 'true');
      if (!box.hasChildNodes() || this.reported !== this.picker.name)
        box.replaceChildren(make('p', { class: 'muted' }, 'Reading the header…'));
      const settings = loadOptions(this.budget.value, this.picker.projector);
      // Only 'auto' measures the GPU.
      const device = settings.device === 'auto' ? 'auto' : 'wasm';
      const info = await Engine.inspect(source, {
        ...settings,
        device,
        cache,
        signal: control.signal,
      });
      if (control.signal.aborted) return;
      this.reported = this.picker.name;
      this.showPlan(info);
      announce(box.querySelector('.verdict')?.textContent ?? '');
      await released();
      byId('plan').scrollIntoView({ block: 'nearest' });
    } catch (error) {
      if (control.signal.aborted) return;
      this.noReport();
      this.problem(error);
      if (codeOf(error) === 'BUDGET_TOO_SMALL') await this.offerSmallest(control.signal);
    } finally {
      if (this.checking === control) this.checking = null;
      if (!this.checking) box.removeAttribute('aria-busy');
    }
  }

  /** Offers a button that sets the smallest budget, and starts the slider's scale there. */
  private async offerSmallest(signal: AbortSignal): Promise<void> {
    const info = await Engine.inspect(this.picker.source!, {
      ...loadOptions(this.budget.value, this.picker.projector),
      memoryBudget: undefined,
      device: 'wasm',
      signal,
    }).catch(() => null);
    if (!info || signal.aborted) return;
    const least = Math.ceil(info.plan.minimum / 65536 + 1) * 65536;
    const use = make('button', { type: 'button', class: 'quiet' }, `Use ${bytes(least)}`);
    on(use, 'click', () => {
      this.budget.value = least;
      return this.engine ? this.settled() : this.check();
    });
    byId('problem').append(use);
    this.scale(info);
  }

  private showPlan(info: ModelInfo): void {
    byId('plan').hidden = false;
    byId('preflight').replaceChildren(...report(info, this.budget.value > 0));
    this.scale(info);
  }

  private scale(info: ModelInfo): void {
    this.budget.scale(info);
    this.finder.refresh();
  }

  private moved(): void {
    this.finder.refresh();
    clearTimeout(this.timer);
    if (!this.engine && !this.picker.empty)
      this.timer = setTimeout(() => run(() => this.check()), kSettleMs);
  }

  // --- after loading ---------------------------------------------------------------------------

  /** The slider was released. Further keys may follow. */
  private released(): void {
    if (!this.engine) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => run(() => this.settled()), kApplyMs);
  }

  /** Changes the budget of the running engine to that of the slider. */
  private async settled(): Promise<void> {
    const { engine } = this;
    if (!engine || this.change.runs(engine)) return;
    this.clear();
    await this.change.apply(engine);
  }

  /** The change failed. If the engine is unusable, offers to load it with the previous budget. */
  private unmoved(error: unknown, before: number): void {
    this.problem(error);
    if (!reloadHelps(problemOf(error))) return;
    const again = make(
      'button',
      { type: 'button', class: 'quiet' },
      before ? `Load it again with ${bytes(before)}` : 'Load it again',
    );
    on(again, 'click', () => {
      this.budget.value = before;
      return this.load(this.loaded ?? this.picker);
    });
    byId('problem').append(again);
  }

  private async leave(): Promise<void> {
    const { engine } = this;
    this.engine = null;
    this.change.abandon();
    this.fold(false);
    this.status('No model');
    await this.onEngine(null, '');
    await engine?.dispose();
  }

  /** Folds the model choice and the report once a model is loaded. */
  private fold(loaded: boolean): void {
    byId('unload').hidden = !loaded;
    for (const id of ['finder', 'source', 'plan']) byId<HTMLDetailsElement>(id).open = !loaded;
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

  // --- messages --------------------------------------------------------------------------------

  private onProgress(event: ProgressEvent): void {
    document.dispatchEvent(new CustomEvent('engine-progress', { detail: event }));
    if (event.phase === 'download' && event.bytesLoaded < event.bytesTotal)
      this.download.update(event);
    if (this.loading && this.download.percent) this.status(`Loading… ${this.download.percent}`);
    if (event.phase === 'cached') run(() => this.stored());
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
    box.scrollIntoView({ block: 'nearest' });
  }

  /** The state of the model in the head of the page. */
  private status(text: string): void {
    byId('model-status').textContent = text;
    byId('log-status').textContent = this.loading ? text : '';
  }

  private ask(): void {
    this.problem(new Error('Choose a model above, enter an address, or choose a file.'));
    byId('url').focus();
  }

  private clear(): void {
    for (const id of ['problem', 'warning']) byId(id).hidden = true;
  }
}

function codeOf(error: unknown): string {
  return error instanceof SluiceError ? error.code : '';
}
