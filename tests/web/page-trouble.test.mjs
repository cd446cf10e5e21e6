// The page in trouble: a database that is damaged, inaccessible or full, an invalid address, a link
// from elsewhere, an engine that fails, text that looks like HTML. It reports the problem and still
// works.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { root } from './helpers.mjs';
import { lowContrast, smallTargets, tooWide, unnamed } from './page-checks.mjs';
import { eventually } from './eventually.mjs';
import {
  ask,
  good,
  kept,
  listed,
  load,
  model,
  noticed,
  openSite,
  plant,
  ready,
  records,
  remove,
  rename,
  say,
  titles,
  until,
  users,
} from './page-site.mjs';

let pages;
let policy = null;
const onRequest = (_, response) =>
  void (policy && response.setHeader('Content-Security-Policy', policy));
before(async () => (pages = await openSite('site-trouble', { fake: true, onRequest })));
after(() => pages.close());

test('damaged records are skipped and counted, the others are shown', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.waitForSelector('#no-talks:visible');
    await plant(a, [
      good,
      { id: 'empty' },
      { ...good, id: 'turns', updated: 9, turns: 7 },
      { ...good, id: 'turn', turns: [null] },
      { ...good, id: 'time', updated: NaN },
      { ...good, id: 'mode', mode: 'no' },
      { ...good, id: 'role', turns: [{ role: 'system', content: '' }] },
      { ...good, id: 'content', updated: 8, turns: [{ role: 'user', content: { a: 1 } }] },
    ]);
    await a.goto(`${pages.server.url}/${model}`);
    await noticed(a, '7 stored conversations are damaged');
    assert.deepEqual(await titles(a), ['Good']);
    await load(a);
    await ask(a, 'More');
    assert.deepEqual(await users(a), ['Kept', 'More']);
    assert.equal((await records(a)).length, 8, 'no record was deleted');
  }));

test('a record that the browser cannot read does not affect the others', { skip: longOnly }, () =>
  pages.withTabs(async (open, context) => {
    const a = await open();
    await a.waitForSelector('#no-talks:visible');
    await plant(a, [good, { ...good, id: 'bad' }]);
    await context.addInitScript(() => {
      const { get } = IDBObjectStore.prototype;
      const fails = (key) => {
        if (key === 'bad')
          throw new DOMException('Failed to read large IndexedDB value', 'DataError');
      };
      IDBObjectStore.prototype.get = function (key) {
        return (fails(key), get.call(this, key));
      };
      IDBObjectStore.prototype.getAll = () => fails('bad');
    });
    await a.reload();
    await noticed(a, 'A stored conversation is damaged');
    assert.deepEqual(await titles(a), ['Good']);
  }),
);

for (const [what, spoil] of [
  [
    'that throws',
    () =>
      Object.defineProperty(globalThis, 'indexedDB', {
        get: () => {
          throw new DOMException('The operation is insecure.', 'SecurityError');
        },
      }),
  ],
  [
    'of a newer version',
    async () => {
      const { open } = IDBFactory.prototype;
      IDBFactory.prototype.open = function (name) {
        IDBFactory.prototype.open = open;
        open.call(indexedDB, name, 9).onsuccess = ({ target }) => target.result.close();
        return open.call(indexedDB, name, 1);
      };
    },
  ],
]) {
  test(
    `a database ${what}: the page works without it and reports it`,
    { skip: what !== 'that throws' && longOnly },
    () =>
      pages.withTabs(async (open, context) => {
        await context.addInitScript(spoil);
        const a = await open(model);
        await noticed(a, 'Conversations cannot be kept here: they last as long as this page.');
        await load(a);
        await ask(a, 'First');
        await rename(a, 'First', 'Renamed');
        await a.click('#new-talk');
        await ask(a, 'Second');
        await remove(a, 'Renamed');
        await listed(a, 1);
        assert.deepEqual(await titles(a), ['Second']);
      }),
  );
}

