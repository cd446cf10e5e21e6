// The web section of docs/quickstart.md: its code is type-checked, and its commands lead to a chat
// in Chromium with Vite's development server and with the production build. Versions that it leaves
// to npm are fixed here. Skipped if the npm registry does not answer.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { longOnly } from '../extent.mjs';
import { section, take } from '../quickstart.mjs';
import { launch } from '../web/chromium.mjs';
import { online, pack, run, scratch } from './tarball.mjs';
import { consumerFolder, typecheck, withOtherPackages } from './typecheck.mjs';

const blocks = section('A chat in a Vite page');
take(blocks, 'npm pack'); // pack() does the same with the dist/ that is there
const create = take(blocks, 'npm create vite@latest');
const config = take(blocks, 'Cross-Origin-Opener-Policy');
const main = take(blocks, 'onsubmit');
const develop = take(blocks, 'npm run dev');
take(blocks, 'VITE');
const [build, preview] = take(blocks, 'npm run preview').trim().split('\n');
const realModel = take(blocks, 'hf:');

const pinned = create
  .replace('vite@latest', 'vite@9.3.0')
  .replace(
    /^npm install/m,
    'npm pkg set devDependencies.vite=8.3.8 devDependencies.typescript=7.0.2\n$&',
  );

test('the code satisfies the compiler, and every block of the page is used', () => {
  const folder = consumerFolder('quickstart');
  try {
    const sources = {
      'main.ts': main,
      'real-model.ts': `import { Engine } from 'sluice-llm';\n${realModel}export { engine };`,
      'vite.config.ts': config,
    };
    assert.equal(typecheck(folder, sources, withOtherPackages), '');
    assert.deepEqual(blocks, []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** Runs a command that serves the page, calls `work` with the address that it prints, ends it. */
async function whileServing(cwd, command, work) {
  const server = spawn('bash', ['-c', command], {
    cwd,
    detached: true, // so that npm's children end with it
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    let printed = '';
    const url = await new Promise((resolve, reject) => {
      server.stdout.setEncoding('utf8').on('data', (text) => {
        printed += text;
        const found = /Local: +(http:\S+)/.exec(printed.replace(/\u001b\[\d+m/g, ''));
        if (found) resolve(found[1]);
      });
      server.once('exit', () => reject(new Error(`${command} ended: ${printed}`)));
    });
    return await work(url);
  } finally {
    process.kill(-server.pid);
  }
}

/** Asks twice in the page at `url`; returns all paragraphs. */
async function chatAt(browser, url) {
  const page = await browser.newPage();
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  await page.goto(url);
  for (const [i, question] of ['Tell me a story about a fox.', 'Who is it about?'].entries()) {
    await page.waitForSelector('button:enabled');
    await page.fill('input', question);
    await page.press('input', 'Enter');
    await page.waitForFunction(
      (count) =>
        document.querySelectorAll('p').length === count &&
        !document.querySelector('button').disabled,
      2 * (i + 1),
    );
  }
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  const paragraphs = await page.locator('p').allTextContents();
  await page.close();
  assert.deepEqual(problems, []);
  assert.ok(paragraphs[1].length > 40 && paragraphs[3].length > 5, paragraphs.join('\n'));
}

const skip = longOnly || (online() ? false : 'the npm registry does not answer');
test('its commands lead to a chat in development and in production', { skip }, async () => {
  const folder = scratch();
  const browser = await launch();
  try {
    mkdirSync(join(folder, 'sluice'));
    symlinkSync(inRoot('examples'), join(folder, 'sluice', 'examples'));
    pack(join(folder, 'sluice'));
    run(folder, 'bash', ['-euc', pinned], { npm_config_yes: 'true' });
    const app = join(folder, 'my-app');
    writeFileSync(join(app, 'vite.config.ts'), config);
    writeFileSync(join(app, 'src', 'main.ts'), main);
    await whileServing(app, develop, (url) => chatAt(browser, url));
    run(app, 'bash', ['-euc', build]);
    await whileServing(app, preview, (url) => chatAt(browser, url));
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
