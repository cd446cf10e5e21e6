// Two tabs of the page under random clicks at random moments: send, stop, answer again, open,
// rename, delete, edit instructions, load, unload, change the budget, fail, reload, return from the
// back/forward cache. In the end both tabs agree with the database, nothing deleted is back,
// nothing sent is lost, and no error went unreported.
//   SEED=n node --test tests/web/page-random.test.mjs      repeats the same clicks
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { extent } from '../extent.mjs';
import { random } from './helpers.mjs';
import { eventually } from './eventually.mjs';
import { idle, kPollMs, openSite, records } from './page-site.mjs';

const kMs = extent(4000, 20_000);
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
let pages;
before(async () => (pages = await openSite('site-random', { fake: true })));
after(() => pages.close());

const actions = {
  send: 8,
  open: 4,
  again: 3,
  rename: 3,
  begin: 2,
  stop: 2,
  remove: 2,
  half: 1,
  system: 2,
  mode: 1,
  load: 2,
  unload: 1,
  slide: 2,
  fail: 2,
  check: 1,
  back: 1,
  reload: 1,
};
const deck = Object.entries(actions).flatMap(([name, times]) => Array(times).fill(name));

/** In the page: does one action; returns the text that was sent, if any. */
function act({ name, share, text }) {
  const $ = (selector) => document.querySelector(selector);
  const rows = [...document.querySelectorAll('#talk-list li')];
  const row = rows[Math.floor(share * rows.length)];
  const button = (label) => row?.querySelector(`[aria-label^="${label}"]`);
  const fire = (element, type, Kind = Event, more = {}) =>
    element.dispatchEvent(new Kind(type, { bubbles: true, cancelable: true, ...more }));
  const does = {
    send() {
      $('#prompt').value = text;
      $('#talk-form').requestSubmit();
      const sent = $('#prompt').value === '';
      $('#prompt').value = '';
      return sent;
    },
    open: () => row?.querySelector('.pick')?.click(),
    again: () => $('[aria-label="Answer again"]')?.click(),
    begin: () => $('#new-talk').click(),
    stop: () => fire(document, 'keydown', KeyboardEvent, { key: 'Escape' }),
    half: () => button('Rename')?.click(),
    rename() {
      button('Rename')?.click();
      const field = row?.querySelector('input');
      if (!field) return;
      field.value = `named ${text}`;
      fire(field, 'keydown', KeyboardEvent, { key: share < 0.9 ? 'Enter' : 'Escape' });
    },
    remove() {
      button('Delete')?.click();
      row?.querySelector('.armed')?.click();
    },
    system() {
      $('#system').value = `system ${text}`;
      if (share < 0.8) fire($('#system'), 'change');
    },
    mode: () =>
      [...document.querySelectorAll('[name=mode]:enabled')][Math.floor(share * 2)]?.click(),
    load: () => $('#load').click(),
    unload: () => $('#unload').click(),
    check: () => $('#check').click(),
    slide() {
      if ($('#budget').disabled) return;
      $('#budget').value = String(Math.floor(share * 101));
      fire($('#budget'), 'input');
      fire($('#budget'), 'change');
    },
    fail() {
      const method = ['generate', 'load', 'inspect', 'setMemoryBudget'][Math.floor(share * 4)];
      fake.fails[method] = ['OUT_OF_MEMORY', 'forced by the test'];
    },
    back: () => fire(window, 'pageshow', PageTransitionEvent, { persisted: true }),
  };
  const done = does[name]();
  return name === 'send' && done ? text : null;
}

/** In the page: every conversation as it is displayed. */
async function shown() {
  const talks = [];
  for (let i = 0; ; i++) {
    const row = document.querySelectorAll('#talk-list li')[i];
    if (!row) return talks;
    row.querySelector('.pick').click();
    talks.push(
      JSON.stringify({
        title: row.querySelector('.name').textContent,
        system: document.querySelector('#system').value,
        asked: [...document.querySelectorAll('.user .body, .given')].map((e) => e.textContent),
        answers: [...document.querySelectorAll('.assistant')].length,
      }),
    );
  }
}

