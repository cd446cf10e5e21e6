// Headless Chromium for the tests, and pages with the package at /dist/.
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { chromiumArgs, headlessPath } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { root } from './helpers.mjs';

const kPatienceMs = 180_000; // a slow machine must not fail a test

export async function launch(options = {}) {
  const browser = await chromium.launch({
    executablePath: headlessPath,
    args: chromiumArgs,
    timeout: kPatienceMs,
    ...options,
  });
  const { newContext } = browser;
  browser.newContext = async (...given) => {
    // newPage() creates its context through this, too.
    const context = await newContext.apply(browser, given);
    context.setDefaultTimeout(kPatienceMs);
    return context;
  };
  return browser;
}

/** For serve(): lets pages of other origins read every file, isolated ones too. */
export const crossOrigin = {
  onRequest: (_, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    return false;
  },
};

/** Calls `work` with the result of openPage(), then closes it. */
export async function inTab(browser, dist, options, work) {
  const tab = await openPage(browser, dist, options);
  try {
    return await work(tab);
  } finally {
    await tab.close();
  }
}

/**
 * Serves a blank page, the package in the directory `dist` and the `mounts`. The server's
 * `requested` lists the requested paths.
 */
export async function servePages(dist, { isolation = true, headers = {}, mounts = [] } = {}) {
  const requested = [];
  const server = await serve([['/dist/', dist], ...mounts], {
    isolation,
    onRequest: (request, response) => {
      requested.push(request.url);
      for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
      if (request.url === '/favicon.ico') return (response.writeHead(204).end(), true);
      if (request.url !== '/') return false;
      response
        .writeHead(200, { 'Content-Type': 'text/html' })
        .end('<!doctype html><title>test</title>');
      return true;
    },
  });
  return Object.assign(server, { requested });
}

/** Mounts of the tests' modules and of the repository's files. */
export const testMounts = [
  ['/tests/', join(root, 'tests', 'web')],
  ['/data/', root],
];

/**
 * Opens a blank page with `Engine` and `SluiceError` on window; `dist` is the package's directory.
 */
export async function openPage(browser, dist, { context, ...options } = {}) {
  const server = await servePages(dist, options);
  const owner = context ?? (await browser.newContext());
  const open = async () => {
    const page = await owner.newPage();
    page.on('pageerror', (error) => console.error('page error:', error.message));
    await page.goto(`${server.url}/`);
    await page.evaluate(async () => Object.assign(window, await import('/dist/index.js')));
    return page;
  };
  const page = await open();
  return {
    page,
    server,
    owner,
    /** Opens another tab of the same origin. */
    open,
    close: async () => {
      if (!page.isClosed()) await page.close();
      if (!context) await owner.close();
      await server.close();
    },
  };
}
