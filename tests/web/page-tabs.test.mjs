// The page in two tabs with one database: names, turns, instructions, deletions and settings of
// both are kept and shown in both. Runs over the stand-in of page-engine/, since only the page is
// tested.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { longOnly } from '../extent.mjs';
import { eventually } from './eventually.mjs';
import {
  ask,
  idle,
  inSettings,
  kept,
  listed,
  load,
  kPollMs,
  model,
  noticed,
  openSite,
  records,
  remove,
  rename,
  say,
  titles,
  until,
  users,
} from './page-site.mjs';

let pages;
before(async () => (pages = await openSite('site-tabs', { fake: true })));
after(() => pages.close());

/** Opens two tabs, each with an engine, both showing the conversation "First". */
async function two(open, inA = async () => {}) {
  const a = await open(model);
  await load(a);
  await inA(a);
  await ask(a, 'First');
  const b = await open(model);
  await listed(b, 1);
  await load(b);
  return [a, b];
}

/** Makes answers continue until they are stopped. */
const endless = (page) =>
  page.evaluate(() => {
    Object.assign(fake, { words: 1e9, pause: 20 });
    document.querySelector('[name=maxTokens]').value = 1e9; // the default is 512
  });

/** Waits until more of the running answer is stored, which happens once a second. */
async function storing(page) {
  const length = async () =>
    (await records(page))
      .flatMap(({ turns }) => turns ?? [])
      .reduce((sum, { content }) => sum + content.length, 0);
  const before = await length();
  await eventually(
    async () => (await length()) > before,
    () => 'no more was stored',
    kPollMs,
  );
}

test(
  'a rename in one tab and new turns in another are kept and shown in both',
  { skip: longOnly },
  () =>
    pages.withTabs(async (open) => {
      const [a, b] = await two(open);
      await ask(b, 'Second');
      await rename(a, 'First', 'Renamed');
      for (const page of [a, b]) {
        await page.waitForSelector('[aria-label="Rename Renamed"]');
        await until(page, () => document.querySelectorAll('.user').length === 2);
        assert.deepEqual(await users(page), ['First', 'Second']);
        assert.equal(await page.textContent('#talk-title'), 'Renamed');
      }
      const [record] = await records(a);
      assert.equal(record.title, 'Renamed');
      assert.deepEqual(
        record.turns.map((turn) => turn.role),
        ['user', 'assistant', 'user', 'assistant'],
      );
      // The model gets the turns of the other tab.
      await ask(a, 'Third');
      const told = await a.evaluate(() =>
        fake.sessions.at(-1).messages.map(({ content }) => content),
      );
      assert.deepEqual(
        told.filter((text) => !text.startsWith('w0')),
        ['First', 'Second', 'Third'],
      );
    }),
);

test('simultaneous answers in one conversation lose nothing', () =>
  pages.withTabs(async (open) => {
    const [a, b] = await two(open);
    for (const page of [a, b])
      await page.evaluate(() => Object.assign(fake, { words: 60, pause: 10 }));
    await say(a, 'From A');
    await say(b, 'From B');
    for (const page of [a, b]) await idle(page);
    for (const page of [a, b])
      await until(page, () => document.querySelectorAll('.note:not(:empty)').length === 3);
    const [{ turns }] = await records(a);
    assert.equal(turns.length, 6);
    for (const [question, answer] of [turns.slice(2, 4), turns.slice(4, 6)]) {
      assert.match(question.content, /^From [AB]$/);
      assert.match(answer.content, /w59/);
    }
    assert.deepEqual(await users(a), await users(b));
  }));

test('a deletion in one tab is reported in the other and ends its answer', () =>
  pages.withTabs(async (open) => {
    const [a, b] = await two(open);
    await endless(a);
    await say(a, 'Go on');
    await until(a, () => document.querySelectorAll('.assistant').length === 2);
    await a.fill('#prompt', 'half a thought');
    await remove(b, 'First');
    await noticed(a, '“First” was deleted in another tab');
    await idle(a);
    await listed(a, 0);
    await listed(b, 0);
    assert.equal(await a.inputValue('#prompt'), 'half a thought');
    assert.deepEqual(await users(a), []);
    await a.evaluate(() => (document.querySelector('[name=maxTokens]').value = 20));
    await ask(a, 'Something new'); // starts a new conversation
    assert.deepEqual(await titles(a), ['Something new']);
    assert.deepEqual(
      (await records(a)).filter(({ turns }) => turns).map(({ title }) => title),
      ['Something new'],
    );
  }));

