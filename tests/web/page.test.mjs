// The example page in Chromium, as a person uses it: preflight, load, text, chat, stop, store, both
// themes, a phone. Screenshots go to build/screenshots.
import assert from 'node:assert/strict';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { buildSite } from '../../examples/browser/build.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from './chromium.mjs';
import { root } from './helpers.mjs';

const site = join(root, 'build', 'web-tests', 'site');
const shots = join(root, 'build', 'screenshots');
let browser;
let server;

before(async () => {
  await buildSite({ site });
  rmSync(shots, { recursive: true, force: true });
  mkdirSync(shots, { recursive: true });
  browser = await launch();
  server = await serve([['/models/', join(root, 'examples', 'models')], ['/', site]]);
});
after(async () => {
  await browser.close();
  await server.close();
});

/** `expected` are error messages of the browser that the test itself provokes. */
async function withPage(options, work, query = '', expected = /^$/) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 820 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000); // a slow machine is no failure
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  try {
    await page.goto(`${server.url}/${query}`);
    await work(page);
    assert.deepEqual(errors.filter((error) => !expected.test(error)), []);
  } finally {
    await context.close();
  }
}

const model = '?model=/models/sluice-tales-F16.gguf&budget=1700000&prompt=Once%20upon%20a%20time';
const ready = (page) => page.waitForSelector('#send:enabled');

/** Picks how many tokens an answer may have. */
async function limit(page, tokens) {
  await page.click('.settings summary');
  await page.fill('[name=maxTokens]', String(tokens));
}

for (const theme of ['light', 'dark']) {
  test(`loads from its address, continues a text and shows the figures (${theme})`, () =>
    withPage({ colorScheme: theme }, async (page) => {
      await ready(page);
      await limit(page, 24);
      await page.check('[name=mode][value=continue]');
      await page.click('#send');
      await page.waitForSelector('.foot');
      assert.match(await page.textContent('.message.model'), /^Once upon a time.{20}/s);
      assert.match(await page.textContent('#figures'), /tokens\/s/);
      assert.match(await page.getAttribute('#units', 'aria-label'), /\d+ pinned/);
      assert.match(await page.textContent('#memory-text'), / of 1\.56 MB/);
      assert.equal(await page.getAttribute('html', 'data-theme'), theme);
      await page.screenshot({ path: join(shots, `${theme}.png`) });
    }, model));
}

test('chats by keyboard on a phone, and the second turn is short to read', () =>
  withPage({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, async (page) => {
    await ready(page);
    await limit(page, 16);
    assert.ok(await page.isChecked('[name=mode][value=chat]'));
    for (const text of ['Tell me a story about a dog.', 'What was his name?']) {
      await page.fill('#prompt', text);
      await page.press('#prompt', 'Enter');
      await page.waitForSelector('#send:visible');
    }
    assert.equal(await page.locator('.message.user').count(), 2);
    assert.equal(await page.locator('.message .foot').count(), 2);
    assert.equal(await page.locator('.message .problem').count(), 0);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await page.screenshot({ path: join(shots, 'phone.png'), fullPage: true });
  }, model));

test('Escape stops an answer, and the next one works', () =>
  withPage({}, async (page) => {
    await ready(page);
    await limit(page, 100_000);
    await page.check('[name=mode][value=continue]');
    await page.click('#send');
    await page.waitForFunction(() => document.querySelector('.message.model')?.textContent.length > 60);
    await page.keyboard.press('Escape');
    await page.waitForSelector('.foot');
    assert.match(await page.textContent('.foot'), /stopped/);
    await page.fill('[name=maxTokens]', '4');
    await page.click('#send');
    await page.waitForFunction(() => document.querySelectorAll('.foot').length === 2);
  }, model));

test('answers "will it run?", refuses a budget that is too small, reports a wrong address', () =>
  withPage({}, async (page) => {
    await page.fill('#url', `${server.url}/models/sluice-tales-Q4_0.gguf`);
    await page.click('#inspect');
    await page.waitForSelector('#preflight li');
    assert.match(await page.textContent('#preflight'), /Yes: .*llama.*at least .* MB/s);
    await page.fill('#url', `${server.url}/models/none.gguf`);
    await page.click('#inspect');
    await page.waitForSelector('#problem:visible');
    assert.match(await page.textContent('#problem'), /404.*HTTP_STATUS/);
  }, '', /404/));

test('lists what is stored, and deletes it', () =>
  withPage({}, async (page) => {
    await ready(page);
    await page.waitForSelector('#stored:visible');
    await page.click('#unload');
    await page.click('#stored summary');
    assert.match(await page.textContent('#stored-list'), /sluice-tales-F16\.gguf/);
    await page.click('#stored-list [aria-label^=Delete]');
    await page.waitForSelector('#stored', { state: 'hidden' });
  }, model));
