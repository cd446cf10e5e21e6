// The example page in Chromium as people use it: with a pointer, with the keyboard only, on a
// phone, in both themes, over a slow network, with wrong addresses. Screenshots go to
// build/screenshots.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin } from './chromium.mjs';
import { root } from './helpers.mjs';
import { lowContrast, smallTargets, tooWide, unnamed } from './page-checks.mjs';
import { idle, inSettings, kept, load, models, openSite, ready, say, shows } from './page-site.mjs';

const shots = join(root, 'build', 'screenshots');
const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const asked = []; // ranges requested of models
let server;
let pages;

before(async () => {
  rmSync(shots, { recursive: true, force: true });
  mkdirSync(shots, { recursive: true });
  const onRequest = ({ url, headers }) =>
    void (url.startsWith('/models/') && asked.push(headers.range ?? 'no range'));
  pages = await openSite('site', { onRequest });
  server = pages.server;
  writeFileSync(
    join(pages.site, 'endless.gguf'),
    withoutEnd(readFileSync(join(models, 'sluice-tales-F16.gguf'))),
  );
});
after(() => pages.close());

/**
 * Opens the page; if `query` names a model, loads it. `expected` matches error messages that the
 * test provokes.
 */
const withPage = (options, work, { query = '', context = '', ...more } = {}) =>
  pages.withTabs(
    async (open) => {
      const page = await open(query);
      if (context) await page.selectOption('#context', context);
      if (query) await page.click('#load');
      await work(page);
    },
    { ...options, ...more },
  );

/**
 * The model with end tokens that it never generates: otherwise a story would end after 200 tokens,
 * before a key is pressed.
 */
function withoutEnd(bytes) {
  for (const [name, other] of [
    ['<|endoftext|>', '<|endoftexT|>'],
    ['<|end|>', '<|enD|>'],
  ])
    bytes.write(other, bytes.indexOf(name));
  for (const key of ['eos', 'eot']) {
    const name = `tokenizer.ggml.${key}_token_id`;
    bytes.writeUInt32LE(5, bytes.indexOf(name) + name.length + 4); // after the value's type
  }
  return bytes;
}

const model = '?model=/models/sluice-tales-F16.gguf&budget=1700000';
// A text that takes many seconds to generate.
const endless = { query: '?model=/endless.gguf', context: '4096' };
const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });

async function holds(page, label, checks = [lowContrast, tooWide, unnamed]) {
  for (const check of checks)
    assert.deepEqual(await page.evaluate(check), [], `${label}: ${check.name}`);
}

/** Sets the maximum number of tokens without opening the settings. */
const limit = (page, tokens) =>
  page.evaluate((n) => (document.querySelector('[name=maxTokens]').value = n), tokens);

/**
 * Starts a text that lasts for seconds, and waits until more than `length` characters are shown.
 */
async function beginText(page, length) {
  await ready(page);
  await page.check('[name=mode][value=text]', { force: true });
  await limit(page, 100_000);
  await say(page, 'Once upon a time');
  await page.waitForFunction(
    (most) => document.querySelector('.assistant')?.textContent.length > most,
    length,
  );
}

for (const theme of ['light', 'dark']) {
  test(
    `every state is readable in the ${theme} theme`,
    { skip: theme === 'dark' && longOnly },
    () =>
      withPage(
        { colorScheme: theme },
        async (page) => {
          await holds(page, 'empty');
          await shot(page, `${theme}-empty`);
          await page.fill('#url', '/models/sluice-tales-Q8_0.gguf');
          await page.click('#check');
          await page.waitForSelector('#preflight dl');
          await holds(page, 'preflight');
          await shot(page, `${theme}-preflight`);
          await page.click('[data-sample]');
          await ready(page);
          await limit(page, 40);
          await say(page, 'Tell me a story about a dog and a boat.');
          await page.waitForSelector('.note:not(:empty)');
          assert.match(await page.textContent('.note'), /^40 tokens · [\d.]+ tokens\/s/);
          await shows(page, '#figures', /tokens\/s.*tokens\/s/);
          await shows(page, '#layers', /100 % in memory/, 'aria-label');
          assert.equal(await page.locator('#layers i').count(), 5, 'four layers and the output');
          await holds(page, 'talk');
          await shot(page, `${theme}-talk`);
          await inSettings(page, async () => {
            await holds(page, 'settings');
            await shot(page, `${theme}-settings`);
          });
          await page.click('#source summary');
          await page.fill('#url', `${server.url}/models/none.gguf`);
          await page.click('#check');
          await page.waitForSelector('#problem:visible');
          await holds(page, 'problem');
          await shot(page, `${theme}-problem`);
        },
        { expected: /404/ },
      ),
  );
}

