// The live picture of the weights: one cell a unit, in the order in which a pass uses them.

import type { LayerState, UnitState } from 'sluice-llm';

import { byId, cssColor, make } from './dom.js';

const kColors: Record<UnitState, string> = {
  pinned: '--pinned',
  resident: '--resident',
  loading: '--loading',
  absent: '--absent',
  'pinned-absent': '--absent',
};
const kLegend: [string, string, (layer: LayerState) => boolean][] = [
  ['pinned', '--pinned', (l) => l.state === 'pinned'],
  ['streamed in', '--resident', (l) => l.state === 'resident'],
  ['on its way', '--loading', (l) => l.state === 'loading'],
  ['not in memory', '--absent', (l) => l.state.endsWith('absent')],
  ['computing', '--computing', (l) => l.computing],
];

export class UnitsView {
  private readonly canvas = byId<HTMLCanvasElement>('units');
  private readonly legend = byId('units-legend');
  private readonly text = byId('units-text');
  private last = '';

  constructor() {
    this.draw([]);
    new ResizeObserver(() => (this.last = '')).observe(this.canvas);
  }

  draw(layers: LayerState[]): void {
    const key = layers.map((l) => `${l.state}${l.computing}`).join();
    const theme = document.documentElement.dataset['theme'] ?? '';
    if (key + theme === this.last) return;
    this.last = key + theme;
    this.paint(layers);
    const counts = kLegend.map(([, , matches]) => layers.filter(matches).length);
    this.legend.replaceChildren(
      ...kLegend.map(([name, color], i) =>
        make('li', {}, swatch(color), layers.length && i < 4 ? `${name} ${counts[i]}` : name),
      ),
    );
    const ready = counts[0]! + counts[1]!;
    this.text.textContent = layers.length ? `${ready} of ${layers.length} parts in memory` : '';
    this.canvas.setAttribute(
      'aria-label',
      `Weights: ${kLegend.map(([name], i) => `${counts[i]} ${name}`).join(', ')}`,
    );
  }

  private paint(layers: LayerState[]): void {
    const { canvas } = this;
    const width = canvas.clientWidth || 260;
    const n = Math.max(1, layers.length);
    const most = 16;
    // As large as a picture of at most 200 pixels' height allows.
    let cell = most;
    while (cell > 3 && Math.ceil(n / Math.floor(width / cell)) * cell > 200) cell--;
    const columns = Math.max(1, Math.floor(width / cell));
    const height = layers.length ? Math.ceil(n / columns) * cell : 0;
    const scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d')!;
    context.scale(scale, scale);
    const gap = cell > 6 ? 2 : 1;
    layers.forEach((layer, i) => {
      const x = (i % columns) * cell;
      const y = Math.floor(i / columns) * cell;
      context.fillStyle = cssColor(layer.computing ? '--computing' : kColors[layer.state]);
      context.fillRect(x, y, cell - gap, cell - gap);
    });
  }
}

export function swatch(color: string): HTMLElement {
  const mark = make('i');
  mark.style.background = `var(${color})`;
  return mark;
}
