// Several answers in one pass through the package, in Node and in Chromium: parallel.mjs says what
// must hold.
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { root } from './helpers.mjs';
import * as checks from './parallel.mjs';

const data = (...path) => join(root, 'tests', 'data', ...path);
const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);

// [what, check, what it takes]
const cases = [
  ['eight sessions at once say what each says alone', 'together', { source: sample('Q4_0') }],
  [
    'sessions join while others answer, on two threads',
    'together',
    { source: sample('Q8_0'), apart: 3, how: { threads: 2 } },
  ],
  [
    'eleven sessions take turns in three slots',
    'together',
    { source: sample('Q8_0'), count: 11, parallel: 3 },
  ],
  [
    'recurrent states',
    'together',
    { source: data('families', 'lfm2.gguf'), count: 6, parallel: 4 },
  ],
  [
    'guesses by n-grams',
    'together',
    { source: sample('Q4_0'), parallel: 4, count: 6, how: { draft: 'ngram' } },
  ],
  [
    'guesses of a smaller model',
    'together',
    { source: sample('F16'), parallel: 3, count: 5, how: { draft: sample('Q4_0') } },
  ],
  [
    'an answer that is cut or fails disturbs no other, a save waits',
    'apart',
    { source: sample('Q4_0') },
  ],
  ['one session keeps its order, chats go side by side', 'ordered', { source: sample('Q4_0') }],
  ['a chat begins as another did', 'beginnings', { source: sample('Q4_0') }],
  [
    'a recurrent chat begins as another did',
    'beginnings',
    { source: data('families', 'lfm2.gguf'), recurrent: true },
  ],
  ['one pass is of all', 'shared', { source: sample('Q4_0') }],
  ['budgets', 'budgets', { source: sample('Q4_0') }],
];

describe('in Node', async () => {
  const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
  for (const [what, name, settings] of cases)
    test(what, () => checks[name]({ Engine, ...settings }));
});

describe('in Chromium', () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser?.close());
  const address = (text) => text.replaceAll(root, '/data/').replaceAll('\\', '/');

  for (const [what, name, settings] of cases) {
    // What Node lacks: a page's threads and memory.
    const few = [
      'sessions join while others answer, on two threads',
      'guesses of a smaller model',
      'budgets',
    ];
    test(what, { skip: !few.includes(what) && longOnly }, () =>
      inTab(browser, join(root, 'dist'), { mounts: testMounts }, ({ page }) =>
        page.evaluate(
          async ({ name, settings }) => {
            await (await import('/tests/parallel.mjs'))[name]({ Engine, ...settings });
          },
          { name, settings: JSON.parse(address(JSON.stringify(settings))) },
        ),
      ),
    );
  }
});