test("a mixture's figures have the hit rate of its experts", async () => {
  const figure = /Experts(\d+) % hits[\d.]+ k?B read per token/;
  writeFileSync(
    join(pages.site, 'mixture.gguf'),
    readFileSync(join(root, 'tests', 'data', 'families', 'qwen3moe.gguf')),
  );
  await withPage(
    {},
    async (page) => {
      await ready(page);
      await page.check('[name=mode][value=text]', { force: true });
      await limit(page, 40);
      await say(page, 'Once upon a time');
      await idle(page);
      await shows(page, '#figures', figure);
      assert.ok(Number(figure.exec(await page.textContent('#figures'))[1]) < 100);
    },
    { query: '?model=/mixture.gguf&budget=1400000' },
  );
  await withPage(
    {},
    async (page) => {
      await ready(page);
      await shows(page, '#figures', /Threads/);
      assert.doesNotMatch(await page.textContent('#figures'), /Experts/);
    },
    { query: model },
  );
});

test('the theme follows the system until it is switched, and is remembered then', () =>
  withPage({ colorScheme: 'dark' }, async (page) => {
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    await page.emulateMedia({ colorScheme: 'light' });
    const light = await background();
    assert.notEqual(dark, light);
    await page.click('#theme'); // light
    await page.click('#theme'); // dark
    assert.equal(await page.getAttribute('#theme', 'aria-label'), 'Theme: dark');
    assert.equal(await background(), dark);
    await page.reload();
    assert.equal(await background(), dark);
  }));

test('on a phone of 360 pixels every pane fits and can be tapped', { skip: longOnly }, () =>
  withPage(
    phone,
    async (page) => {
      await ready(page);
      await limit(page, 30);
      for (const text of [
        'Tell me a story about a dog and a boat with a very long name.',
        'What was his name?',
      ]) {
        await say(page, text);
        await idle(page);
      }
      assert.match(
        await page.locator('.note').last().textContent(),
        /\d+ of \d+ prompt tokens computed/,
      );
      for (const pane of ['talks', 'model', 'engine', 'talk']) {
        await page.tap(`.panes [data-pane=${pane}]`);
        if (pane === 'model')
          for (const part of ['#finder', '#source', '#plan', '#stored'])
            await page.tap(`${part} > summary`);
        await holds(page, pane, [lowContrast, smallTargets, tooWide, unnamed]);
        await shot(page, `phone-${pane}`);
      }
      await inSettings(page, () => holds(page, 'settings', [smallTargets, tooWide]));
    },
    { query: model },
  ),
);

test('reports on a model before its download; the budget changes the plan, then the engine', () =>
  withPage({}, async (page) => {
    asked.length = 0;
    await page.fill('#url', `${server.url}/models/sluice-tales-F16.gguf`);
    await page.press('#url', 'Tab');
    await page.waitForSelector('#preflight dl');
    assert.match(
      await page.textContent('#preflight'),
      /Runs here: all 1\.[89]\d MB stay.*Expected.*tokens\/s.*Needs at least.*MB.*Download.*llama/s,
    );
    assert.ok(
      asked.length > 0 && asked.every((range) => /^bytes=0-(65535|1048575)$/.test(range)),
      asked.join(),
    );
    await page.focus('#budget');
    for (let i = 0; i < 8; i++) await page.keyboard.press('PageDown');
    await page.waitForFunction(() =>
      /are streamed for every token/.test(document.querySelector('#preflight').textContent),
    );
    assert.match(await page.getAttribute('#budget', 'aria-valuetext'), /MB/);
    await page.click('#load');
    await ready(page);
    const small = await page.textContent('#memory-text');
    await page.focus('#budget');
    await page.keyboard.press('End');
    await page.waitForFunction(
      (text) => document.querySelector('#memory-text').textContent !== text,
      small,
    );
    await shows(page, '#layers-text', /100 % in memory/);
    await page.waitForSelector('#budget:enabled:focus');
    await limit(page, 8);
    await say(page, 'Hello');
    await page.waitForSelector('.note:not(:empty)');
  }));

