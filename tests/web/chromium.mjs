// Headless Chromium for the tests, and a page in it that has the package at /dist/.
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { chromiumArgs, chromiumPath } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { root } from './helpers.mjs';

const kPatienceMs = 180_000; // a slow machine is no failure

export async function launch(options = {}) {
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: chromiumArgs,
    timeout: kPatienceMs,
    ...options,
  });
  const { newContext } = browser;
  browser.newContext = async (...given) => {
    // newPage() makes its context by this, too
    const context = await newContext.apply(browser, given);
    context.setDefaultTimeout(kPatienceMs);
    return context;
  };
  return browser;
}

/** For serve(): every file may be read from another origin, an isolated one too. */
export const crossOrigin = {
  onRequest: (_, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    return false;
  },
};

/** Does `work` with openPage()'s result and closes it. */
export async function inTab(browser, dist, options, work) {
  const tab = await openPage(browser, dist, options);
  try {
    return await work(tab);
  } finally {
    await tab.close();
  }
}

/**
 * Serves a blank page and, below it, the package in the folder `dist` and what `mounts` names.
 * `requested` of the server lists the paths that were asked for.
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

/** The tests' own modules and the repository's files, for a page. */
export const testMounts = [
  ['/tests/', join(root, 'tests', 'web')],
  ['/data/', root],
];

/** A blank page with `Engine` and `SluiceError` on window; `dist` is the package's folder. */
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
    /** Another tab of the same origin. */
    open,
    close: async () => {
      if (!page.isClosed()) await page.close();
      if (!context) await owner.close();
      await server.close();
    },
  };
}