test('a full database is reported once, and everything is stored when there is space again', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await ask(a, 'First');
    await a.evaluate(() => {
      const { put } = IDBObjectStore.prototype;
      window.full = true;
      IDBObjectStore.prototype.put = function (value) {
        if (window.full)
          throw new DOMException('The quota has been exceeded.', 'QuotaExceededError');
        return put.call(this, value);
      };
    });
    await ask(a, 'Second');
    await noticed(a, 'A conversation could not be stored');
    assert.equal(await a.locator('.notice').count(), 1);
    await rename(a, 'First', 'Renamed');
    assert.deepEqual(await users(a), ['First', 'Second']);
    await remove(a, 'Renamed');
    await noticed(a, 'could not be deleted');
    await a.evaluate(() => (window.full = false));
    await ask(a, 'Third');
    const [record] = await kept(a, ([{ turns }]) => turns.length === 6);
    assert.equal(record.title, 'Renamed');
    const storing = a.locator('.notice', { hasText: 'could not be stored' });
    await storing.waitFor({ state: 'detached' });
    assert.deepEqual(
      record.turns.filter(({ role }) => role === 'user').map(({ content }) => content),
      ['First', 'Second', 'Third'],
    );
    await a.click('.notice button');
  }));

test('a link fills in the fields and sends no request before a click', () =>
  pages.withTabs(async (open, context) => {
    const foreign = [];
    await context.route(
      (url) => url.host.endsWith('example'),
      (route) => (foreign.push(route.request().url()), route.abort()),
    );
    const a = await open('?model=https://host.example/m.gguf&budget=2000000&prompt=Say%20it');
    await until(a, () =>
      /names https:\/\/host\.example\/m\.gguf.*before you press/.test(
        document.querySelector('#warning').textContent,
      ),
    );
    await a.waitForTimeout(300);
    const seen = await a.evaluate(() => ({
      url: document.querySelector('#url').value,
      prompt: document.querySelector('#prompt').value,
      budget: document.querySelector('#budget-value').textContent,
      plan: document.querySelector('#plan').hidden,
      asked: [fake.inspected, fake.loaded],
    }));
    assert.deepEqual(seen, {
      url: 'https://host.example/m.gguf',
      prompt: 'Say it',
      budget: '2.00 MB',
      plan: true,
      asked: [[], []],
    });
    await a.click('#check');
    await a.waitForSelector('#preflight dl');
    assert.deepEqual(await a.evaluate(() => fake.inspected), [
      ['https://host.example/m.gguf', 'default'],
    ]);
    assert.deepEqual(foreign, []);
    for (const address of ['http://[bad', 'hf:owner/repo/m.gguf', '../m.gguf']) {
      await a.goto(`${pages.server.url}/?model=${encodeURIComponent(address)}&budget=1e999`);
      await until(a, (address) => document.querySelector('#url').value === address, address);
    }
  }));

test('the model of the last visit is reported from the cache only', { skip: longOnly }, () =>
  pages.withTabs(async (open, context) => {
    await context.addInitScript(
      () =>
        location.protocol === 'http:' &&
        localStorage.setItem('last-model', 'https://host.example/m.gguf'),
    );
    await context.route('**/dist/index.js', async (route) => {
      const response = await route.fetch();
      const stored =
        "[{ url: 'https://host.example/m.gguf', size: 9, bytesCached: 9, complete: true, used: new Date() }]";
      await route.fulfill({
        response,
        body: (await response.text()).replace(
          'list: async () => []',
          `list: async () => ${stored}`,
        ),
      });
    });
    const a = await open();
    await a.waitForSelector('#preflight dl');
    assert.deepEqual(await a.evaluate(() => fake.inspected), [
      ['https://host.example/m.gguf', 'only'],
    ]);
  }),
);

test('an invalid address is an error that the page shows', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.fill('#url', 'http://[bad');
    for (const button of ['#load', '#check']) {
      await a.click(button);
      await until(a, () =>
        /“http:\/\/\[bad” is not a valid URL/.test(document.querySelector('#problem').textContent),
      );
      await a.focus('#budget');
      await a.keyboard.press('PageDown');
      await a.waitForTimeout(300); // the slider checks the model again
    }
    await a.fill('#url', '/models/any.gguf');
    await load(a);
  }));

test('a press on Load that ends the edit of the address loads, however long it takes', () =>
  pages.withTabs(async (open) => {
    const a = await open();
    await a.fill('#url', '/models/any.gguf');
    await a.locator('#load').scrollIntoViewIfNeeded();
    const { x, y, width, height } = await a.locator('#load').boundingBox();
    await a.mouse.move(x + width / 2, y + height / 2);
    await a.mouse.down();
    await a.evaluate(() => new Promise((resolve) => setTimeout(resolve, 100)));
    assert.equal((await a.locator('#load').boundingBox()).y, y, 'the button stays where it is');
    await a.mouse.up();
    await ready(a);
  }));

