// What a newcomer meets on the page: models to try, the search on Hugging Face (a server stands in
// for it), the budget slider, waiting, wrong settings, failures. Over the stand-in of page-engine/.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { crossOrigin } from './chromium.mjs';
import { ask, inSettings, load, model, openSite, say, shows, until } from './page-site.mjs';

let pages;
let hub;
/** Status and body that the hub answers a path with, and the paths that were asked for. */
let answers;
let asked;

before(async () => {
  pages = await openSite('site-newcomer', { fake: true });
  hub = await serve([], {
    onRequest(request, response) {
      crossOrigin.onRequest(request, response);
      asked.push(request.url);
      const [, answer] =
        Object.entries(answers).find(([path]) => request.url.startsWith(path)) ?? [];
      const [status, body] = answer ?? [404, {}];
      response
        .writeHead(status, { 'Content-Type': 'application/json' })
        .end(typeof body === 'string' ? body : JSON.stringify(body));
      return true;
    },
  });
  const index = join(pages.site, 'index.html');
  writeFileSync(index, readFileSync(index, 'utf8').replace('https://huggingface.co', hub.url));
});
after(async () => {
  await pages.close();
  await hub.close();
});
beforeEach(() => {
  asked = [];
  answers = {
    '/api/models?': [
      200,
      [
        { id: 'owner/small-GGUF', downloads: 1200 },
        { id: 'owner/closed-GGUF', downloads: 7, gated: 'auto' },
        { id: '../../etc', downloads: 1 },
      ],
    ],
    '/api/models/owner/small-GGUF/tree/main': [
      200,
      [
        { type: 'file', path: 'README.md', size: 10 },
        { type: 'file', path: 'small-Q4_K_M.gguf', size: 400e6 },
        { type: 'file', path: 'small-F16-00001-of-00002.gguf', size: 9e9 },
        { type: 'file', path: 'small-F16-00002-of-00002.gguf', size: 9e9 },
        { type: 'file', path: 'mmproj-small.gguf', size: 5e6 },
      ],
    ],
  };
});

const kNoneExpected = { expected: /status of (401|403|404|429|500)|ERR_INTERNET_DISCONNECTED/ };
const rows = (page) => page.locator('#find-list .pick').allInnerTexts();
const status = (page, pattern) => shows(page, '#find-status', pattern);
const visible = (page, selector) => page.locator(selector).innerText();

test('models to try have sizes, and the largest that fits is recommended', () =>
  pages.withTabs(async (open, context) => {
    await context.addInitScript(() => {
      const value = location.hash === '#8' ? 8 : 4;
      Object.defineProperty(navigator, 'deviceMemory', { value });
    });
    const a = await open();
    const recommended = () => visible(a, '#find-list li:has(.badge)');
    assert.match(await recommended(), /^Gemma 2 2B\s+[\d.]+ GB · fits in memory\s+Recommended/);
    assert.match((await rows(a)).at(-1), /^Qwen3 8B\s+[\d.]+ GB · streams: slower$/);
    await a.evaluate(() => (location.hash = '#8'));
    await a.reload();
    assert.match(await recommended(), /^Qwen3 4B/);
    await a.click('#find-list .pick');
    await a.waitForSelector('#preflight dl');
    assert.match(await a.inputValue('#url'), /^hf:HuggingFaceTB\/.*\.gguf$/);
    assert.equal(asked.length, 0, 'nothing was asked before a search');
  }));

test('a search lists repositories, then files by quantization with what fits', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.fill('#find', 'small');
    await status(a, /^Found on Hugging Face: 2$/);
    assert.deepEqual(await rows(a), [
      'owner/small-GGUF\n1,200 downloads',
      'owner/closed-GGUF\n7 downloads · asks for a sign-in',
    ]);
    const [query] = asked;
    assert.match(query, /search=small&filter=gguf/);
    await a.click('#find-list .pick');
    await status(a, /^Files of owner\/small-GGUF:/);
    assert.deepEqual(await rows(a), [
      'Q4_K_M\n400 MB · fits in memory',
      'F16\n18.0 GB · 2 parts · streams: slower',
    ]);
    await a.click('#find-list .pick');
    await a.waitForSelector('#preflight dl');
    assert.equal(
      await a.inputValue('#url'),
      `${hub.url}/owner/small-GGUF/resolve/main/small-Q4_K_M.gguf`,
    );
    await a.click('#find-list button:has-text("Back")');
    await a.waitForSelector('#find:focus');
    await a.fill('#find', '');
    await status(a, /^Models to try/);
  }));