test('stopping keeps the text; conversations survive a reload and can be renamed and deleted', () =>
  withPage(
    {},
    async (page) => {
      await beginText(page, 90);
      await page.keyboard.press('Escape');
      await page.waitForSelector('.note:not(:empty)');
      assert.match(await page.textContent('.note'), /stopped/);
      const partial = await page.textContent('.assistant .body');
      assert.match(partial, /^Once upon a time.{40}/s);
      await page.click('#new-talk');
      await page.check('[name=mode][value=chat]', { force: true });
      await limit(page, 8);
      await say(page, 'Tell me a story about a fox.');
      await idle(page);
      await page.waitForSelector('.note:not(:empty)');

      await page.goto(`${server.url}/`);
      await page.waitForSelector('#talk-list li:nth-child(2)');
      assert.deepEqual(await page.locator('#talk-list .name').allTextContents(), [
        'Tell me a story about a fox.',
        'Once upon a time',
      ]);
      assert.equal(await page.textContent('.user .body'), 'Tell me a story about a fox.');
      await page.click('#talk-list li:nth-child(2) .pick');
      assert.equal(await page.textContent('.assistant .body'), partial);

      await page.click('[aria-label="Rename Once upon a time"]');
      await page.keyboard.type('The beginning');
      await page.keyboard.press('Enter');
      await page.waitForSelector('[aria-label="Rename The beginning"]:focus');
      await page.click('[aria-label="Delete The beginning"]');
      await page.click('[aria-label^="Really delete"]');
      await page.waitForSelector('#talk-list li:nth-child(2)', { state: 'detached' });
      await page.reload(); // at once: a deleted conversation must not come back
      await page.waitForSelector('#talk-list li');
      assert.deepEqual(await page.locator('#talk-list .name').allTextContents(), [
        'Tell me a story about a fox.',
      ]);
    },
    endless,
  ));

test('a conversation deleted during its answer does not come back', () =>
  withPage(
    {},
    async (page) => {
      await beginText(page, 60);
      await page.click('[aria-label="Delete Once upon a time"]');
      await page.click('[aria-label^="Really delete"]');
      await page.waitForSelector('#no-talks:visible');
      await idle(page);
      await page.waitForTimeout(300); // a stopped answer is stored once more
      assert.equal(await page.locator('#talk-list li').count(), 0);
      await page.reload();
      await load(page);
      assert.equal(await page.locator('#talk-list li').count(), 0);
    },
    endless,
  ));

test('a reload during an answer keeps the text so far', { skip: longOnly }, () =>
  withPage(
    {},
    async (page) => {
      await beginText(page, 60);
      // The answer is stored once a second.
      await kept(page, ([talk]) => talk?.turns[1]?.content.length > 40);
      await page.goto(`${server.url}/`);
      await page.waitForSelector('.assistant');
      assert.match(await page.textContent('.assistant .body'), /^Once upon a time.{20}/s);
    },
    endless,
  ),
);

test('keyboard only: from the top of the page to an answer, a line break, stop and delete', () =>
  withPage({}, async (page) => {
    await page.keyboard.press('Tab');
    assert.equal(await page.textContent(':focus'), 'Skip to the prompt');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
    const tabTo = async (what, key = 'Tab') => {
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press(key);
        if (await page.evaluate((selector) => document.activeElement.matches(selector), what))
          return;
      }
      assert.fail(`${what} cannot be reached with Tab`);
    };
    await tabTo('#url');
    await page.keyboard.type(`${server.url}/models/sluice-tales-Q8_0.gguf`);
    await page.keyboard.press('Enter');
    await ready(page);
    await page.waitForSelector('#prompt:focus'); // ready to write
    await page.keyboard.type('Tell me a story');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('about a fox.');
    assert.equal(await page.inputValue('#prompt'), 'Tell me a story\nabout a fox.');
    await limit(page, 100_000);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.assistant')?.textContent.length > 12);
    await page.keyboard.press('Escape');
    await page.waitForSelector('.note:not(:empty)');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt', 'the focus stays');
    await tabTo('[aria-label="Delete Tell me a story about a fox."]', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#no-talks:visible');
    assert.equal(
      await page.evaluate(() => document.activeElement.id),
      'new-talk',
      'the focus is not lost',
    );
  }));