const setBudget = (page) =>
  page.evaluate(() => {
    const slider = document.querySelector('#budget');
    slider.value = '3';
    for (const type of ['input', 'change']) slider.dispatchEvent(new Event(type));
  });

test('a failed budget change shows the error, and one press loads the model again', () =>
  pages.withTabs(async (open) => {
    const a = await open(`${model}&budget=3000000`);
    await load(a);
    await ask(a, 'First');
    // Another address than that of the loaded model.
    await a.evaluate(() => (document.querySelector('#url').value = '/models/other.gguf'));
    await a.evaluate(
      () => (fake.fails = { setMemoryBudget: ['OUT_OF_MEMORY', 'no memory for the weights'] }),
    );
    await setBudget(a);
    await until(a, () =>
      /no memory left.*OUT_OF_MEMORY: no memory for the weights/s.test(
        document.querySelector('#problem').textContent,
      ),
    );
    await a.waitForSelector('#budget:enabled');
    assert.equal(await a.textContent('#budget-value'), '3.00 MB');
    await ask(a, 'Second'); // the page still works
    await a.evaluate(() => (fake.fails = { generate: ['WORKER_LOST', 'the worker has ended'] }));
    await ask(a, 'Third');
    await until(a, () =>
      /WORKER_LOST.*Load the model again/s.test(
        document.querySelector('.message .problem').textContent,
      ),
    );
    await a.click('#problem button');
    await until(a, () => fake.loaded.length === 2 && document.querySelector('body.loaded'));
    assert.match(await a.evaluate(() => fake.loaded[1]), /any\.gguf$/);
    assert.equal(await a.locator('.message .problem > button').count(), 0, 'nothing is left to do');
    await ask(a, 'Fourth');
    assert.equal(await a.evaluate(() => fake.engines), 1, 'the other engines were disposed of');
    assert.deepEqual(
      await a.evaluate(() =>
        fake.sessions
          .at(-1)
          .messages.filter((m) => m.role === 'user')
          .map((m) => m.content),
      ),
      ['First', 'Second', 'Fourth'],
    );
  }));

test('one press takes the suggested smallest budget, even at once', { skip: longOnly }, () =>
  pages.withTabs(async (open) => {
    const a = await open(`${model}&budget=1000`);
    await a.evaluate(async () => {
      const { Engine } = await import('/dist/index.js');
      // A slow listing.
      Engine.modelCache.list = () => new Promise((ok) => setTimeout(() => ok([]), 500));
      fake.fails = { load: ['BUDGET_TOO_SMALL', 'the budget is too small'] };
      document.querySelector('#load').click();
    });
    await a.waitForSelector('#problem button:visible');
    await a.evaluate(() => document.querySelector('#problem button').click());
    await a.waitForSelector('#preflight dl');
    assert.equal(
      await a.evaluate(() => fake.inspected.length),
      2,
      'one for the suggestion, one for the press',
    );
    await load(a);
  }),
);

test('a model that cannot be loaded leaves the running one alone', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.click('#source > summary');
    await a.fill('#url', '/models/other.gguf');
    await a.evaluate(() => (fake.fails = { inspect: ['NOT_GGUF', 'not a GGUF file'] }));
    await a.evaluate(() => document.querySelector('#load').click());
    await until(a, () => /not a model file/.test(document.querySelector('#problem').textContent));
    assert.equal(await a.textContent('#model-status'), 'Fake');
    await ask(a, 'Still there?');
    assert.deepEqual(await a.evaluate(() => [fake.engines, fake.loaded.length]), [1, 1]);
  }));

test('a budget change that never ends can be left with Unload', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(() => (fake.fails = { setMemoryBudget: 'never' }));
    await setBudget(a);
    await a.waitForSelector('#budget:disabled');
    await a.click('#unload');
    await a.waitForSelector('#budget:enabled');
    await load(a);
    await setBudget(a);
    await until(a, () =>
      document.querySelector('#announcer').textContent.includes('The budget is now'),
    );
  }));