const asShown = ({ title, system, turns }) =>
  JSON.stringify({
    title,
    system,
    asked: turns.filter(({ role }) => role === 'user').map(({ content }) => content),
    answers: turns.length / 2,
  });

test(`two tabs under random clicks end in the same state (SEED=${seed})`, (t) =>
  pages.withTabs(
    async (open, context) => {
      const next = random(seed);
      const put = []; // every write: [id, user messages]
      await context.exposeFunction('tellPut', (id, texts) => void put.push([id, texts]));
      await context.addInitScript(() => {
        const { put } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.put = function (value) {
          const asked = put.call(this, value);
          const texts = (value.turns ?? [])
            .filter(({ role }) => role === 'user')
            .map(({ content }) => content);
          this.transaction.addEventListener('complete', () => void tellPut(value.id, texts));
          return asked;
        };
      });
      const start = async (page) => {
        await page.fill('#url', '/models/any.gguf');
        await page.evaluate(() => {
          Object.assign(fake, { words: 60, pause: 8, loading: 20 });
          document.querySelector('#load').click();
        });
      };
      const tabs = [await open(), await open()];
      for (const page of tabs) await start(page);
      const sent = [];
      const written = async (text) => {
        for (let i = 0; i < 500 && !put.some(([, texts]) => texts.includes(text)); i++)
          await new Promise((ok) => setTimeout(ok, 10)); // gives up if it was deleted first
      };
      let steps = 0;
      let removals = 0;
      for (const began = Date.now(); Date.now() - began < kMs; steps++) {
        const page = tabs[Math.floor(next() * 2)];
        const name = deck[Math.floor(next() * deck.length)];
        const share = next();
        if (name === 'reload') {
          if (sent.length > 0) await written(sent.at(-1));
          await page.reload();
          await start(page);
          continue;
        }
        const text = await page.evaluate(act, { name, share, text: `t${steps}` });
        if (text) sent.push(text);
        if (name === 'remove') removals++;
        await page.waitForTimeout(Math.floor(next() ** 3 * 120));
      }
      t.diagnostic(`${steps} actions, ${sent.length} prompts, ${put.length} writes`);
      assert.ok(sent.length > 0, 'nothing was sent');

      for (const page of tabs) {
        await page.evaluate(() => {
          const escape = () =>
            new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true });
          document
            .querySelectorAll('#talk-list input')
            .forEach((field) => field.dispatchEvent(escape())); // an unfinished rename
          document.dispatchEvent(escape());
        });
        await idle(page);
      }
      const agree = async () => {
        const kept = await records(tabs[0]);
        const want = kept
          .filter(({ turns }) => turns)
          .map(asShown)
          .sort();
        const seen = [];
        for (const page of tabs) seen.push((await page.evaluate(shown)).sort());
        return { kept, want, seen };
      };
      let last = await agree();
      for (let i = 0; i < 300 && last.seen.some((one) => String(one) !== String(last.want)); i++) {
        await tabs[0].waitForTimeout(100);
        last = await agree();
      }
      for (const one of last.seen) assert.deepEqual(one, last.want);

      const gone = new Set(last.kept.filter(({ deleted }) => deleted).map(({ id }) => id));
      for (const text of sent) {
        const ids = put.filter(([, texts]) => texts.includes(text)).map(([id]) => id);
        if (ids.length === 0 && removals-- > 0) continue; // deleted before it was stored
        assert.ok(ids.length > 0, `${text} was never stored`);
        const alive = ids.some((id) => !gone.has(id));
        assert.equal(
          last.want.some((talk) => talk.includes(`"${text}"`)),
          alive,
          `${text}: ${alive ? 'lost' : 'back'}`,
        );
      }
      for (const page of tabs) {
        const open = await page.evaluate(
          () => fake.sessions.filter((one) => one.engine === fake.engine && !one.disposed).length,
        );
        assert.ok(
          open <= last.want.length,
          `${open} sessions for ${last.want.length} conversations`,
        );
        await page.reload();
        const again = async () => (await page.evaluate(shown)).sort();
        await eventually(
          async () => String(await again()) === String(last.want),
          async () => `after a reload ${await again()}, not ${last.want}`,
          kPollMs,
        );
      }
    },
    { timeout: 30_000 },
  ));
