// Every way to host the package wrongly, in Chromium and Firefox. The error has a code and names
// the address and the fix; nothing waits forever.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { build } from 'esbuild';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin } from './chromium.mjs';
import { launchChromium, launchFirefox, missing } from './drivers.mjs';
import { buildFakePackage, fakeModel, root } from './helpers.mjs';
import { markdown, misconfigurations } from './misconfigurations.mjs';

const dist = await buildFakePackage({ name: 'misconfigured', external: ['./templates.js'] });
await build({
  entryPoints: [join(root, 'web', 'chat', 'templates.ts')],
  outdir: dist,
  bundle: true,
  format: 'esm',
});
writeFileSync(join(dist, 'model.gguf'), fakeModel());
const emptyWasm = Buffer.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
const others = {};
before(async () => {
  others.OTHER = await serve([['/dist/', dist]], { isolation: false, ...crossOrigin });
  others.STRICT = await serve([['/dist/', dist]], { isolation: false });
  others.NOWHERE = await serve([['/dist/', dist]]);
  await others.NOWHERE.close();
});
after(() => Promise.all([others.OTHER.close(), others.STRICT.close()]));

/** A server for the page with the faults of one row. */
function host({ page = {}, files = {}, isolation = false }) {
  return serve([['/dist/', dist]], {
    isolation,
    onRequest(request, response) {
      const answer = (status, headers, body) => (
        response.writeHead(status, headers).end(body === 'WASM' ? emptyWasm : body),
        true
      );
      for (const [name, value] of Object.entries(page)) response.setHeader(name, value);
      if (request.url === '/')
        return answer(200, { 'Content-Type': 'text/html' }, '<!doctype html><title>test</title>');
      return request.url in files ? answer(...files[request.url]) : false;
    },
  });
}

/** In the page: loads and generates, or chats if the row needs it; returns the error. */
async function attempt({ source, options, chat }) {
  const { Engine } = await import('/dist/index.js');
  try {
    const engine = await Engine.load(source, { cache: 'none', ...options });
    try {
      if (chat)
        await engine.chat.completions.create({
          messages: [{ role: 'user', content: 'x' }],
          max_tokens: 1,
        });
      else await engine.generate('x', { maxTokens: 1 }).result;
    } finally {
      await engine.dispose();
    }
    return { code: null };
  } catch ({ name, code, message }) {
    return { name, code, message };
  }
}

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

for (const [browser, launch] of Object.entries({
  chromium: launchChromium,
  firefox: launchFirefox,
})) {
  const skip = missing[browser] || (browser === 'firefox' && longOnly);
  describe(`in ${browser}`, { skip }, () => {
    let running;
    before(async () => (running = await launch()));
    after(() => running?.close());
    for (const row of misconfigurations) {
      test(
        `${row.wrong}${row.code ? `: ${row.code}` : ' and works'}`,
        { timeout: 240_000 },
        async () => {
          const server = await host(row);
          try {
            const place = (text) =>
              ['OTHER', 'STRICT', 'NOWHERE'].reduce(
                (t, name) => t.replaceAll(name, others[name].url),
                text.replaceAll('ORIGIN', server.url),
              );
            const page = await running.open(`${server.url}/`);
            const options = JSON.parse(place(JSON.stringify(row.options ?? {})));
            const told = await page.evaluate(attempt, {
              source: row.source ?? `${server.url}/dist/model.gguf`,
              options,
              chat: row.chat ?? false,
            });
            await page.close();
            assert.equal(told.code, row.code, JSON.stringify(told));
            if (row.code === null) return;
            assert.equal(told.name, 'SluiceError');
            assert.match(
              told.message,
              new RegExp(`^${place(row.says).split('…').map(escape).join('.*')}$`, 's'),
            );
          } finally {
            await server.close();
          }
        },
      );
    }
  });
}

test('docs/recipes.md has the table of misconfigurations', () => {
  const text = readFileSync(join(root, 'docs', 'recipes.md'), 'utf8');
  assert.ok(text.includes(markdown()), `put this into docs/recipes.md:\n${markdown()}`);
});
