// sluice-llm/sessions in Chromium: saved states are found again after a reload, by prompt prefix
// and by name. Damaged states, states of another model and states that are too large are not
// restored.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from '../web/chromium.mjs';

const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-saved-'));
writeFileSync(join(folder, 'empty.html'), '<!doctype html><title>empty</title>');
let browser, server, page;
before(async () => {
  browser = await launch();
  server = await serve([
    ['/model.gguf', model],
    ['/dist/', inRoot('dist')],
    ['/', folder],
  ]);
  page = await (await browser.newContext()).newPage();
});
after(async () => {
  await browser.close();
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs `work` in a newly loaded page. */
async function afresh(work, given) {
  await page.goto(`${server.url}/empty.html`);
  return page.evaluate(
    async ([source, argument]) => {
      const [{ Engine }, { SavedSessions }] = await Promise.all([
        import('/dist/index.js'),
        import('/dist/sessions.js'),
      ]);
      const load = (options = {}) =>
        Engine.load('/model.gguf', { contextLength: 256, threads: 1, ...options });
      return (0, eval)(`(${source})`)({ load, SavedSessions }, argument);
    },
    [work.toString(), given],
  );
}

const text =
  'Once upon a time there was a little bear who lived in the forest with his mother. One day the bear went out to play.';

test('a saved prompt is restored after a reload and gives the same output', async () => {
  const first = await afresh(async ({ load, SavedSessions }, text) => {
    const saved = await SavedSessions.open();
    const engine = await load();
    const none = await saved.restorePrefix(engine, text);
    const answer = await engine.generate(`${text} He`, { maxTokens: 20, temperature: 0 }).result;
    const session = engine.session();
    await session.generate('The cat', { maxTokens: 5, temperature: 0 }).text();
    const kept = [await saved.save('bear', engine), await saved.save('Katze / 猫', session)];
    const said = session.text;
    const next = await session.generate(' and', { maxTokens: 5, temperature: 0 }).text();
    await engine.dispose();
    return {
      none,
      kept,
      answer: answer.text,
      said,
      next,
      list: (await saved.list()).map(({ name }) => name),
    };
  }, text);
  assert.deepEqual(
    [first.none, first.kept, first.list.sort()],
    [0, [true, true], ['Katze / 猫', 'bear']],
  );

  const again = await afresh(async ({ load, SavedSessions }, text) => {
    const saved = await SavedSessions.open();
    const engine = await load();
    const known = await saved.restorePrefix(engine, `${text} He`);
    const { text: answer, usage } = await engine.generate(`${text} He`, {
      maxTokens: 20,
      temperature: 0,
    }).result;
    const session = engine.session();
    const back = await saved.restore('Katze / 猫', session);
    const said = session.text;
    const next = await session.generate(' and', { maxTokens: 5, temperature: 0 }).text();
    const missing = await saved.restore('dog', session);
    await engine.dispose();
    const other = await load({ kvType: 'q8_0' });
    const foreign = await saved.restorePrefix(other, text);
    await other.dispose();
    return {
      known,
      prompt: usage.promptTokens,
      cached: usage.cachedTokens,
      answer,
      back,
      said,
      next,
      missing,
      foreign,
      left: (await saved.list()).length,
    };
  }, text);
  assert.equal(again.answer, first.answer);
  assert.deepEqual([again.known, again.cached], [again.prompt, again.prompt - 1]);
  assert.deepEqual(
    [again.back, again.said, again.next, again.missing],
    [true, first.said, first.next, false],
  );
  assert.deepEqual([again.foreign, again.left], [0, 2]);
});

test('damage is detected, the oldest are evicted, and oversized states are not saved', async () => {
  const seen = await afresh(async ({ load, SavedSessions }, text) => {
    const saved = await SavedSessions.open();
    const engine = await load();
    await engine.generate(text, { maxTokens: 1, temperature: 0 }).text();
    const folder = await (
      await navigator.storage.getDirectory()
    ).getDirectoryHandle('sluice-saved');
    const alone = (await saved.list()).map(({ name }) => name);
    for (const name of alone) await saved.delete(name);
    const damaged = [];
    for (const at of [0, 5, 60, 300, -100]) {
      await saved.save('x', engine);
      let name;
      for await (const key of folder.keys()) if (key.endsWith('.session')) name = key;
      const handle = await folder.getFileHandle(name);
      const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
      bytes[at < 0 ? bytes.length + at : at] ^= 64;
      const out = await handle.createWritable();
      await out.write(bytes);
      await out.close();
      damaged.push(await saved.restorePrefix(engine, text));
      const cut = await handle.createWritable({ keepExistingData: true }).catch(() => null);
      await cut?.truncate(200);
      await cut?.close();
      damaged.push(await saved.restorePrefix(engine, text));
      await saved.delete('x');
    }
    await saved.save('a', engine);
    const [{ bytes }] = await saved.list();
    const small = await SavedSessions.open({ maxBytes: Math.ceil(2.5 * bytes) });
    for (const name of ['b', 'c']) {
      await new Promise((done) => setTimeout(done, 5));
      await small.save(name, engine);
    }
    const left = (await small.list()).map(({ name }) => name);
    const tiny = await SavedSessions.open({ maxBytes: 1000 });
    const refused = await tiny.save('d', engine);
    const elsewhere = await (
      await SavedSessions.open({ model: 'other weights' })
    ).restorePrefix(engine, text);
    const wrong = await SavedSessions.open({ maxBytes: 0 }).catch((error) => error.code);
    const still = await engine.generate(text, { maxTokens: 1, temperature: 0 }).result;
    await engine.dispose();
    return { damaged, left, refused, elsewhere, wrong, said: still.text.length > 0 };
  }, text);
  assert.deepEqual(seen.damaged, Array(10).fill(0));
  assert.deepEqual(
    [seen.left, seen.refused, seen.elsewhere, seen.wrong, seen.said],
    [['c', 'b'], false, 0, 'INVALID_ARGUMENT', true],
  );
});