test('pressing Load twice loads once; a slider moved while loading takes effect', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await a.evaluate(() => {
      fake.loading = 200;
      document.querySelector('#source').open = true;
      document.querySelector('#load').click();
    });
    await setBudget(a);
    await until(a, () => fake.loaded.length === 2 && document.querySelector('body.loaded'));
    await until(a, () => fake.engine.info.plan.budget > 0);
    assert.equal(await a.evaluate(() => fake.engines), 1);
    await a.evaluate(() => {
      document.querySelector('#source').open = true;
      // The second press is Cancel.
      for (let i = 0; i < 2; i++) document.querySelector('#load').click();
    });
    await until(a, () => document.querySelector('#load').textContent === 'Load');
    // It came before the running model was unloaded.
    assert.deepEqual(await a.evaluate(() => [fake.engines, fake.loaded.length]), [1, 2]);
    await ask(a, 'Still there?');
  }));

test('a failed handler is reported at the top of the page', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await load(a);
    await ask(a, 'First');
    await a.evaluate(() => {
      fake.fails = { evictOldest: ['CACHE_LOCKED', 'the store is in use'] };
      document.querySelector('#evict').click();
      navigator.clipboard.writeText = () =>
        Promise.reject(new DOMException('Write permission denied.', 'NotAllowedError'));
    });
    await noticed(a, 'This model is in use');
    await noticed(a, 'CACHE_LOCKED: the store is in use');
    assert.doesNotMatch(await a.locator('#notices').innerText(), /CACHE_LOCKED/);
    await a.click('[aria-label=Copy]');
    await noticed(a, 'Write permission denied.');
  }));

test('the reload that enables threads does not happen once the user has begun something', async (t) => {
  const held = [];
  const plain = await serve(
    [
      ['/dist/', join(root, 'tests', 'web', 'page-engine')],
      ['/', pages.site],
    ],
    {
      isolation: false,
      onRequest(request, response) {
        if (!request.headers['service-worker']) return false;
        held.push(() =>
          response
            .writeHead(200, { 'Content-Type': 'text/javascript' })
            .end(readFileSync(join(pages.site, 'isolate.js'))),
        );
        return true;
      },
    },
  );
  t.after(() => plain.close());
  for (const begun of [false, true]) {
    await pages.withTabs(
      async (open) => {
        const a = await open(model);
        if (begun) await a.fill('#prompt', 'half a thought');
        await a.evaluate(() => (window.first = true));
        await eventually(
          () => held.length > 0,
          () => 'the page did not request a service worker',
        );
        held.pop()();
        if (!begun) return void (await until(a, () => crossOriginIsolated && !window.first));
        await a.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
        await a.waitForTimeout(500);
        assert.equal(await a.inputValue('#prompt'), 'half a thought');
        await load(a);
      },
      { from: plain },
    );
  }
});

test('the checks of page-checks.mjs find real problems', () =>
  pages.withTabs(async (open) => {
    const a = await open(model);
    await a.evaluate(() => {
      const add = (tag, style, more) => {
        const element = Object.assign(document.createElement(tag), more);
        element.style.cssText = style;
        document.body.append(element);
      };
      add('p', 'color: #777; background: #888', { textContent: 'too faint' });
      add('button', 'width: 20px; height: 20px', { id: 'tiny' });
      add('div', 'width: 5000px; height: 1px', { id: 'twin' });
      add('i', '', { id: 'twin' });
    });
    const found = async (check) => (await a.evaluate(check)).join();
    assert.match(await found(lowContrast), /"too faint"/);
    assert.match(await found(smallTargets), /BUTTON tiny \d+ × 20/);
    assert.match(await found(tooWide), /DIV\. twin.*pixels too wide/);
    assert.match(await found(unnamed), /<button id="tiny".*twin/);
  }));

