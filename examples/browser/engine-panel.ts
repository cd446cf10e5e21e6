// The engine panel: rates, memory use and layers, live. Reads the engine's snapshots ten times per
// second, while the page is visible.

import type { Engine } from 'sluice-llm';

import { byId, make } from './dom.js';
import { ExpertMeter } from './expert-meter.js';
import { bytes, rate } from './format.js';
import { LayersView } from './layers-view.js';
import { memoryParts, stackedBar } from './preflight.js';

/** Rate of a counter in bytes per second, over the last 1.5 seconds. */
class Meter {
  private seen: [time: number, count: number][] = [];

  rate(count: number): number {
    const now = performance.now();
    const last = this.seen.at(-1);
    if (last && count < last[1]) this.seen = []; // another engine started at 0
    this.seen.push([now, count]);
    while (this.seen.length > 2 && now - this.seen[0]![0] > 1500) this.seen.shift();
    const [time, first] = this.seen[0]!;
    return now > time ? ((count - first) * 1000) / (now - time) : 0;
  }
}

export class EnginePanel {
  private readonly layers = new LayersView();
  private readonly figures = byId('figures');
  private readonly network = new Meter();
  private readonly store = new Meter();
  private readonly experts = new ExpertMeter();
  private engine: Engine | null = null;
  private memory = '';

  constructor() {
    this.update();
    setInterval(() => document.hidden || this.update(), 100);
  }

  show(engine: Engine | null): void {
    this.engine = engine;
    this.update();
  }

  private update(): void {
    const { engine } = this;
    byId('engine-idle').hidden = engine !== null;
    byId('engine-live').hidden = engine === null;
    if (!engine) return;
    const stats = engine.stats();
    const memory = engine.memory();
    const reading =
      stats.promptMs > 0 ? ((stats.promptTokens - stats.cachedTokens) * 1000) / stats.promptMs : 0;
    this.setFigures([
      [
        'Speed',
        stats.tokensPerSecond ? `${rate(stats.tokensPerSecond)} tokens/s` : '–',
        `${stats.generatedTokens} tokens`,
      ],
      [
        'Prompt speed',
        reading ? `${rate(reading)} tokens/s` : '–',
        `${stats.promptTokens} tokens, ${stats.cachedTokens} cached`,
      ],
      [
        'Network',
        `${bytes(this.network.rate(stats.bytesFetched))}/s`,
        `${bytes(stats.bytesFetched)} in total`,
      ],
      [
        'Cache',
        `${bytes(this.store.rate(stats.bytesFromCache))}/s`,
        `${bytes(stats.bytesFromCache)} in total`,
      ],
      // Of the last response, whichever session it belongs to.
      [
        'Context',
        `${stats.promptTokens + stats.generatedTokens}`,
        `of ${engine.info.plan.contextLength} tokens`,
      ],
      ['Threads', String(stats.threads)],
      ...(engine.info.experts > 0
        ? [['Experts', ...this.experts.read(stats.engine)] as [string, string, string]]
        : []),
      stats.device === 'webgpu'
        ? ['Device', stats.gpuName!, `${bytes(memory.gpu)} on the GPU`]
        : ['Device', 'CPU'],
    ]);
    this.setMemory(memory);
    this.layers.draw(engine.weightUnits(), engine.info.plan);
  }

  private setFigures(figures: [string, string, string?][]): void {
    if (this.figures.children.length !== figures.length) {
      this.figures.replaceChildren(
        ...figures.map(([name]) =>
          make('div', {}, make('dt', {}, name), make('dd'), make('dd', { class: 'more' })),
        ),
      );
    }
    figures.forEach(([, ...values], i) => {
      values.forEach((value, j) => {
        const dd = this.figures.children[i]!.children[j + 1]!;
        if (dd.textContent !== value) dd.textContent = value ?? '';
      });
    });
  }

  private setMemory(memory: ReturnType<Engine['memory']>): void {
    const limit = memory.budget ? ` of ${bytes(memory.budget)}` : '';
    const text = `${bytes(memory.total)}${limit} planned, ${bytes(memory.heap)} in use`;
    const parts = memoryParts(memory);
    const key = `${text} ${parts.map(([, , size]) => size).join()}`;
    if (key === this.memory) return;
    this.memory = key;
    byId('memory-text').textContent = text;
    byId('memory-bar').replaceChildren(
      stackedBar(parts, memory.budget || memory.total || 1, `Memory: ${text}`),
    );
  }
}
