// The engine's figures: rates, memory against the budget, traffic. Reads snapshots that are there
// anyway, four times a second, and only while the page is visible.

import type { Engine } from 'sluice-llm';

import { byId, make } from './dom.js';
import { bytes, rate } from './format.js';
import { swatch, UnitsView } from './units-view.js';

const kParts: [string, string, (m: ReturnType<Engine['memory']>) => number][] = [
  ['pinned weights', '--c1', (m) => m.pinned],
  ['stream buffer', '--c2', (m) => m.ring],
  ['KV cache', '--c3', (m) => m.kv],
  ['tokenizer', '--c4', (m) => m.tokenizer],
  ['work space', '--c5', (m) => m.activations + m.scratch + m.other],
];

export class EnginePanel {
  private readonly units = new UnitsView();
  private readonly figures = byId('figures');
  private engine: Engine | null = null;

  constructor() {
    this.update();
    setInterval(() => document.hidden || this.update(), 100);
  }

  show(engine: Engine | null): void {
    this.engine = engine;
    this.update();
  }

  private update(): void {
    if (!this.engine) {
      this.setFigures([['Speed', '–'], ['First token', '–'], ['Prompt', '–'], ['Network', '–']]);
      this.setMemory(0, [], 0);
      this.units.draw([]);
      return;
    }
    const stats = this.engine.stats();
    const memory = this.engine.memory();
    const reading = stats.promptMs > 0 ? ((stats.promptTokens - stats.cachedTokens) * 1000) / stats.promptMs : 0;
    this.setFigures([
      ['Speed', stats.tokensPerSecond ? `${rate(stats.tokensPerSecond)} tokens/s` : '–'],
      ['Prompt', reading ? `${rate(reading)} tokens/s` : '–'],
      ['First token', stats.timeToFirstTokenMs ? `${stats.timeToFirstTokenMs.toFixed(0)} ms` : '–'],
      ['Context', `${stats.position} of ${this.engine.info.plan?.contextLength ?? '?'}`],
      ['From network', bytes(stats.bytesFetched)],
      ['From store', bytes(stats.bytesFromStore)],
      ['Threads', String(stats.threads)],
      ['Kernels', stats.kernels],
    ]);
    this.setMemory(memory.budget, kParts.map(([, , part]) => part(memory) || 0), memory.heap);
    this.units.draw(this.engine.layers());
  }

  private setFigures(figures: [string, string][]): void {
    const same = this.figures.children.length === figures.length;
    if (!same) {
      this.figures.replaceChildren(
        ...figures.map(([name]) => make('div', {}, make('dt', {}, name), make('dd'))),
      );
    }
    figures.forEach(([name, value], i) => {
      const [dt, dd] = this.figures.children[i]!.children;
      if (dt!.textContent !== name) dt!.textContent = name;
      if (dd!.textContent !== value) dd!.textContent = value;
    });
  }

  private setMemory(budget: number, parts: number[], heap: number): void {
    const bar = byId('memory-bar');
    const total = budget || parts.reduce((a, b) => a + b, 0) || 1;
    const label = budget ? `${bytes(heap)} of ${bytes(budget)}` : heap ? bytes(heap) : '';
    if (byId('memory-text').textContent === label && bar.childElementCount === parts.length) return;
    byId('memory-text').textContent = label;
    bar.setAttribute('aria-label', label ? `Memory: ${label}` : 'Memory: no engine');
    bar.replaceChildren(
      ...parts.map((part, i) => {
        const piece = make('i', { title: `${kParts[i]![0]}: ${bytes(part)}` });
        piece.style.width = `${(100 * part) / total}%`;
        piece.style.background = `var(${kParts[i]![1]})`;
        return piece;
      }),
    );
    byId('memory-legend').replaceChildren(
      ...parts.map((part, i) =>
        make('li', {}, swatch(kParts[i]![1]), `${kParts[i]![0]} ${bytes(part)}`),
      ),
    );
  }
}
