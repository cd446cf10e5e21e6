// site/bench.html in Chromium on the software adapter with the sample model: it runs to the end and
// fills its table. Also the chat page with the GPU switched on.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { longOnly } from '../extent.mjs';
import { launchChromiumGpu } from './gpu-drivers.mjs';
import { lowContrast, tooWide, unnamed } from './page-checks.mjs';
import { idle, load, openSite, say, shows, until } from './page-site.mjs';

let pages;
before(async () => (pages = await openSite('site-bench', { start: launchChromiumGpu })));
after(() => pages.close());

test('measures CPU and GPU, and prints a table to copy', { skip: longOnly }, () =>
  pages.withTabs(async (open, context) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], {
      origin: pages.server.url,
    });
    const page = await open('bench.html');
    for (const [id, value] of [
      ['prompt', 40],
      ['answer', 4],
      ['times', 1],
    ])
      await page.fill(`#${id}`, String(value));
    await page.click('#start');
    await until(page, () => !document.querySelector('#start').disabled);
    assert.equal(await page.textContent('#now'), 'Done.', await page.textContent('#now'));
    const text = await page.textContent('#table');
    const [head, line, ...rows] = text
      .split('\n')
      .filter((row) => row.startsWith('|'))
      .map((row) =>
        row
          .slice(1, -1)
          .split('|')
          .map((cell) => cell.trim()),
      );
    assert.deepEqual([head.length, rows.length], [7, 2], text);
    assert.ok(line.every((cell) => /^-+$/.test(cell)));
    const [cpu, gpu] = rows;
    assert.match(cpu[0], /^CPU, \d+ threads?, wasm/);
    for (const row of rows) {
      for (const cell of [row[1], row[2]])
        assert.ok(Number(cell) > 0 && Number.isFinite(Number(cell)), text);
      for (const cell of [row[3], row[6]]) assert.match(cell, /^\d+(\.\d+)? [kMG]?B$/, text);
    }
    assert.deepEqual(cpu.slice(4, 6), ['–', '–']);
    assert.match(gpu[4], /^\d+ %$/);
    const [dispatches, submits] = gpu[5].split(', ').map(Number);
    assert.ok(dispatches > 0 && submits >= 1, text);
    assert.match(
      text,
      /^Model: .+ \(llama, 1\.\d+ MB, Q8_0\), 40 prompt tokens, 4 generated tokens, best of 1$/m,
    );
    assert.match(text, /^GPU: .+, copies .+\/s$/m);
    assert.match(text, /^device: 'auto': The CPU computes: measured/m);
    assert.doesNotMatch(text, /NaN|Infinity|undefined/);
    await page.click('#copy');
    await shows(page, '#now', /^Copied\.$/);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
    for (const check of [lowContrast, tooWide, unnamed])
      assert.deepEqual(await page.evaluate(check), [], check.name);
  }),
);

test('a missing model is reported', () =>
  pages.withTabs(
    async (open) => {
      const page = await open('bench.html');
      await page.fill('#model', 'models/none.gguf');
      await page.click('#start');
      await shows(page, '#now', /404/);
    },
    { expected: /404/ },
  ));

test('the chat page shows the GPU and its memory when it is switched on', { skip: longOnly }, () =>
  pages.withTabs(async (open) => {
    const page = await open('?model=/models/sluice-tales-Q8_0.gguf');
    await page.selectOption('#context', '128');
    await page.selectOption('#device', 'webgpu');
    await load(page);
    await page.evaluate(() => (document.querySelector('[name=maxTokens]').value = 4));
    await say(page, 'Tell me a story.');
    await until(page, () => document.querySelector('.assistant .body')?.textContent.length > 3);
    await idle(page);
    await shows(page, '#figures', /Device(?!CPU).+[kM]B on the GPU/);
    await page.click('#source summary');
    await page.selectOption('#device', 'auto');
    await page.click('#check');
    await shows(page, '#preflight', /Device.*software adapter/s);
  }),
);
