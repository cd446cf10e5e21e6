// Choosing a model, asking whether it will run here, loading it, and what the store keeps.

import { Engine, SluiceError, type ModelInfo, type ModelSource, type ProgressEvent } from 'sluice-llm';

import { byId, make } from './dom.js';
import { bytes, count, rate, seconds } from './format.js';

const kBudgetSteps = [
  2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 3584,
].map((mib) => mib << 20 >>> 0);

// For the forecast, before anything has been measured here.
const kStoreBytesPerSecond = 0.8e9;
const kMacsPerSecondAndThread = 8e9;

export class ModelPanel {
  private readonly form = byId<HTMLFormElement>('model-form');
  private readonly url = byId<HTMLInputElement>('url');
  private readonly file = byId<HTMLInputElement>('file');
  private readonly budget = byId<HTMLInputElement>('budget');
  private readonly progress = byId('progress');
  private files: File[] = [];
  private exactBudget: number | null = null;
  private control: AbortController | null = null;

  /** Called with the engine when one has been loaded, and with null before the old one goes. */
  constructor(private readonly onEngine: (engine: Engine | null) => Promise<void>) {
    this.budget.max = String(kBudgetSteps.length); // the last step: no limit
    this.budget.value = this.budget.max;
    this.budget.addEventListener('input', () => ((this.exactBudget = null), this.showBudget()));
    this.showBudget();
    this.file.addEventListener('change', () => this.choose([...(this.file.files ?? [])]));
    this.url.addEventListener('input', () => this.choose([]));
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.control) this.control.abort();
      else void this.load();
    });
    byId('inspect').addEventListener('click', () => void this.inspect());
    byId('unload').addEventListener('click', () => void this.unload());
    this.acceptDrops();
    void this.refreshStore();
  }

  /** Settings from the page's address; true when a model was named. */
  preset(query: URLSearchParams): boolean {
    const budget = Number(query.get('budget'));
    if (budget > 0) {
      this.exactBudget = budget;
      this.showBudget();
    }
    const model = query.get('model');
    if (model) this.url.value = new URL(model, location.href).href;
    return model !== null;
  }

  async load(): Promise<void> {
    const source = this.source();
    if (!source) return this.fail('Enter an address or choose a file.');
    this.clearProblem();
    await this.onEngine(null);
    this.control = new AbortController();
    byId('load').textContent = 'Cancel';
    this.showProgress('Reading the header…');
    try {
      const engine = await Engine.load(source, {
        ...this.settings(),
        signal: this.control.signal,
        onProgress: (event) => this.onProgress(event),
      });
      byId('unload').hidden = false;
      if (!this.downloading) this.progress.hidden = true;
      this.showInfo(engine.info);
      await this.onEngine(engine);
      engine.downloaded.then(
        () => this.refreshStore(),
        () => {},
      );
    } catch (error) {
      this.progress.hidden = true;
      this.report(error);
    } finally {
      this.control = null;
      byId('load').textContent = 'Load';
    }
  }

  private downloading = false;

  private async unload(): Promise<void> {
    byId('unload').hidden = true;
    this.progress.hidden = true;
    this.downloading = false;
    await this.onEngine(null);
    await this.refreshStore();
  }

  private async inspect(): Promise<void> {
    const source = this.source();
    if (!source) return this.fail('Enter an address or choose a file.');
    this.clearProblem();
    const report = byId('preflight');
    report.hidden = false;
    report.textContent = 'Reading the header…';
    try {
      this.showInfo(await Engine.inspect(source, this.settings()));
    } catch (error) {
      report.hidden = true;
      this.report(error);
    }
  }

  private source(): ModelSource | null {
    if (this.files.length > 0) return this.files.length === 1 ? this.files[0]! : this.files;
    return this.url.value.trim() || null;
  }

  private settings(): { memoryBudget?: number; contextLength?: number; threads?: number } {
    return {
      memoryBudget: this.budgetBytes() || undefined,
      contextLength: Number(byId<HTMLSelectElement>('context').value) || undefined,
      threads: Number(byId<HTMLSelectElement>('threads').value) || undefined,
    };
  }

  private budgetBytes(): number {
    return this.exactBudget ?? kBudgetSteps[Number(this.budget.value)] ?? 0;
  }

  private showBudget(): void {
    const n = this.budgetBytes();
    const text = n ? bytes(n) : 'automatic';
    byId('budget-value').textContent = text;
    this.budget.setAttribute('aria-valuetext', text);
    if (this.exactBudget) {
      const at = kBudgetSteps.findIndex((step) => step >= n);
      this.budget.value = String(at < 0 ? kBudgetSteps.length - 1 : at);
    }
  }

  private choose(files: File[]): void {
    this.files = files.sort((a, b) => a.name.localeCompare(b.name));
    byId('file-name').textContent = files.map((f) => `${f.name} (${bytes(f.size)})`).join(', ');
    if (files.length > 0) this.url.value = '';
    else this.file.value = '';
  }

  private acceptDrops(): void {
    document.addEventListener('dragover', (event) => event.preventDefault());
    document.addEventListener('drop', (event) => {
      event.preventDefault();
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.length > 0) this.choose(files);
    });
  }

  // --- what is said --------------------------------------------------------------------------

  private onProgress(event: ProgressEvent): void {
    const bar = byId<HTMLProgressElement>('progress-bar');
    switch (event.phase) {
      case 'download': {
        this.downloading = event.bytesLoaded < event.bytesTotal;
        bar.value = event.bytesLoaded / event.bytesTotal;
        const left = event.secondsLeft ? `, ${seconds(event.secondsLeft)} left` : '';
        this.showProgress(
          `${bytes(event.bytesLoaded)} of ${bytes(event.bytesTotal)} stored, ${bytes(event.bytesPerSecond)}/s${left}`,
        );
        break;
      }
      case 'stored':
        this.downloading = false;
        this.progress.hidden = true;
        break;
      case 'warning':
        this.fail(event.message);
        break;
    }
  }

  private showProgress(text: string): void {
    this.progress.hidden = false;
    byId('progress-text').textContent = text;
  }

  private showInfo(info: ModelInfo): void {
    const { plan } = info;
    const threads = plan.threads || 1;
    const compute = info.macsPerToken / (kMacsPerSecondAndThread * threads);
    const reading = plan.bytesPerPass / kStoreBytesPerSecond;
    const perSecond = 1 / Math.max(compute, reading, 1e-4);
    const verdict = plan.resident
      ? 'Yes: it stays in memory as a whole.'
      : `Yes: ${bytes(plan.pinned)} stay in memory, ${bytes(plan.bytesPerPass)} stream by for every token.`;
    const types = Object.entries(info.types).sort((a, b) => b[1] - a[1]);
    const lines = [
      `${info.architecture}, ${count(info.parameters)} parameters, ${info.layers} layers, ${bytes(info.bytes)} (${types.map(([t]) => t).slice(0, 3).join(', ')})`,
      `needs at least ${bytes(plan.minimum)} for ${count(plan.contextLength)} tokens of context (trained on ${count(info.trainedContext)})`,
      `about ${rate(perSecond)} tokens/s expected, limited by ${reading > compute ? 'reading the store' : 'arithmetic'}`,
      info.chatTemplate ? 'made for chat' : 'continues text (no chat template)',
    ];
    const report = byId('preflight');
    report.hidden = false;
    report.replaceChildren(
      make('strong', {}, info.name || 'This model'),
      verdict,
      make('ul', {}, ...lines.map((line) => make('li', {}, line))),
    );
  }

  private report(error: unknown): void {
    if ((error as Error).name === 'AbortError') return;
    const code = error instanceof SluiceError ? ` (${error.code})` : '';
    this.fail(`${(error as Error).message}${code}`);
  }

  private fail(message: string): void {
    byId('problem').hidden = false;
    byId('problem').textContent = message;
  }

  private clearProblem(): void {
    byId('problem').hidden = true;
    byId('preflight').hidden = true;
  }

  // --- the store -----------------------------------------------------------------------------

  private async refreshStore(): Promise<void> {
    const box = byId('stored');
    try {
      const models = await Engine.store.list();
      box.hidden = models.length === 0;
      const total = models.reduce((sum, model) => sum + model.bytesStored, 0);
      byId('stored-size').textContent = `(${models.length}, ${bytes(total)})`;
      byId('stored-list').replaceChildren(
        ...models.map((model) => {
          const name = decodeURIComponent(model.url.replace(/[?#].*/, '').split('/').pop() ?? model.url);
          const part = model.complete ? bytes(model.size) : `${bytes(model.bytesStored)} of ${bytes(model.size)}`;
          const pick = make('button', { type: 'button', class: 'pick quiet', title: model.url }, name);
          pick.addEventListener('click', () => {
            this.choose([]);
            this.url.value = model.url;
          });
          const drop = make('button', { type: 'button', class: 'quiet', 'aria-label': `Delete ${name}` }, 'Delete');
          drop.addEventListener('click', async () => {
            await Engine.store.delete(model.url).catch((error: unknown) => this.report(error));
            await this.refreshStore();
          });
          return make('li', {}, pick, make('span', { class: 'muted' }, part), drop);
        }),
      );
    } catch {
      box.hidden = true; // no store here
    }
  }
}