test(
  'answers are announced sentence by sentence, and reduced motion is respected',
  { skip: longOnly },
  () =>
    withPage(
      { reducedMotion: 'reduce' },
      async (page) => {
        await ready(page);
        await page.evaluate(() => {
          window.spoken = [];
          new MutationObserver((list) =>
            list.forEach(({ addedNodes }) => addedNodes.forEach((n) => spoken.push(n.textContent))),
          ).observe(document.getElementById('announcer'), { childList: true });
        });
        await limit(page, 90);
        await say(page, 'Tell me a story about a dog and a boat.');
        await page.waitForSelector('.note:not(:empty)');
        const moving = () =>
          page.evaluate(() => {
            // The cursor at the end of an answer while it is written.
            const answer = document.querySelector('.assistant');
            answer.classList.add('busy');
            const { animationName, content } = getComputedStyle(
              answer.querySelector('.body > :last-child'),
              '::after',
            );
            answer.classList.remove('busy');
            return [animationName === 'none', content === 'none'];
          });
        assert.deepEqual(await moving(), [true, false]);
        await page.emulateMedia({ reducedMotion: 'no-preference' });
        assert.deepEqual(await moving(), [false, false]);
        const spoken = await page.evaluate(() => window.spoken);
        const tokens = Number(/^(\d+) tokens/.exec(await page.textContent('.note'))[1]);
        assert.ok(
          spoken.length >= 1 && spoken.length < tokens / 4,
          `${spoken.length} announcements for ${tokens} tokens`,
        );
        const flat = (text) => text.replace(/\s+/g, '');
        assert.equal(flat(spoken.join('')), flat(await page.textContent('.assistant .body')));
        assert.equal(await page.getAttribute('#log', 'aria-live'), 'off');
        assert.equal(await page.getAttribute('#announcer', 'aria-live'), 'polite');
      },
      { query: model },
    ),
);

test('a JSON answer grows as a tree and stays one; the engine was loaded before the schema', () =>
  withPage(
    {},
    async (page) => {
      await ready(page);
      await page.click('#settings-open');
      await page.fill('#schema', '{"type": "object", "properties": {');
      await shows(page, '#schema-wrong', /^This is not a JSON schema: .*JSON/);
      await holds(page, 'no schema');
      await page.keyboard.press('Escape');
      await page.fill('#prompt', 'Tell me of animals.');
      await page.press('#prompt', 'Enter');
      await page.waitForSelector('#settings[open] #schema:focus'); // nothing was sent
      assert.equal(await page.locator('.message').count(), 0);
      const animals = { type: 'array', minItems: 2, maxItems: 2, items: { enum: ['dog', 'fox'] } };
      const story = { type: 'string', minLength: 200, maxLength: 240 };
      const properties = {
        animals,
        sure: { const: true },
        text: { const: '5' },
        story,
        place: {
          type: 'object',
          properties: { far: { type: 'boolean' } },
          required: ['far'],
          additionalProperties: false,
        },
      };
      await page.fill(
        '#schema',
        JSON.stringify({
          type: 'object',
          properties,
          required: Object.keys(properties),
          additionalProperties: false,
        }),
      );
      await page.waitForSelector('#schema-wrong', { state: 'hidden' });
      await page.keyboard.press('Escape');
      await page.evaluate(() => {
        // A busy machine renders few frames.
        window.requestAnimationFrame = (draw) => (queueMicrotask(() => draw(performance.now())), 1);
        window.stories = new Set();
        new MutationObserver(() =>
          stories.add(document.querySelector('.tree [data-name=story]')?.textContent ?? ''),
        ).observe(document.querySelector('#log'), { subtree: true, childList: true });
      });

      await limit(page, 400);
      await say(page, 'Tell me of animals.');
      await page.waitForSelector('.tree');
      await idle(page);
      const rows = () =>
        page
          .locator('.tree li')
          .evaluateAll((items) => items.map((item) => item.innerText.split('\n')[0].trim()));
      const shown = await rows();
      assert.match(shown[0], /^animals:?\s*2 items$/);
      assert.ok(
        shown.slice(1, 3).every((item) => /^"(dog|fox)"$/.test(item)),
        `${shown}`,
      );
      assert.match(shown[3], /^sure.*true$/);
      assert.match(shown[4], /^text.*"5"$/);
      assert.match(shown.at(-1), /^far.*(true|false)$/);
      const parts = await page.evaluate(() =>
        [...stories].filter((text) => text.startsWith('story')),
      );
      assert.ok(parts.length > 1, `${parts.length} states of the story`);
      assert.ok(
        parts.every(
          (part, i) => i === 0 || part.slice(0, -1).startsWith(parts[i - 1].slice(0, -1)),
        ),
        JSON.stringify(parts),
      );
      await holds(page, 'tree');
      await shot(page, 'tree');

      await page.click('.tree details:has([data-name="0"]) summary');
      await page.waitForSelector('.tree [data-name="0"]', { state: 'hidden' });
      await page.reload();
      await page.waitForSelector('.tree');
      assert.deepEqual(await rows(), shown);
      assert.match(await page.inputValue('#schema'), /"animals"/);
    },
    { query: '?model=/models/sluice-tales-F16.gguf' },
  ));

