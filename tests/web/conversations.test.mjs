// A hundred conversations in turn on one engine (conversations.mjs), in Node at the smallest budget there
// is and in Chromium in 256 MB: none forgets, none exceeds, all equal to one alone.
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { launch, servePages, testMounts } from './chromium.mjs';
import { manyConversations } from './conversations.mjs';
import { root } from './helpers.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
const model = ['examples', 'models', 'sluice-tales-Q4_0.gguf'];
const settings = { contextLength: 256, threads: 1 };
const print = (t, { budget, heap, tokens }) => t.diagnostic(`${tokens} tokens, heap ${heap} of ${budget} bytes`);

for (const [kvType, count] of [['f16', 100], ['q4_0', 20]]) {
  test(`in Node, ${count} with ${kvType}`, async (t) => {
    print(t, await manyConversations({ Engine, source: join(root, ...model), kvType, count, ...settings }));
  });
}

describe('in Chromium', () => {
  let browser;
  let server;
  before(async () => {
    browser = await launch();
    server = await servePages(join(root, 'dist'), { mounts: testMounts });
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });

  for (const [budget, count] of [[null, 11], [256 << 20, 100]]) {
    test(`${count} ${budget ? 'in 256 MB' : 'at the smallest budget'}`, async (t) => {
      const page = await browser.newPage();
      await page.goto(`${server.url}/`);
      const measured = await page.evaluate(async (given) => {
        const { Engine } = await import('/dist/index.js');
        const { manyConversations } = await import('/tests/conversations.mjs');
        return manyConversations({ Engine, ...given });
      }, { source: `/data/${model.join('/')}`, budget, count, ...settings });
      print(t, measured);
      await page.close();
    });
  }
});