test('a search that fails says why in plain words', () =>
  pages.withTabs(async (open, context) => {
    const a = await open();
    const search = async (answer, pattern, path = '/api/models?') => {
      answers[path] = answer;
      await a.fill('#find', `any${asked.length}`);
      await a.press('#find', 'Enter');
      await status(a, pattern);
      assert.doesNotMatch(await visible(a, '.pane-model'), /\b[1-5]\d\d\b.*answer|[A-Z]{4}_/);
    };
    await search([429, {}], /too many requests\. Try again in a few minutes/);
    await search([500, {}], /Hugging Face has a problem/);
    await search([200, '<html>'], /sent no list of models/);
    await search([200, []], /No model of this name/);
    answers['/api/models?'] = [200, [{ id: 'owner/closed-GGUF', gated: 'auto' }]];
    for (const [code, pattern] of [
      [401, /asks for a sign-in\. Download a file there and drop it here/],
      [404, /does not exist any more/],
    ]) {
      await a.fill('#find', `closed${code}`);
      await status(a, /^Found/);
      answers['/api/models/owner/closed-GGUF/tree/main'] = [code, {}];
      await a.click('#find-list .pick');
      await status(a, pattern);
    }
    await context.setOffline(true);
    await status(a, /^You are offline\. The search needs a connection/);
    await a.fill('#find', '');
    await status(a, /^You are offline\. These models need a connection/);
    await context.setOffline(false);
    await status(a, /^Models to try/);
  }, kNoneExpected));

test('a name or a page of Hugging Face as the address is looked up there', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.fill('#url', 'small');
    await a.click('#check');
    await status(a, /^Found on Hugging Face: 2$/);
    await a.fill('#url', 'https://huggingface.co/owner/small-GGUF/tree/main');
    await a.click('#load');
    await status(a, /^Files of owner\/small-GGUF:/);
    answers['/api/models/owner/large/tree/main'] = [200, []];
    await a.fill('#url', 'https://huggingface.co/owner/large');
    await a.press('#url', 'Enter');
    await status(a, /^owner\/large has no GGUF file/);
    await a.click('#find-list .pick');
    await a.waitForSelector('#preflight dl');
    await a.fill('#url', 'https://huggingface.co/owner/x/blob/main/x.gguf?a=1');
    await a.click('#check');
    const seen = () => a.evaluate(() => [...new Set(fake.inspected.map(([url]) => url))]);
    await until(a, () => fake.inspected.at(-1)[0].startsWith('https:'));
    assert.deepEqual(await seen(), [
      'hf:owner/large',
      'https://huggingface.co/owner/x/resolve/main/x.gguf?a=1',
    ]);
  }));

test('addresses that no page can read are refused at once', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    for (const address of ['ftp://host/m.gguf', 'file:///m.gguf', 'C:\\m.gguf', 'javascript:0']) {
      await a.fill('#url', address);
      await a.click('#load');
      await shows(a, '#problem', /^The page reads https addresses and files that you choose/);
      assert.equal(await a.locator('#problem details').count(), 0);
    }
    assert.deepEqual(await a.evaluate(() => fake.loaded), []);
  }));

