// One flow through the whole page over the real engine, on desktops and phones, light and dark: the
// sample model, a chat, settings, a search, another budget, a reload, a failure. axe checks every
// state, and pictures of them go to build/screenshots.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin } from './chromium.mjs';
import { root } from './helpers.mjs';
import { lowContrast, smallTargets, tooWide, unnamed } from './page-checks.mjs';
import { idle, inSettings, models, openSite, ready, say, shows, violations } from './page-site.mjs';

const shots = join(root, 'build', 'screenshots');
const desktop = { viewport: { width: 1360, height: 820 } };
const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const narrow = { ...phone, viewport: { width: 320, height: 640 } };

let pages;
let hub;
before(async () => {
  mkdirSync(shots, { recursive: true });
  pages = await openSite('site-flow');
  hub = await serve([['/owner/tales/resolve/main/', models]], {
    onRequest(request, response) {
      crossOrigin.onRequest(request, response);
      const { pathname } = new URL(request.url, 'http://x');
      const answer = {
        '/api/models': [{ id: 'owner/tales', downloads: 12 }],
        '/api/models/owner/tales/tree/main': ['Q4_0', 'Q8_0'].map((type) => ({
          type: 'file',
          path: `sluice-tales-${type}.gguf`,
          size: 1e6,
        })),
      }[pathname];
      if (answer) response.end(JSON.stringify(answer));
      return !!answer;
    },
  });
  const index = join(pages.site, 'index.html');
  writeFileSync(index, readFileSync(index, 'utf8').replace('https://huggingface.co', hub.url));
});
after(async () => {
  await pages.close();
  await hub.close();
});

for (const [name, options, runs] of [
  ['desktop-light', { ...desktop, colorScheme: 'light' }, false],
  ['desktop-dark', { ...desktop, colorScheme: 'dark' }, false],
  ['phone-light', { ...phone, colorScheme: 'light' }, false],
  ['phone-dark', { ...phone, colorScheme: 'dark' }, true],
  ['narrow-dark', { ...narrow, colorScheme: 'dark' }, false],
])
  test(`from the first visit to a failure: ${name}`, { skip: !runs && longOnly }, () =>
    pages.withTabs(
      async (open) => {
        const page = await open();
        const touch = name.startsWith('desktop') ? [] : [smallTargets];
        const holds = async (state) => {
          await page.screenshot({ path: join(shots, `flow-${name}-${state}.png`) });
          assert.deepEqual(await violations(page), [], `${state}: axe`);
          for (const check of [lowContrast, tooWide, unnamed, ...touch])
            assert.deepEqual(await page.evaluate(check), [], `${state}: ${check.name}`);
        };
        const pane = (which) => touch.length && page.tap(`.panes [data-pane=${which}]`);
        await holds('empty');

        await page.click('[data-sample]');
        await ready(page);
        await page.waitForSelector('#prompt:focus'); // one click to a blinking cursor
        await page.keyboard.type('Tell me a story about a dog and a boat.');
        await page.keyboard.press('Enter');
        await page.waitForSelector('.note:not(:empty)');
        assert.match(await page.textContent('.assistant .body'), /\w+ \w+ \w+/);
        await holds('story');

        await inSettings(page, async () => {
          await page.fill('#system', 'Be brief.\nUse short words.\nEnd with a question.\nBe kind.');
          await page.fill('#schema', '{"type": ');
          await holds('settings');
          await page.fill('#schema', '');
          await page.fill('[name=maxTokens]', '8');
        });
        await pane('engine');
        await shows(page, '#figures', /Context[1-9]\d*of 512 tokens/);
        await shows(page, '#layers-scale', /^One column per layer, from 1 to 4, then the output/);
        await holds('engine');

        await pane('model');
        await page.click('#finder > summary');
        await page.fill('#find', 'tales');
        await page.press('#find', 'Enter');
        await page.click('#find-list .pick:has-text("owner/tales")');
        await page.click('#find-list .pick:has-text("Q4_0")');
        await page.waitForSelector('#preflight dl');
        await holds('found');
        assert.match(await page.textContent('#find-list'), /Q4_01\.00 MB · fits in memory/);
        await page.click('#load');
        await ready(page);
        await pane('model');
        await page.focus('#budget');
        await page.keyboard.press('Home');
        await shows(page, '#announcer', /The budget is now/);
        await pane('talk');
        await say(page, 'And then?');
        await idle(page);
        await page.reload();
        await page.waitForSelector('.assistant >> nth=1');
        assert.match(await page.locator('.note').last().textContent(), /^[1-8] tokens/);

        await pane('model');
        await page.fill('#url', '/models/none.gguf');
        await page.click('#load');
        await page.waitForSelector('#problem:visible');
        assert.equal(await page.textContent('#load'), 'Load');
        await holds('failure');
      },
      { ...options, expected: /404/ },
    ),
  );

test('axe finds real problems', () =>
  pages.withTabs(async (open) => {
    const page = await open();
    await page.evaluate(() => document.querySelector('main').append(document.createElement('img')));
    assert.match(`${await violations(page)}`, /^image-alt: <img>$/);
  }));
