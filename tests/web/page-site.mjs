// Shared by the tests of the page: the site, built once per test file and served over the package
// or over the stand-in of page-engine/, and pages in Chromium in which any uncaught error fails the
// test.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { buildSite } from '../../examples/browser/build.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from './chromium.mjs';
import { eventually } from './eventually.mjs';
import { root } from './helpers.mjs';

export const models = join(root, 'examples', 'models');
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
/** Between two looks at a page. */
export const kPollMs = 50;
const stand = join(root, 'tests', 'web', 'page-engine');

/**
 * Builds and serves the site for one test file: { browser, server, site, withTabs, close }. `name`
 * is the build directory, one per test file.
 */
export async function openSite(name, { fake = false, onRequest, start = launch } = {}) {
  const site = join(root, 'build', 'web-tests', name);
  await buildSite({ site });
  const browser = await start();
  const server = await serve(
    [...(fake ? [['/dist/', stand]] : []), ['/models/', models], ['/', site]],
    { onRequest },
  );

  /**
   * `work` gets open(query), which opens tabs of one browser profile. Fails on uncaught errors,
   * except those that match `expected`.
   */
  async function withTabs(work, { expected = /^$/, from = server, ...options } = {}) {
    const context = await browser.newContext({
      viewport: { width: 1360, height: 820 },
      ...options,
    });
    const errors = [];
    // Includes unhandled rejections.
    context.on('weberror', (error) => errors.push(error.error().message));
    context.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
    const open = async (query = '') => {
      const page = await context.newPage();
      // By default Playwright asks at each frame, and Chromium paints as many as it can.
      const { waitForFunction } = page;
      page.waitForFunction = (test, argument) =>
        waitForFunction.call(page, test, argument, { polling: kPollMs });
      await page.goto(`${from.url}/${query}`);
      return page;
    };
    try {
      await work(open, context);
      assert.deepEqual(
        errors.filter((error) => !expected.test(error)),
        [],
      );
    } finally {
      await context.close();
    }
  }
  const close = async () => {
    await browser.close();
    await server.close();
  };
  return { browser, server, site, withTabs, close };
}

/**
 * Waits until an element's text, or its `attribute`, matches. The page updates its figures ten
 * times a second.
 */
export async function shows(page, selector, pattern, attribute = null) {
  const read = ([selector, attribute]) => {
    const element = document.querySelector(selector);
    return (attribute ? element?.getAttribute(attribute) : element?.textContent) ?? '';
  };
  await eventually(
    async () => pattern.test(await page.evaluate(read, [selector, attribute])),
    async () =>
      `${selector} says ${JSON.stringify(await page.evaluate(read, [selector, attribute]))}, not ${pattern}`,
    kPollMs,
  );
}

export const ready = (page) =>
  page.waitForSelector('body.loaded #send:enabled', { state: 'attached' });
export const idle = (page) => page.waitForSelector('#stop', { state: 'hidden' });

/** What axe finds wrong on the page as it is. */
export async function violations(page) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.addScriptTag({ path: axe });
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  return found.violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`,
  );
}

/** Presses Load, for pages whose address field is filled in. */
export async function load(page) {
  await page.click('#load');
  await ready(page);
}

export async function say(page, text) {
  await page.fill('#prompt', text);
  await page.press('#prompt', 'Enter');
}

/** Opens the settings, calls `work`, and closes them. */
export async function inSettings(page, work) {
  await page.click('#settings-open');
  await page.waitForSelector('#settings[open]');
  await work();
  await page.click('#settings-close');
  await page.waitForSelector('#settings:not([open])', { state: 'attached' });
}

/** The records of the page's database, tombstones included. */
export const records = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const opening = indexedDB.open('sluice-page', 1);
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const database = opening.result;
          const all = database.transaction('talks').objectStore('talks').getAll();
          all.onsuccess = () => (database.close(), resolve(all.result));
        };
      }),
  );

/** Waits until `test` holds for the records, without tombstones; returns them. */
export async function kept(page, test) {
  let talks;
  const read = async () => (talks = (await records(page)).filter(({ turns }) => turns));
  await eventually(
    async () => test(await read()),
    () => `stored: ${JSON.stringify(talks)}`,
    kPollMs,
  );
  return talks;
}

export const model = '?model=/models/any.gguf';
export const titles = (page) => page.locator('#talk-list .name').allTextContents();
export const users = (page) => page.locator('.user .body').allTextContents();
export const noticed = (page, text) =>
  page.waitForFunction((t) => document.querySelector('#notices').textContent.includes(t), text);
export const until = (page, test, argument) => page.waitForFunction(test, argument);
export const listed = (page, n) =>
  until(page, (n) => document.querySelectorAll('#talk-list li').length === n, n);

/** Sends a message and waits for the end of the answer. */
export async function ask(page, text) {
  await say(page, text);
  await until(
    page,
    (text) =>
      [...document.querySelectorAll('.user .body')].at(-1)?.textContent === text &&
      document.querySelector('#stop').hidden,
    text,
  );
}

export async function rename(page, title, name) {
  await page.click(`[aria-label="Rename ${title}"]`);
  await page.keyboard.type(name);
  await page.keyboard.press('Enter');
}

export async function remove(page, title) {
  await page.click(`[aria-label="Delete ${title}"]`);
  await page.click('[aria-label^="Really delete"]');
}

export const good = {
  id: 'good',
  title: 'Good',
  mode: 'chat',
  system: '',
  updated: 5,
  turns: [
    { role: 'user', content: 'Kept' },
    { role: 'assistant', content: 'Yes' },
  ],
};

/** Writes records into the page's database before the page starts. */
export const plant = (page, values) =>
  page.evaluate(
    (list) =>
      new Promise((done) => {
        const opening = indexedDB.open('sluice-page', 1);
        opening.onsuccess = () => {
          const transaction = opening.result.transaction('talks', 'readwrite');
          for (const value of list) transaction.objectStore('talks').put(value);
          transaction.oncomplete = () => (opening.result.close(), done());
        };
      }),
    values,
  );
