// The order in which chunks of a file are fetched, without a file: chunks that reads wait for come
// first, in streams that fetch nothing twice, then the rest from the front.
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
  const locked = new Set(); // chunks that another process downloads
  const reserved = [];
  const chunks = {
    isLocal: (i) => here.has(i),
    isStored: (i) => here.has(i),
    isElsewhere: (i) => locked.has(i),
    reserve(first, end) {
      let to = first;
      while (to < end && !locked.has(to)) to++;
      if (to > first) reserved.push(`${first}-${to}`);
      return to;
    },
    release: (first, end) => void reserved.splice(reserved.indexOf(`${first}-${end}`), 1),
  };
  const plan = new ChunkScheduler(chunks, (stream) => stopped.push(stream));
  Object.assign(plan, { count, streamChunks, streamLimit, background, whole });
  const wait = (...missing) => {
    const read = { missing: new Set(missing) };
    plan.reads.add(read);
    return read;
  };
  return { plan, here, locked, reserved, stopped, wait };
}
const spans = (plan) => {
  const all = [];
  for (let stream = plan.next(); stream; stream = plan.next()) all.push([stream.first, stream.end]);
  return all;
};

test('background chunks are fetched from the front, skipping cached ones', () => {
  const { plan } = make({ stored: [0, 1, 5], count: 12 });
  assert.deepEqual(spans(plan), [
    [2, 5],
    [6, 10],
    [10, 12],
  ]);
});

test('awaited chunks go first, and alone without a background download', () => {
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

test('a background stream is stopped for an awaited chunk, an awaited stream is not', () => {
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
  assert.deepEqual([spans(plan), stopped.length], [[], 1], 'all three fetch awaited chunks');
});

test('a server without ranges has one stream, which is never stopped', () => {
  const { plan, stopped, wait } = make({ whole: true });
  assert.deepEqual(spans(plan), [[0, 20]]);
  wait(19);
  assert.deepEqual([spans(plan), stopped], [[], []]);
});

test('the next stream continues one that ended early, and refetches a damaged chunk', () => {
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

test('chunks that another process downloads are left to it, and reservations are released', () => {
  const { plan, here, locked, reserved, wait } = make({ count: 12 });
  for (const chunk of [2, 3, 8]) locked.add(chunk);
  wait(3, 9);
  const streams = [plan.next(), plan.next(), plan.next()];
  assert.deepEqual(
    streams.map(({ first, end }) => [first, end]),
    [
      [9, 12],
      [0, 2],
      [4, 8],
    ],
  );
  assert.equal(plan.next(), null);
  assert.deepEqual(reserved, ['9-12', '0-2', '4-8']);
  for (const stream of streams) plan.ended(stream);
  assert.deepEqual(reserved, []);
  for (const chunk of [0, 1, 4, 5, 6, 7, 9, 10, 11]) here.add(chunk);
  assert.equal(plan.next(), null);
  here.add(2); // the other process stored a chunk and died
  locked.clear();
  const left = plan.next();
  assert.deepEqual([left.first, left.end], [3, 4]);
});

test('in random orders of arrival, failure and waiting, every chunk arrives and none twice at once', () => {
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
