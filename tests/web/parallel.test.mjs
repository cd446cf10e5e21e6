// Continuous batching through the package, in Node and in Chromium; parallel.mjs has the checks.
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { root } from './helpers.mjs';
import * as checks from './parallel.mjs';

const data = (...path) => join(root, 'tests', 'data', ...path);
const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);

// [test name, check, its settings]
const cases = [
  [
    'eight concurrent sessions give the output of each alone',
    'together',
    { source: sample('Q4_0') },
  ],
  [
    'sessions join while others generate, on two threads',
    'together',
    { source: sample('Q8_0'), apart: 3, how: { threads: 2 } },
  ],
  [
    'eleven sessions share three slots',
    'together',
    { source: sample('Q8_0'), count: 11, parallel: 3 },
  ],
  [
    'recurrent states',
    'together',
    { source: data('families', 'lfm2.gguf'), count: 6, parallel: 4 },
  ],
  [
    'n-gram drafts',
    'together',
    { source: sample('Q4_0'), parallel: 4, count: 6, how: { draft: 'ngram' } },
  ],
  [
    'a draft model',
    'together',
    { source: sample('F16'), parallel: 3, count: 5, how: { draft: sample('Q4_0') } },
  ],
  [
    'a cancelled or failed generation disturbs no other, a save waits',
    'apart',
    { source: sample('Q4_0') },
  ],
  [
    'calls of a session keep their order, chats run in parallel',
    'ordered',
    { source: sample('Q4_0') },
  ],
  ['a chat reuses the prefix of another', 'beginnings', { source: sample('Q4_0') }],
  [
    'a chat of a recurrent model reuses the prefix of another',
    'beginnings',
    { source: data('families', 'lfm2.gguf'), recurrent: true },
  ],
  ['one forward pass computes all sequences', 'shared', { source: sample('Q4_0') }],
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
    // Only what Node cannot test: the threads and the memory of a page.
    const few = ['sessions join while others generate, on two threads', 'budgets'];
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
