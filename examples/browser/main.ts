// Entry of the page: connects conversations, model panel and engine panel. The page's URL can fill
// in fields (?model=URL&budget=BYTES&prompt=TEXT), but nothing else: following a link neither
// downloads nor generates anything before a click.

import { announce, byId, on, run } from './dom.js';
import { EnginePanel } from './engine-panel.js';
import { ModelPanel } from './model-panel.js';
import { report } from './notices.js';
import { restoreSampling } from './sampling.js';
import { TalkList } from './conversation-list.js';
import { TalkPanel } from './chat-panel.js';

on<CustomEvent<unknown>>(document, 'failed', ({ detail }) => report(detail));

/** Shows a pane. On phones only one is visible at a time. */
function showPane(name: string): void {
  document.body.dataset['pane'] = name;
  for (const button of document.querySelectorAll<HTMLElement>('.panes button')) {
    button.setAttribute('aria-current', String(button.dataset['pane'] === name));
  }
}
for (const button of document.querySelectorAll<HTMLElement>('.panes button')) {
  on(button, 'click', () => showPane(button.dataset['pane']!));
}
on<CustomEvent<string>>(document, 'show-pane', ({ detail }) => showPane(detail));

byId('isolation').textContent = crossOriginIsolated
  ? 'Multithreading is enabled.'
  : 'It uses one thread, because the page is not cross-origin isolated.';

restoreSampling();
const talk = new TalkPanel((changed, mark, now) => list.changed(changed, mark, now));
const list: TalkList = new TalkList({
  open: (chosen) => talk.open(chosen),
  update: (changed) => talk.update(changed),
  gone: (deleted) => talk.forget(deleted),
});
const figures = new EnginePanel();

const models = new ModelPanel(async (engine, name) => {
  await talk.show(engine);
  figures.show(engine);
  document.body.classList.toggle('loaded', engine !== null);
  if (!engine) return;
  announce(`${name} is ready.`);
  showPane('talk');
  byId('prompt').focus({ preventScroll: true });
});

showPane('talk');
const query = new URLSearchParams(location.search);
run(() => list.start());
talk.preset(query.get('prompt') ?? '');
run(() => models.start(query));