test('a tab that missed a deletion cannot restore the conversation', { skip: longOnly }, () =>
  pages.withTabs(async (open, context) => {
    const a = await open(model);
    await load(a);
    await ask(a, 'First');
    await context.addInitScript(() => delete globalThis.BroadcastChannel); // b sends no messages
    const b = await open(model);
    await listed(b, 1);
    await remove(b, 'First');
    await listed(b, 0);
    await say(a, 'Second');
    await noticed(a, '“First” was deleted in another tab');
    await idle(a);
    await listed(a, 0);
    assert.equal((await records(a)).filter(({ turns }) => turns).length, 0);
    await a.reload();
    await a.waitForSelector('#no-talks:visible');
  }),
);

test(
  'edited instructions are kept, used, and shown in the other tab; a running answer continues',
  { skip: longOnly },
  () =>
    pages.withTabs(async (open) => {
      const [a, b] = await two(open);
      await a.evaluate(() => Object.assign(fake, { words: 40, pause: 10 }));
      await say(a, 'Second');
      await inSettings(a, async () => {
        await a.fill('#system', 'Be brief.');
        await a.press('#system', 'Tab');
      });
      await until(b, () => document.querySelector('#system').value === 'Be brief.');
      await idle(a);
      assert.match(
        await a.locator('.assistant .body').last().textContent(),
        /w39/,
        'the answer continued',
      );
      await ask(a, 'Third');
      const told = await a.evaluate(() => fake.sessions.map(({ system }) => system ?? ''));
      assert.equal(told.at(-1), 'Be brief.');
      await a.reload();
      await until(a, () => document.querySelector('#system').value === 'Be brief.');
      // Both tabs edit it: the field with the focus is not overwritten, and an unchanged field
      // restores nothing.
      await inSettings(a, () => a.fill('#system', 'Be long.'));
      await until(b, () => document.querySelector('#system').value === 'Be long.');
      await ask(b, 'Fourth');
      assert.equal((await records(b))[0].system, 'Be long.');
    }),
);

test('"Answer again" in one tab replaces the answer in both', { skip: longOnly }, () =>
  pages.withTabs(async (open) => {
    const [a, b] = await two(open);
    const before = (await records(a))[0].turns.map(({ id }) => id);
    await b.click('[aria-label="Answer again"]');
    await until(b, () => document.querySelectorAll('.note:not(:empty)').length === 1);
    await until(a, () => document.querySelectorAll('.note:not(:empty)').length === 1);
    const [{ turns }] = await kept(a, ([{ turns }]) =>
      turns.every(({ id, note }, i) => !before.includes(id) && (i === 0 || note)),
    );
    assert.equal(turns.length, 2);
    await ask(a, 'Next');
    assert.equal(
      await a.locator('[aria-label="Answer again"]').count(),
      1,
      'only on the last answer',
    );
  }),
);

test(
  'a rename and a delete confirmation survive answers that are stored meanwhile',
  { skip: longOnly },
  () =>
    pages.withTabs(async (open) => {
      const [a, b] = await two(open);
      await a.click('#new-talk');
      await ask(a, 'Other');
      await endless(b);
      await say(b, 'On and on'); // "First" goes to the top of the list, in both tabs
      await a.click('[aria-label="Rename Other"]');
      await a.keyboard.type('Half');
      await storing(a);
      await a.keyboard.type(' and half');
      await a.keyboard.press('Enter');
      await a.waitForSelector('[aria-label="Rename Half and half"]:focus');
      for (let done = false; !done;) {
        const start = Date.now();
        await b.click('[aria-label="Delete First"]');
        await storing(b);
        done = await b.evaluate(() => {
          const sure = document.querySelector('[aria-label^="Really delete"]');
          sure?.click();
          return sure !== null;
        });
        // The confirmation expires after 4 s.
        assert.ok(done || Date.now() - start > 4000, 'storing removed the confirmation');
      }
      await idle(b);
      await listed(a, 1);
    }),
);

test('settings of two tabs are merged', { skip: longOnly }, () =>
  pages.withTabs(async (open) => {
    const [a, b] = [await open(), await open()];
    for (const [page, name, value] of [
      [a, 'topK', '7'],
      [b, 'maxTokens', '99'],
    ]) {
      await inSettings(page, async () => {
        await page.fill(`[name=${name}]`, value);
        await page.press(`[name=${name}]`, 'Tab');
      });
    }
    // localStorage is synchronized between processes.
    await until(a, () => localStorage.getItem('sampling')?.includes('99'));
    await a.reload();
    assert.deepEqual(
      await a.evaluate(() =>
        ['topK', 'maxTokens'].map((name) => document.querySelector(`[name=${name}]`).value),
      ),
      ['7', '99'],
    );
    await a.evaluate(() => localStorage.setItem('sampling', 'null'));
    await a.reload();
    await a.fill('#url', '/models/any.gguf');
    await load(a);
  }),
);
