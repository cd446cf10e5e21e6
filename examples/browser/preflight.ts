// Preflight report, before any download: whether the model runs here, what is pinned and what
// streams, and the expected speed.

import type { MemoryPlan, ModelInfo } from 'sluice-llm';

import { make, swatch } from './dom.js';
import { bytes, count, percent, rate, seconds } from './format.js';

const kFastest = 500; // tokens per second; above that, parts that are not measured dominate

/** The engine's speed estimate; empty if there is none. */
function speedRow({ speed }: ModelInfo): [string, string][] {
  if (!speed?.tokensPerSecond) return [];
  const { tokensPerSecond, computeTokensPerSecond = Infinity, cacheBytesPerSecond } = speed;
  if (tokensPerSecond > kFastest) return [['Expected', `more than ${kFastest} tokens/s`]];
  const reading = tokensPerSecond < 0.7 * computeTokensPerSecond && cacheBytesPerSecond;
  const limit = reading ? `by reading at ${bytes(cacheBytesPerSecond)}/s` : 'by compute';
  return [['Expected', `about ${rate(tokensPerSecond)} tokens/s, limited ${limit}`]];
}

/** What the estimate assumes of a mixture's experts; empty if it is none. */
function expertsRow({ speed, experts, expertsUsed }: ModelInfo): [string, string][] {
  if (speed?.expertHitRate === undefined) return [];
  const { expertsInMemory = 1, expertHitRate } = speed;
  return [
    [
      'Experts',
      `a token uses ${expertsUsed} of ${experts} per layer; ${percent(expertsInMemory)} are in ` +
        `memory, hit rate ${percent(expertHitRate)} if chosen at random`,
    ],
  ];
}

function downloadText({ bytes: size, speed }: ModelInfo): string {
  if (speed?.downloadSeconds === 0) return `none: all ${bytes(size)} are on this device`;
  const time = speed?.downloadSeconds ? `, about ${seconds(speed.downloadSeconds)}` : '';
  return `${bytes(size)}, only once${time}`;
}

export type Part = [name: string, color: string, bytes: number];

/** Parts of the memory, for the bar and its legend. */
export function memoryParts(m: Omit<MemoryPlan, 'layerUnits'>): Part[] {
  const work = m.activations + m.scratch + m.generation + m.grammar;
  return [
    ['weights that stay', '--pinned', m.pinned + m.smallTensors + m.adapters],
    ['weights that stream through', '--resident', m.streamBuffer],
    ['context (KV cache)', '--kv', m.kv + m.nextn],
    ['tokenizer', '--tokenizer', m.tokenizer],
    ['compute buffers', '--work', work + m.other],
    ['draft model', '--draft', m.draft],
    ['left free for the tab', '--free', m.reserve],
  ];
}

/** A bar that shows the parts of `total`, and a legend. */
export function stackedBar(parts: Part[], total: number, label: string): HTMLElement {
  const bar = make('div', { class: 'stack', role: 'img', 'aria-label': label });
  for (const [name, color, size] of parts) {
    const piece = make('i', { title: `${name}: ${bytes(size)}` });
    piece.style.width = `${(100 * size) / total}%`;
    piece.style.background = `var(${color})`;
    bar.append(piece);
  }
  const legend = make(
    'ul',
    { class: 'legend' },
    ...parts
      .filter(([, , size]) => size > 0)
      .map(([name, color, size]) => make('li', {}, swatch(color), `${name} ${bytes(size)}`)),
  );
  return make('div', {}, bar, legend);
}

/** The report. `limited`: a budget is set, so the bar also shows how much of it is free. */
export function report(info: ModelInfo, limited: boolean): Node[] {
  const { plan } = info;
  const types = Object.entries(info.types)
    .sort((a, b) => b[1] - a[1])
    .map(([type]) => type)
    .slice(0, 2)
    .join(', ');
  const verdict = plan.resident
    ? `Runs here: all ${bytes(info.bytes)} stay in memory.`
    : `Runs here: ${bytes(plan.pinned)} stay in memory, ` +
      `${bytes(info.speed?.bytesReadPerToken ?? plan.bytesPerPass)} are streamed for every token.`;
  const rows: [string, string][] = [
    ...speedRow(info),
    ...expertsRow(info),
    ...(info.device ? [['Device', info.device.reason] as [string, string]] : []),
    ['Needs at least', `${bytes(plan.minimum)} with a context of ${count(plan.contextLength)}`],
    ['Download', downloadText(info)],
    [
      'Model',
      `${info.architecture}, ${count(info.parameters)} weights in ${info.layers} layers, ${types}`,
    ],
    [
      'Context',
      plan.contextLength > info.trainContextLength
        ? `${count(plan.contextLength)}, but it was trained on ` +
          `${count(info.trainContextLength)}: quality drops beyond that`
        : `${count(plan.contextLength)} of ${count(info.trainContextLength)} trained`,
    ],
    ['Made for', info.chatTemplate ? 'chat' : 'text completion (no chat template)'],
  ];
  const parts = memoryParts(plan);
  return [
    make('p', { class: 'verdict' }, make('strong', {}, info.name || 'This model'), ' ', verdict),
    stackedBar(
      parts,
      (limited && plan.budget) || plan.total || 1,
      `Planned memory: ${parts.map(([name, , size]) => `${name} ${bytes(size)}`).join(', ')}`,
    ),
    make(
      'dl',
      { class: 'rows' },
      ...rows.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]),
    ),
  ];
}