test(
  'lists cached models, deletes them, evicts the oldest, and reports a model in use',
  { skip: longOnly },
  () =>
    withPage({}, async (page) => {
      for (const name of ['Q4_0', 'Q8_0']) {
        await page.goto(`${server.url}/?model=/models/sluice-tales-${name}.gguf`);
        await load(page);
        await page.waitForFunction(
          (n) => document.querySelectorAll('#stored-list li').length === n,
          name === 'Q4_0' ? 1 : 2,
        );
      }
      await page.click('#stored > summary');
      await page.waitForFunction(() =>
        /597 kB · used/.test(document.querySelector('#stored-list').textContent),
      );
      await page.click('[aria-label="Delete sluice-tales-Q8_0.gguf"]');
      await page.click('[aria-label^="Really delete"]');
      await page.waitForSelector('#problem:visible');
      assert.match(await page.textContent('#problem'), /in use.*Unload it.*CACHE_LOCKED/s);
      await page.click('#evict');
      await page.waitForFunction(() => document.querySelectorAll('#stored-list li').length === 1);
      assert.match(await page.textContent('#stored-list'), /Q8_0/);
      await page.click('#unload');
      await page.click('[aria-label="Delete sluice-tales-Q8_0.gguf"]');
      await page.click('[aria-label^="Really delete"]');
      await page.waitForSelector('#stored', { state: 'hidden' });
    }),
);

test('a download can be paused and resumes where it was', async (t) => {
  const size = statSync(join(models, 'sluice-tales-F16.gguf')).size;
  let slowly = true; // slows down everything after the header
  const slow = await serve([['/', models]], {
    onRequest: (request, response) => {
      if (slowly && !/^bytes=0-/.test(request.headers.range)) slow.rate = 150_000;
      return crossOrigin.onRequest(request, response);
    },
  });
  t.after(() => slow.close());
  await withPage(
    {},
    async (page) => {
      await page.waitForSelector('#pause:visible');
      await page.waitForFunction(() =>
        /(\d+ kB|1\.\d+ MB) of 2\.01 MB/.test(document.querySelector('#progress-text').textContent),
      );
      await page.click('#pause');
      await page.waitForFunction(() =>
        /^Paused at \d+ %/.test(document.querySelector('#progress-text').textContent),
      );
      assert.equal(await page.textContent('#pause'), 'Resume');
      assert.equal(await page.evaluate(() => document.body.classList.contains('loaded')), false);
      const before = slow.counters.bytes;
      slowly = false;
      slow.rate = 0;
      await page.click('#pause');
      await ready(page);
      await page.waitForSelector('#progress', { state: 'hidden' });
      assert.ok(
        slow.counters.bytes - before < size,
        'the bytes before the pause were not fetched again',
      );
    },
    { query: `?model=${slow.url}/sluice-tales-F16.gguf` },
  );
});

