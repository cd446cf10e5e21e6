// The order in which a file's chunks are fetched, without any file: what is waited for first, in
// streams that bring nothing twice, then the rest from the front.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { ChunkScheduler } = await importWeb('io/chunk-scheduler');

function make({
  count = 20,
  stored = [],
  streamChunks = 4,
  streamLimit = 3,
  background = true,
  whole = false,
} = {}) {
  const here = new Set(stored);
  const stopped = [];
  const chunks = { isLocal: (i) => here.has(i), isStored: (i) => here.has(i) };
  const plan = new ChunkScheduler(chunks, (stream) => stopped.push(stream));
  Object.assign(plan, { count, streamChunks, streamLimit, background, whole });
  const wait = (...missing) => {
    const read = { missing: new Set(missing) };
    plan.reads.add(read);
    return read;
  };
  return { plan, here, stopped, wait };
}
const spans = (plan) => {
  const all = [];
  for (let stream = plan.next(); stream; stream = plan.next()) all.push([stream.first, stream.end]);
  return all;
};

test('the rest is fetched from the front, around what is stored', () => {
  const { plan } = make({ stored: [0, 1, 5], count: 12 });
  assert.deepEqual(spans(plan), [
    [2, 5],
    [6, 10],
    [10, 12],
  ]);
});

test('what is waited for goes first, and alone where nothing else is wanted', () => {
  const { plan, wait } = make({ background: false });
  wait(15, 16);
  wait(3);
  assert.deepEqual(spans(plan), [
    [15, 17],
    [3, 4],
  ]);
  const other = make();
  other.wait(15);
  assert.deepEqual(spans(other.plan), [
    [15, 19],
    [0, 4],
    [4, 8],
  ]);
});

test('a stream that nobody waits for makes room, one that is waited for does not', () => {
  const { plan, stopped, wait } = make();
  assert.deepEqual(spans(plan), [
    [0, 4],
    [4, 8],
    [8, 12],
  ]);
  wait(17);
  assert.deepEqual([spans(plan), stopped], [[[17, 20]], [{ first: 8, end: 12 }]]);
  wait(1, 5);
  wait(12);
  assert.deepEqual([spans(plan), stopped.length], [[], 1], 'all three bring something wanted');
});

test('a server without ranges has one stream, which stays', () => {
  const { plan, stopped, wait } = make({ whole: true });
  assert.deepEqual(spans(plan), [[0, 20]]);
  wait(19);
  assert.deepEqual([spans(plan), stopped], [[], []]);
});

test('a stream that ended early leaves its chunks to the next, and a damaged chunk is found again', () => {
  const { plan, here } = make({ count: 8, streamLimit: 1 });
  const stream = plan.next();
  here.add(0).add(1);
  plan.ended(stream);
  const second = plan.next();
  assert.deepEqual(second, { first: 2, end: 6 });
  for (let i = 2; i < 8; i++) here.add(i);
  plan.ended(second);
  assert.equal(plan.next(), null);
  here.delete(1);
  plan.rewind();
  assert.deepEqual(plan.next(), { first: 1, end: 2 });
});

test('whatever order chunks come, fail and are waited for in, all arrive and none twice at once', () => {
  const next = random(3);
  const pick = (n) => Math.floor(next() * n);
  for (let round = 0; round < 200; round++) {
    const { plan, here, stopped, wait } = make({
      count: 1 + pick(40),
      streamChunks: 1 + pick(6),
      streamLimit: 1 + pick(4),
    });
    const streams = [];
    for (let step = 0; here.size < plan.count; step++) {
      assert.ok(step < 2000, 'it ends');
      if (next() < 0.2) wait(pick(plan.count));
      for (let stream = plan.next(); stream; stream = plan.next())
        streams.push({ stream, at: stream.first });
      const running = streams.filter(({ stream }) => !stopped.includes(stream));
      assert.ok(running.length <= plan.streamLimit && running.length > 0);
      const one = running[pick(running.length)];
      if (next() < 0.9) {
        assert.ok(
          !running.some((other) => other !== one && other.at === one.at && here.has(one.at)),
          'twice',
        );
        here.add(one.at);
        plan.arrived(one.at);
        for (const read of [...plan.reads])
          if (read.missing.delete(one.at) && read.missing.size === 0) plan.reads.delete(read);
        one.at++;
      }
      if (one.at === one.stream.end || next() < 0.1) {
        plan.ended(one.stream);
        streams.splice(streams.indexOf(one), 1);
      }
    }
  }
});
