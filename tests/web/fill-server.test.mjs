// The server of the fill queue, over a queue written by hand: the order of its reads, and that it
// reads and completes every request exactly once.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { FillServer } = await importWeb('io/fill-server');
const kQueue = 1024;
const kCapacity = 8;
const kRow = 0xffffffff;

/** A queue in shared memory; push(offset, unit) adds a request of 16 bytes. */
function makeQueue() {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const words = new Uint32Array(memory.buffer, kQueue);
  words[2] = kCapacity;
  let pushed = 0;
  return {
    memory,
    push(offset, unit) {
      const at = 4 + (pushed % kCapacity) * 8;
      words.set([offset, 0, 32768 + (pushed % kCapacity) * 16, 0, 16, 0, unit, 1], at);
      Atomics.store(words, 0, ++pushed);
    },
    get completed() {
      return Atomics.load(words, 1);
    },
    states: () => Array.from({ length: kCapacity }, (_, n) => words[4 + n * 8 + 7]),
  };
}

test('embedding rows are read before units that were requested earlier', async () => {
  const queue = makeQueue();
  const reads = [];
  const file = {
    read(offset, into) {
      reads.push(offset);
      if (offset === 100) queue.push(900, kRow); // arrives while the first unit is read
      into.fill(offset & 255);
      return true;
    },
  };
  const server = new FillServer(queue.memory, kQueue, {
    file: () => file,
    onFilled() {},
    onError: assert.fail,
  });
  for (const offset of [100, 200, 300]) queue.push(offset, offset);
  await server.serve(true);
  assert.deepEqual(reads, [100, 900, 200, 300]);
  assert.equal(queue.completed, 4);
  for (let i = 0; i < 20; i++) {
    // Wraps around the ring, with rows and units mixed.
    queue.push(1000 + 2 * i, 1);
    queue.push(1001 + 2 * i, kRow);
    await server.serve(true);
  }
  assert.deepEqual(
    reads.slice(4),
    Array.from({ length: 20 }, (_, i) => [1001 + 2 * i, 1000 + 2 * i]).flat(),
  );
  assert.equal(queue.completed, 44);
  assert.ok(queue.states().every((state) => state === 2));
});
