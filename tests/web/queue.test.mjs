// The work queue of the worker, without an engine: the order of its work, and what runs in
// parallel.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { WorkQueue } = await importWeb('worker/queue');
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A queue, and put() for work that begins and ends by hand. */
function made(most) {
  const line = new WorkQueue(() => most);
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

test('generations start in order and run in parallel, up to the limit', async () => {
  const { log, put } = made(2);
  const [a, b, c] = [put('a', 1), put('b', 2), put('c', 3)];
  await turn();
  assert.deepEqual(log, ['a@1'], 'the first has not started yet');
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

test('exclusive work waits for earlier generations, and later ones wait for it', async () => {
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

test('only work that waits for its own sequence is overtaken; a choice sees the sequences in use', async () => {
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

test('random work: nothing is lost, and no sequence or exclusive engine is shared', async () => {
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
