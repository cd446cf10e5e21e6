// Many alternating sessions on one engine (conversations.mjs), in Node at the smallest budget and
// in Chromium with 256 MB. None is lost, the budget holds, and each equals a session alone.
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { extent, longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { manyConversations } from './conversations.mjs';
import { root } from './helpers.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
const model = ['examples', 'models', 'sluice-tales-Q4_0.gguf'];
const settings = { contextLength: 256, threads: 1 };
const print = (t, { budget, heap, tokens }) =>
  t.diagnostic(`${tokens} tokens, heap ${heap} of ${budget} bytes`);

for (const [kvType, count] of [
  ['f16', extent(41, 100)],
  ['q4_0', 20],
]) {
  test(`in Node, ${count} with ${kvType}`, async (t) => {
    print(
      t,
      await manyConversations({ Engine, source: join(root, ...model), kvType, count, ...settings }),
    );
  });
}

describe('in Chromium', () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  for (const [budget, count] of [
    [null, 11],
    [256 << 20, 100],
  ]) {
    test(
      `${count} ${budget ? 'in 256 MB' : 'at the smallest budget'}`,
      { skip: budget !== null && longOnly },
      (t) =>
        inTab(browser, join(root, 'dist'), { mounts: testMounts }, async ({ page }) => {
          print(
            t,
            await page.evaluate(
              async (given) => {
                const { manyConversations } = await import('/tests/conversations.mjs');
                return manyConversations({ Engine, ...given });
              },
              { source: `/data/${model.join('/')}`, budget, count, ...settings },
            ),
          );
        }),
    );
  }
});
