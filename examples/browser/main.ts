// The page: wires the conversations, the model panel and the engine's figures together. The page's
// address may say what to load: ?model=URL&budget=BYTES&prompt=TEXT.

import { announce, byId } from './dom.js';
import { EnginePanel } from './engine-panel.js';
import { History } from './history.js';
import { ModelPanel } from './model-panel.js';
import { restoreSampling } from './sampling.js';
import { TalkList } from './talk-list.js';
import { TalkPanel } from './talk-panel.js';

/** On a phone one pane is shown at a time. */
function showPane(name: string): void {
  document.body.dataset['pane'] = name;
  for (const button of document.querySelectorAll<HTMLElement>('.panes button')) {
    button.setAttribute('aria-current', String(button.dataset['pane'] === name));
  }
}
for (const button of document.querySelectorAll<HTMLElement>('.panes button')) {
  button.addEventListener('click', () => showPane(button.dataset['pane']!));
}
document.addEventListener('show-pane', (event) => showPane((event as CustomEvent<string>).detail));

byId('isolation').textContent = crossOriginIsolated
  ? 'Threads are on.'
  : 'This host gives it one thread (no cross-origin isolation).';

const history = new History();
const talk = new TalkPanel((changed) => list.changed(changed));
const list: TalkList = new TalkList(history, (chosen) => talk.open(chosen), (gone) => talk.forget(gone));
const figures = new EnginePanel();

const models = new ModelPanel(async (engine, name) => {
  await talk.show(engine);
  figures.show(engine);
  byId('model-status').textContent = engine ? name : 'No model';
  document.body.classList.toggle('loaded', engine !== null);
  if (!engine) return;
  announce(`${name} is ready.`);
  showPane('talk');
  byId('prompt').focus({ preventScroll: true });
});

restoreSampling();
showPane('talk');
const query = new URLSearchParams(location.search);
await list.start();
talk.preset(query.get('prompt') ?? '');
if (await models.start(query)) await models.load();