const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
for (const [name, options] of Object.entries({
  light: { colorScheme: 'light' },
  dark: { colorScheme: 'dark' },
  phone,
})) {
  test(
    `notices, a link's warning and a failed budget change can be read and dismissed: ${name}`,
    { skip: name !== 'light' && longOnly },
    () =>
      pages.withTabs(async (open) => {
        const a = await open(model);
        const holds = async (label) => {
          const checks = [
            lowContrast,
            tooWide,
            unnamed,
            ...(name === 'phone' ? [smallTargets] : []),
          ];
          for (const check of checks)
            assert.deepEqual(await a.evaluate(check), [], `${label}: ${check.name}`);
          await a.screenshot({ path: join(root, 'build', 'screenshots', `${name}-${label}.png`) });
        };
        await a.waitForSelector('#warning:visible');
        await holds('link');
        await load(a);
        await ask(a, 'First');
        await a.evaluate(
          () =>
            (fake.fails = {
              evictOldest: ['CACHE_LOCKED', 'the store is in use by another tab of this browser'],
            }),
        );
        await a.evaluate(() => document.querySelector('#evict').click());
        await noticed(a, 'the store is in use');
        await a.evaluate(
          () =>
            (fake.fails = {
              setMemoryBudget: ['OUT_OF_MEMORY', 'no memory for the weights'],
              generate: ['WORKER_LOST', 'the worker has ended'],
            }),
        );
        await ask(a, 'Second');
        await setBudget(a);
        await a.waitForSelector('#problem button:visible');
        await holds('problems');
        await a.click('.notice button');
        await a.waitForSelector('.notice', { state: 'detached' });
      }, options),
  );
}

const nasty = (mark) =>
  `<img src=x onerror="pwned='${mark}'"><script>pwned='${mark}'</script>\n\`\`\`<b onclick=pwned()>\n</code></pre><iframe srcdoc=x>\n\`\`\`\n# <u>h</u>\n**<svg onload=pwned=1>** \`<a href="javascript:pwned=1">\``;
const kTags =
  'ARTICLE BUTTON CODE DD DETAILS DIV DL DT H3 I LI P PRE SMALL SPAN STRONG SUMMARY UL path svg'.split(
    ' ',
  );

test('text of models, files, records, links and errors never becomes HTML', (t) => {
  policy = "require-trusted-types-for 'script'; trusted-types 'none'; script-src 'self'";
  t.after(() => (policy = null));
  return pages.withTabs(async (open) => {
    const a = await open(
      `?model=${encodeURIComponent(`/models/${nasty('link')}.gguf`)}&prompt=${encodeURIComponent(nasty('prompt'))}`,
    );
    await plant(a, [
      {
        ...good,
        title: nasty('title'),
        system: nasty('system'),
        turns: [
          { role: 'user', content: nasty('asked') },
          {
            role: 'assistant',
            reasoning: nasty('thought'),
            content: nasty('answer'),
            note: nasty('note'),
          },
        ],
      },
    ]);
    await a.reload();
    // The prompt of the link has a conversation of its own.
    await a.locator('#talk-list .pick').click();
    await a.locator('.assistant').waitFor();
    await a.evaluate(
      (text) => Object.assign(fake, { name: text, words: 2, word: () => text }),
      nasty('engine'),
    );
    await a.click('#check');
    await a.locator('#preflight dl').waitFor();
    await a.click('#load');
    await a.locator('body.loaded').waitFor();
    await a.press('#prompt', 'Enter');
    await a.locator('.assistant .note:not(:empty)').nth(1).waitFor();
    await a.evaluate(
      (text) => (fake.fails = { generate: ['INTERNAL', text], evictOldest: ['IO', text] }),
      nasty('error'),
    );
    await a.evaluate(() => document.querySelector('#evict').click());
    await a.locator('.notice').waitFor();
    await say(a, nasty('said'));
    await a.locator('.message .problem').waitFor();
    const seen = await a.evaluate(() => {
      const made = [
        ...document.querySelectorAll(
          '#log .message *, #talk-list *, #notices *, #preflight *, #problem *',
        ),
      ];
      return {
        tags: [...new Set(made.map((element) => element.tagName))],
        handlers: made.filter((element) =>
          [...element.attributes].some(({ name }) => /^(on|src|href)/.test(name)),
        ).length,
        pwned: typeof pwned,
        text: document.querySelector('#log').textContent,
      };
    });
    assert.deepEqual(
      seen.tags.filter((tag) => !kTags.includes(tag)),
      [],
    );
    assert.deepEqual([seen.handlers, seen.pwned], [0, 'undefined']);
    for (const mark of [
      'asked',
      'thought',
      'answer',
      'note',
      'prompt',
      'engine',
      'said',
      'error',
    ]) {
      assert.ok(seen.text.includes(`pwned='${mark}'"><script>`), mark);
    }
  });
});
