// Files with one error each (tests/data/wrong-files.json), through the package in Node and in
// Chromium: each has the right code and a message that names the problem. Errors in the header are
// found before the weights are fetched.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin, launch, openPage } from './chromium.mjs';
import { faultyServer, root } from './helpers.mjs';

const dist = join(root, 'dist');
const cases = JSON.parse(readFileSync(join(root, 'tests', 'data', 'wrong-files.json'), 'utf8'));
let files;

before(async () => {
  files = await serve([['/', root]], crossOrigin);
});
after(() => files.close());

/** Runs in Node or in the page: the error of loading the changed file. */
async function refuse({ source, find, replace }) {
  const bytes = new Uint8Array(await (await fetch(source)).arrayBuffer());
  const codes = (text) => Array.from(text, (c) => c.charCodeAt(0));
  const good = codes(find);
  const at = bytes.findIndex((_, i) => good.every((byte, j) => bytes[i + j] === byte));
  if (at < 0) return { code: 'the bytes to replace were not found' };
  bytes.set(codes(replace), at);
  try {
    const engine = await Engine.load(new Blob([bytes]), { threads: 1, contextLength: 64 });
    await engine.dispose();
    return { code: 'it loaded' };
  } catch ({ code, message }) {
    return { code, message };
  }
}

async function checkAll(run) {
  assert.ok(cases.length > 10);
  for (const { name, file, find, replace, code, says } of cases) {
    const told = await run({ source: `${files.url}/${file}`, find, replace });
    assert.equal(told.code, code, `${name}: ${told.message}`);
    assert.ok(told.message.includes(says), `${name}: ${told.message}`);
  }
}

test('wrong files are errors that name the problem, in Node', async () => {
  globalThis.Engine = (await import(pathToFileURL(join(dist, 'node.js')).href)).Engine;
  await checkAll(refuse);
});

test('wrong files are errors that name the problem, in Chromium', { skip: longOnly }, async () => {
  const browser = await launch();
  const tab = await openPage(browser, dist);
  try {
    await tab.page.evaluate(`window.refuse = ${refuse}`);
    await checkAll((args) => tab.page.evaluate((all) => refuse(all), args));
  } finally {
    await tab.close();
    await browser.close();
  }
});

test('an unsupported architecture is an error before the download', async () => {
  const { Engine } = await import(pathToFileURL(join(dist, 'node.js')).href);
  const unknown = cases.find(({ code }) => code === 'UNSUPPORTED_ARCHITECTURE');
  const header = readFileSync(join(root, unknown.file), 'latin1').replace(
    unknown.find,
    unknown.replace,
  );
  const bytes = Buffer.concat([Buffer.from(header, 'latin1'), Buffer.alloc(32 << 20)]);
  const server = await faultyServer({ bytes });
  try {
    await assert.rejects(Engine.load(server.url, { threads: 1 }), {
      code: 'UNSUPPORTED_ARCHITECTURE',
      message: /lhama/,
    });
    assert.ok(server.state.bytes <= 4 << 20, `${server.state.bytes} bytes were sent`);
  } finally {
    await server.close();
  }
});
