// The line before the engine, without the engine: who begins when, and beside whom.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { Line } = await importWeb('worker/queue');
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A line, and work in it that begins and ends by hand. */
function made(most) {
  const line = new Line(() => most);
  const log = [];
  const put = (name, sequence = null) => {
    const work = { name };
    const done = line.do(
      sequence === null ? null : typeof sequence === 'function' ? sequence : () => sequence,
      async (chosen, begun) => {
        log.push(`${name}${sequence === null ? '' : `@${chosen}`}`);
        Object.assign(work, { begun, running: true });
        await new Promise((resolve, reject) =>
          Object.assign(work, { end: resolve, fail: reject }),
        ).finally(() => (work.running = false));
      },
    );
    work.done = done.catch((error) => error);
    return work;
  };
  return { line, log, put };
}

test('answers begin one after another, as many as there is room for, and side by side', async () => {
  const { log, put } = made(2);
  const [a, b, c] = [put('a', 1), put('b', 2), put('c', 3)];
  await turn();
  assert.deepEqual(log, ['a@1'], 'the first has not begun yet');
  a.begun();
  await turn();
  assert.deepEqual(log, ['a@1', 'b@2']);
  b.begun();
  await turn();
  assert.deepEqual(log, ['a@1', 'b@2']);
  a.end();
  await turn();
  assert.deepEqual(log, ['a@1', 'b@2', 'c@3']);
  b.fail(new Error('lost'));
  c.end();
  assert.equal((await b.done).message, 'lost');
  await c.done;
});

test('what wants the engine alone waits for the answers before it, and the later ones for it', async () => {
  const { log, put } = made(4);
  const a = put('a', 1);
  await turn();
  a.begun();
  const save = put('save');
  put('b', 2);
  await turn();
  assert.deepEqual(log, ['a@1']);
  a.end();
  await turn();
  assert.deepEqual(log, ['a@1', 'save']);
  save.end();
  await turn();
  assert.deepEqual(log, ['a@1', 'save', 'b@2']);
});

test('only who waits for its own sequence is overtaken; a choice sees what is taken', async () => {
  const { log, put } = made(3);
  const a = put('a', 1);
  await turn();
  a.begun();
  const [again, b, any] = [
    put('again', 1),
    put('b', 2),
    put('any', (taken) => [1, 2, 3].find((id) => !taken.has(id))),
  ];
  await turn();
  b.begun();
  await turn();
  assert.deepEqual(log, ['a@1', 'b@2', 'any@3']);
  any.begun();
  b.end();
  await turn();
  assert.equal(log.length, 3);
  a.end();
  await turn();
  assert.deepEqual(log.slice(3), ['again@1']);
  again.end();
});

test('random work: nothing is lost, nobody shares a sequence or an engine that is taken', async () => {
  const next = random(5);
  const { put, line } = made(3);
  const all = [];
  let ended = 0;
  for (let i = 0; i < 400; i++) {
    all.push({ alone: next() < 0.2, sequence: Math.floor(next() * 5) });
    const { alone, sequence } = all.at(-1);
    all[i] = Object.assign(put(`${i}`, alone ? null : sequence), { alone, sequence });
    void all[i].done.then(() => ended++);
    for (let n = next() * 4; n > 0; n--) {
      await turn();
      const running = all.filter((work) => work.running);
      assert.ok(
        running.length <= 3 &&
          new Set(running.map(({ sequence }) => sequence)).size === running.length,
      );
      if (running.some(({ alone }) => alone)) assert.equal(running.length, 1);
      assert.equal(line.taken.size, running.filter(({ alone }) => !alone).length);
      const one = running[Math.floor(next() * running.length)];
      if (next() < 0.5 && one?.alone === false) one.begun();
      else if (next() < 0.2) one?.fail(new Error());
      else one?.end();
    }
  }
  for (let i = 0; i < 2000 && ended < all.length; i++) {
    for (const { running, end } of all) if (running) end();
    await turn();
  }
  assert.equal(ended, all.length);
});