test('the budget moves in even steps of bytes, from the smallest to automatic', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    const value = () => a.textContent('#budget-value');
    assert.match(await value(), /^automatic, up to [\d.]+ GB$/);
    await a.fill('#url', '/models/any.gguf');
    await a.click('#check');
    await a.waitForSelector('#preflight dl');
    assert.match(await value(), /^automatic, up to [\d.]+ MB$/);
    await a.focus('#budget');
    await a.keyboard.press('Home');
    const seen = [];
    for (let i = 0; i < 60 && !seen.at(-1)?.startsWith('automatic'); i++) {
      seen.push(await value());
      assert.equal(await a.getAttribute('#budget', 'aria-valuetext'), seen.at(-1));
      await a.keyboard.press('ArrowRight');
    }
    assert.equal(seen[0], '1.05 MB'); // the plan's minimum, in whole pages
    assert.ok(seen.length > 20, `${seen}`);
    assert.match(seen.at(-1), /^automatic, up to [\d.]+ MB$/);
    const sizes = seen.slice(0, -1).map((text) => Number(/^([\d.]+) MB$/.exec(text)[1]));
    for (let i = 2; i < sizes.length; i++) {
      const [step, last] = [sizes[i] - sizes[i - 1], sizes[1] - sizes[0]];
      assert.ok(Math.abs(step - last) < 0.11, `${sizes}`); // two digits are shown
    }
  }));

test('with a running engine, several keys change the budget once', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.focus('#budget');
    await a.evaluate(() => {
      const slider = document.querySelector('#budget');
      for (let i = 0; i < 3; i++) {
        slider.stepDown(); // as a key does, but at once, however busy the machine is
        for (const event of ['input', 'change']) slider.dispatchEvent(new Event(event));
      }
    });
    await until(a, () => fake.budgets.length > 0);
    await a.waitForSelector('#budget:enabled:focus');
    await a.keyboard.press('End');
    await until(a, () => fake.budgets.length > 1);
    await shows(a, '#budget-value', /^automatic, up to [\d.]+ MB$/);
    const budgets = await a.evaluate(() => fake.budgets);
    assert.equal(budgets.length, 2);
    assert.equal(budgets[1], 'auto');
  }));

test('a waiting response says what it waits for', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(() => void (fake.gate = new Promise((begin) => (fake.begin = begin))));
    await say(a, 'Hello');
    const progress = (event) => a.evaluate((event) => fake.onProgress(event), event);
    const download = { phase: 'download', bytesTotal: 400e6, bytesPerSecond: 1e6 };
    await progress({ ...download, bytesLoaded: 100e6, secondsLeft: 300 });
    await shows(
      a,
      '.message.busy .waiting',
      /^Waiting for the model: 100 MB of 400 MB, about 5 min 0 s left$/,
    );
    await progress({ phase: 'prefill', tokens: 9, layer: 1, layers: 4 });
    await shows(a, '.waiting', /100 MB of 400 MB/);
    await progress({ ...download, bytesLoaded: 400e6 });
    await progress({ phase: 'prefill', tokens: 9, layer: 2, layers: 4 });
    await shows(a, '.waiting', /^Reading your prompt: 50 %$/);
    await a.evaluate(() => fake.begin());
    await shows(a, '.assistant .body', /^w0/);
    assert.equal(await a.locator('.waiting').count(), 0);
  }));

test('reasoning is shown apart, also after a reload', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(() => Object.assign(fake, { thinks: 5, words: 8 }));
    await ask(a, 'Hello');
    for (let i = 0; i < 2; i++) {
      await shows(a, '.thought summary', /^Reasoning$/);
      assert.equal(await a.textContent('.thought'), 'Reasoningw0 w1 w2 w3 w4. ');
      assert.equal(await a.textContent('.assistant .prose'), 'w5 w6 w7 ');
      if (i === 0) await a.reload();
    }
  }));

test('a failed turn keeps its sentence after a reload, without a code', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(
      () => (fake.fails = { generate: ['PROMPT_TOO_LONG', 'the prompt has 900 tokens'] }),
    );
    await ask(a, 'Hello');
    for (let i = 0; i < 2; i++) {
      await shows(a, '.message .problem', /^The prompt has 900 tokens\.Shorten it/);
      assert.doesNotMatch(await visible(a, '.pane-talk'), /PROMPT_TOO_LONG/);
      assert.equal(await visible(a, '.note'), 'failed');
      await a.click('.message .problem summary');
      assert.match(
        await visible(a, '.message .problem'),
        /PROMPT_TOO_LONG: the prompt has 900 tokens/,
      );
      await a.click('.message .problem summary');
      if (i === 0) await a.reload();
    }
  }));

