// Live view of the weights: one column per layer, in the order of computation, filled by the part
// that is in memory. The layer that is computing is marked.

import type { WeightUnit, MemoryPlan } from 'sluice-llm';

import { byId, make, swatch } from './dom.js';

const kLegend: [string, string][] = [
  ['stays in memory', '--pinned'],
  ['in memory for now', '--resident'],
  ['loading', '--loading'],
  ['not in memory', '--absent'],
  ['computing', '--computing'],
];

interface Column {
  name: string;
  first: number;
  end: number;
}

export class LayersView {
  private readonly picture = byId('layers');
  private columns: Column[] = [];
  private layout = '';

  constructor() {
    byId('layers-legend').replaceChildren(
      ...kLegend.map(([name, color]) => make('li', {}, swatch(color), name)),
    );
  }

  draw(units: WeightUnit[], plan: MemoryPlan | undefined): void {
    this.prepare(units.length, plan?.layerUnits ?? []);
    this.columns.forEach(({ name, first, end }, i) => {
      const part = units.slice(first, end);
      const share = (...states: string[]): number =>
        part.filter(({ state }) => states.includes(state)).length / (part.length || 1);
      const pinned = share('pinned');
      const resident = pinned + share('resident');
      const loading = resident + share('loading');
      const column = this.picture.children[i] as HTMLElement;
      const fill = [pinned, resident, loading].map((n) => `${Math.round(100 * n)}%`).join(' ');
      const computing = part.some((unit) => unit.computing);
      column.classList.toggle('computing', computing);
      if (column.dataset['fill'] === fill) return;
      column.dataset['fill'] = fill;
      const [a, b, c] = fill.split(' ');
      column.style.background =
        `linear-gradient(to top, var(--pinned) ${a}, var(--resident) ${a} ${b}, var(--loading) ` +
        `${b} ${c}, var(--absent) ${c})`;
      column.title =
        `${name}: ${Math.round(100 * resident)} % in memory, ${Math.round(100 * pinned)} % ` +
        'stays there';
    });
    const here = units.filter(({ state }) => state === 'pinned' || state === 'resident').length;
    const text = units.length ? `${Math.round((100 * here) / units.length)} % in memory` : '';
    if (byId('layers-text').textContent !== text) byId('layers-text').textContent = text;
    this.picture.setAttribute('aria-label', `Layers: ${text || 'no model'}`);
  }

  /** Creates columns for the layers, and one for output head and embedding. */
  private prepare(units: number, starts: number[]): void {
    const layout = `${units}:${starts.join()}`;
    if (layout === this.layout) return;
    this.layout = layout;
    const end = starts.at(-1) ?? 0;
    const layers = starts
      .slice(0, -1)
      .map((first, i) => ({ name: `Layer ${i + 1}`, first, end: starts[i + 1]! }));
    this.columns = [...layers, { name: 'Output and embedding', first: end, end: units }].filter(
      (column) => column.end > column.first,
    );
    byId('layers-scale').textContent =
      (layers.length > 1
        ? `One column per layer, from 1 to ${layers.length}, then the output. `
        : '') + 'The filled part is in memory.';
    this.picture.replaceChildren(
      ...this.columns.map(({ name }) =>
        make('i', { class: name.startsWith('Layer') ? '' : 'output' }),
      ),
    );
  }
}
