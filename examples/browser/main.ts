// The page: wires the model panel, the conversation and the engine's figures together. The page's
// address may say what to load: ?model=URL&budget=BYTES&prompt=TEXT.

import type { Engine } from 'sluice-llm';

import { byId } from './dom.js';
import { EnginePanel } from './engine-panel.js';
import { ModelPanel } from './model-panel.js';
import { TalkPanel } from './talk-panel.js';

function setTheme(theme: string): void {
  document.documentElement.dataset['theme'] = theme;
}

const dark = matchMedia('(prefers-color-scheme: dark)');
setTheme(localStorage.getItem('theme') ?? (dark.matches ? 'dark' : 'light'));
dark.addEventListener('change', () => localStorage.getItem('theme') ?? setTheme(dark.matches ? 'dark' : 'light'));
byId('theme').addEventListener('click', () => {
  const next = document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark';
  localStorage.setItem('theme', next);
  setTheme(next);
});

byId('isolation').textContent = crossOriginIsolated
  ? 'Threads are on.'
  : 'This host gives it one thread (no cross-origin isolation).';

const talk = new TalkPanel();
const figures = new EnginePanel();
let engine: Engine | null = null;

const models = new ModelPanel(async (next) => {
  const old = engine;
  engine = next;
  await talk.show(next);
  figures.show(next);
  await old?.dispose();
});

const query = new URLSearchParams(location.search);
talk.preset(query.get('prompt') ?? '');
if (models.preset(query)) void models.load();