test('wrong settings are named while typing, and nothing is sent with them', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await inSettings(a, async () => {
      await a.fill('[name=temperature]', '9');
      await shows(a, '#settings-wrong-text', /^Temperature: /);
      await a.fill('[name=temperature]', '0.75'); // between two steps
      await a.waitForSelector('#settings-wrong', { state: 'hidden' });
      await a.fill('[name=maxTokens]', '0');
    });
    await a.waitForSelector('#settings-wrong:visible');
    assert.equal(await a.isDisabled('#send'), true);
    await say(a, 'Hello');
    await a.waitForSelector('#settings[open]');
    await a.fill('[name=maxTokens]', '8');
    await a.keyboard.press('Escape');
    assert.equal(await a.inputValue('#prompt'), 'Hello');
    await ask(a, 'Hello');
    assert.equal(await a.locator('.user').count(), 1);
  }));

test('a schema that the engine cannot enforce is named while typing', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(() => {
      fake.engine.info.plan.grammar = 1; // loaded with structured output
      fake.engine.info.plan.resident = true;
      fake.fails = { generate: ['SCHEMA_UNSUPPORTED', 'at "/type": unknown type'] };
    });
    await inSettings(a, async () => {
      await a.fill('#schema', '{"type": "objet"}');
      await shows(a, '#schema-wrong', /^The JSON schema cannot be used: At "\/type": unknown type/);
      assert.equal(await a.isDisabled('#send'), true);
      await a.fill('#schema', '[]');
      await shows(a, '#schema-wrong', /must be an object or a boolean/);
      await a.fill('#schema', '{"type": "object"}');
    });
    await a.waitForSelector('#send:enabled');
  }));

test('instructions are never cut off', () =>
  pages.withTabs(
    async (open) => {
      const a = await open();
      await inSettings(a, async () => {
        await a.fill('#system', 'A line of instructions.\n'.repeat(30));
        const [inner, outer] = await a
          .locator('#system')
          .evaluate((field) => [field.scrollHeight, field.clientHeight]);
        assert.ok(outer >= inner, `${inner} in ${outer} pixels`);
      });
      await a.click('#settings-open');
      const field = a.locator('#system');
      assert.ok(await field.evaluate((e) => e.clientHeight >= e.scrollHeight), 'opened again');
    },
    { viewport: { width: 320, height: 640 } },
  ));

test('a report that cannot be finished disappears', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.evaluate(() => (fake.fails = { inspect: 'never' }));
    await a.fill('#url', '/models/first.gguf');
    await a.click('#check');
    await shows(a, '#preflight', /^Reading the header/);
    await a.fill('#url', '/models/second.gguf'); // another one is being typed
    await a.waitForSelector('#plan', { state: 'hidden' });
    await a.evaluate(() => (fake.fails = { inspect: 'never', load: ['NETWORK', 'no'] }));
    await a.click('#check');
    await shows(a, '#preflight', /^Reading the header/);
    await a.click('#load');
    await a.waitForSelector('#problem:visible');
    assert.equal(await a.isVisible('#plan'), false);
    await a.fill('#url', '/models/third.gguf');
    await a.waitForSelector('#problem', { state: 'hidden' });
  }));

test('files of every container can be chosen or dropped', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    const accepted = (await a.getAttribute('#file', 'accept')).split(',');
    for (const kind of ['.gguf', '.qsf', '.safetensors', '.json'])
      assert.ok(accepted.includes(kind), kind);
    await a.setInputFiles('#file', { name: 'm.qsf', mimeType: '', buffer: Buffer.from('QSF') });
    await shows(a, '#file-name', /^m\.qsf/);
    await a.waitForSelector('#preflight dl');
  }));

for (const colorScheme of ['light', 'dark'])
  test(`links have the color of the page: ${colorScheme}`, () =>
    pages.withTabs(
      async (open) => {
        const a = await open();
        const [link, accent] = await a.evaluate(() => {
          const probe = document.body.appendChild(document.createElement('i'));
          probe.style.color = 'var(--accent)';
          return [document.querySelector('.foot-note a'), probe].map(
            (e) => getComputedStyle(e).color,
          );
        });
        assert.equal(link, accent);
      },
      { colorScheme },
    ));