test('errors are explained: what happened, what to do, and a folded line with the code', () =>
  withPage(
    {},
    async (page) => {
      await page.evaluate(() => {
        // Gives up soon on requests that fail.
        const { postMessage } = Worker.prototype;
        Worker.prototype.postMessage = function (message, ...more) {
          const io = message?.args?.[0]?.io;
          if (io) io.tuning = { retryMs: 1, retryMaxMs: 5 };
          return postMessage.call(this, message, ...more);
        };
      });
      const problem = async (address, expected) => {
        await page.fill('#url', '');
        await page.fill('#url', address);
        await page.click('#check');
        await page.waitForFunction(
          (source) => new RegExp(source, 's').test(document.querySelector('#problem').textContent),
          expected.source,
        );
        assert.equal(await page.getAttribute('#problem', 'role'), 'alert');
      };
      await problem(
        `${server.url}/models/none.gguf`,
        /^There is no file at this address.*Check the address.*HTTP_STATUS: .*404/,
      );
      await problem(
        `${server.url}/index.html`,
        /not a model file.*address must be that of the file itself.*NOT_GGUF/,
      );
      await problem('http://[bad', /“http:\/\/\[bad” is not a valid URL.*INVALID_ARGUMENT/);
      await problem(
        'http://localhost:1/x.gguf',
        /cannot be reached.*download the file and drop it here.*NETWORK/,
      );
      assert.doesNotMatch(
        await page.locator('#problem').innerText(),
        /[A-Z]{3}_|[A-Z]{6}/,
        'a code outside of the folded line',
      );
      await page.goto(`${server.url}/?model=/models/sluice-tales-F16.gguf&budget=800000`);
      await page.click('#load');
      await page.waitForFunction(() =>
        /the smallest that works is 1\.\d+ MB.*Raise the budget.*BUDGET_TOO_SMALL.*Use/s.test(
          document.querySelector('#problem').textContent,
        ),
      );
      await page.click('#problem button');
      await page.waitForSelector('#preflight dl');
      await page.click('#load');
      await ready(page);
    },
    { expected: /404|ERR_CONNECTION_REFUSED|ERR_UNSAFE_PORT/ },
  ));

test('a file can be dropped anywhere', () =>
  withPage({}, async (page) => {
    const bytes = readFileSync(join(models, 'sluice-tales-Q4_0.gguf')).toString('base64');
    await page.evaluate((text) => {
      const data = new DataTransfer();
      data.items.add(
        new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], 'dropped.gguf'),
      );
      document.body.dispatchEvent(new DragEvent('dragover', { dataTransfer: data, bubbles: true }));
      window.shown = !document.getElementById('drop').hidden;
      document.body.dispatchEvent(
        new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }),
      );
    }, bytes);
    assert.equal(await page.evaluate(() => window.shown), true);
    await page.waitForSelector('#preflight dl');
    assert.match(await page.textContent('#file-name'), /dropped\.gguf \(597 kB\)/);
    await page.click('#load');
    await ready(page);
  }));

test(
  'Copy copies the answer, Answer again replaces it, code is shown as code',
  { skip: longOnly },
  () =>
    withPage(
      { permissions: ['clipboard-read', 'clipboard-write'] },
      async (page) => {
        await ready(page);
        await limit(page, 12);
        await say(page, 'Tell me a story about a fox.');
        await page.waitForSelector('.note:not(:empty)');
        await page.click('[aria-label=Copy]');
        await shows(page, '#announcer', /Copied/);
        assert.equal(
          await page.evaluate(() => navigator.clipboard.readText()),
          await page.textContent('.assistant .body'),
        );
        await page.click('[aria-label="Answer again"]');
        await page.waitForSelector('.note:not(:empty)');
        assert.equal(await page.locator('.message').count(), 2);
      },
      { query: model },
    ),
);

test('a static host without isolation and service worker works with one thread', async (t) => {
  const plain = await serve([['/', pages.site]], { isolation: false });
  t.after(() => plain.close());
  await withPage(
    { serviceWorkers: 'block' },
    async (page) => {
      await page.click('[data-sample]');
      await ready(page);
      await limit(page, 8);
      await say(page, 'Hello');
      await page.waitForSelector('.note:not(:empty)');
      assert.match(await page.textContent('#isolation'), /one thread/);
    },
    { from: plain },
  );
});
