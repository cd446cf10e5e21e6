// Sequences that alternate on one engine, without the engine: where they are swapped out, what
// happens if that fails, and that no failure gives a sequence another one's state.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { SessionSwap } = await importWeb('worker/session-swap');
const { nodeSwapFiles } = await importWeb('io/swap-node');
const { Sequences } = await importWeb('worker/sequences');

const folder = join(mkdtempSync(join(tmpdir(), 'sluice-')), 'files');
after(() => rmSync(folder, { recursive: true, force: true }));
const kPiece = 65536;
const bytes = (n) => Uint8Array.from({ length: n }, (_, i) => (i * 7) & 255);
const pieces = (from) => (offset, length) => from.subarray(offset, offset + length);

async function readBack(swap, swapped) {
  const out = [];
  await swap.read(swapped, (piece) => out.push(...piece));
  return Uint8Array.from(out);
}

test('small states are swapped to memory, large ones to files in pieces, and nothing is left', async () => {
  const swap = new SessionSwap(() => nodeSwapFiles(folder), 100);
  const small = await swap.put(80, pieces(bytes(80)));
  const lengths = [];
  const large = await swap.put(3 * kPiece + 5, (offset, length) => {
    lengths.push(length);
    return bytes(3 * kPiece + 5).subarray(offset, offset + length);
  });
  assert.deepEqual(lengths, [kPiece, kPiece, kPiece, 5]);
  assert.deepEqual(readdirSync(folder), [large.name]);
  assert.deepEqual(await readBack(swap, large), bytes(3 * kPiece + 5));
  assert.deepEqual(await readBack(swap, small), bytes(80));
  await swap.drop(large);
  assert.equal(readdirSync(folder).length, 0);
  const second = await swap.put(50, pieces(bytes(50)));
  assert.ok(second.name, 'more than 100 bytes in memory');
  await swap.drop(small);
  const third = await swap.put(100, pieces(bytes(100)));
  assert.ok(third.bytes);
  await swap.drop(second);
  // Another engine's swap adopts the states.
  const other = new SessionSwap(() => nodeSwapFiles(folder), 100);
  other.adopt(third);
  assert.ok((await other.put(10, pieces(bytes(10)))).name);
  assert.deepEqual(await readBack(other, third), bytes(100));
  for (const name of readdirSync(folder)) rmSync(join(folder, name));
});

test('a state that does not fit is dropped completely', async () => {
  const full = async () => {
    const files = await nodeSwapFiles(folder);
    const open = async (name) => {
      const file = await files.open(name);
      return {
        write: (from, at) => (at.at > 0 ? 0 : file.write(from, at)),
        close: () => file.close(),
      };
    };
    return { ...files, open };
  };
  for (const files of [
    full,
    async () => null,
    async () => {
      throw new Error('not here');
    },
  ]) {
    assert.equal(
      await new SessionSwap(files, 100).put(2 * kPiece, pieces(bytes(2 * kPiece))),
      null,
    );
  }
  const broken = () => {
    throw new Error('read failed');
  };
  const swap = new SessionSwap(() => nodeSwapFiles(folder), 100);
  assert.equal(await swap.put(2 * kPiece, broken), null);
  assert.equal(await swap.put(60, broken), null);
  assert.equal(readdirSync(folder).length, 0);
  assert.ok(
    (await swap.put(60, pieces(bytes(60)))).bytes,
    'bytes of a failed put() must not count',
  );
});

/**
 * A binding with slots, where the state of a sequence is its tokens and their sum. faults(call) may
 * make a call fail.
 */
class FakeBinding {
  memory = { buffer: new ArrayBuffer(kPiece) };
  slots = {};
  slot = 0;
  constructor(faults = () => false) {
    this.faults = faults;
  }
  select(slot) {
    this.slot = slot;
  }
  get held() {
    return this.slots[this.slot] ?? [];
  }
  set held(tokens) {
    this.slots[this.slot] = tokens;
  }
  error() {
    return { code: 'CORRUPT', message: 'This is not a saved state of this model.' };
  }
  tokens() {
    return Int32Array.from(this.held);
  }
  clear() {
    this.held = [];
  }
  state() {
    return new Uint8Array(
      Int32Array.of(
        ...this.held,
        this.held.reduce((a, b) => a + b, 0),
      ).buffer,
    );
  }
  stateStage() {
    return 0;
  }
  stateBytes() {
    return this.state().length;
  }
  readState(offset, length) {
    if (this.faults('read')) return false;
    new Uint8Array(this.memory.buffer).set(this.state().subarray(offset, offset + length));
    return true;
  }
  beginRestore(size) {
    this.held = [];
    this.entering = new Uint8Array(size);
    this.entered = 0;
    return size > 0 && size % 4 === 0 && !this.faults('begin');
  }
  writeState(length) {
    if (this.faults('write')) return false;
    this.entering.set(new Uint8Array(this.memory.buffer, 0, length), this.entered);
    this.entered += length;
    if (this.entered < this.entering.length) return true;
    const words = [...new Int32Array(this.entering.buffer)];
    const sum = words.pop();
    if (words.reduce((a, b) => a + b, 0) !== sum) return false;
    this.held = words;
    return true;
  }
}

test('random turns of many sequences: each gets its own tokens, or the list of missing ones', async () => {
  const next = random(11);
  const places = {
    memory: [1e6, async () => null],
    files: [0, () => nodeSwapFiles(folder)],
    nothing: [0, async () => null],
  };
  for (const [name, slots] of Object.keys(places).flatMap((name) => [
    [name, 1],
    [name, 3],
  ])) {
    const [memory, files] = places[name];
    let rate = 0;
    const binding = new FakeBinding(() => next() < rate);
    let sequences = new Sequences(
      binding,
      binding.memory,
      new SessionSwap(files, memory),
      [],
      slots,
    );
    const expected = new Map();
    let kept = 0;
    for (let i = 0; i < 600; i++) {
      const id = Math.floor(next() * 5);
      const at = `${name}, step ${i}, sequence ${id}`;
      rate = next() < 0.2 ? 0.3 : 0;
      const what = next();
      if (what < 0.6) {
        await sequences.use(id);
        const tokens = expected.get(id) ?? [];
        // A lost copy is reported as missing tokens, never replaced by another's state.
        if (sequences.missingTokens) assert.deepEqual([...sequences.missingTokens], tokens, at);
        else assert.deepEqual(binding.held, tokens, at);
        if (!sequences.missingTokens && tokens.length > 0) kept++;
        binding.held = [
          ...tokens,
          ...Array.from({ length: 1 + Math.floor(next() * 9) }, () => Math.floor(next() * 1000)),
        ];
        sequences.settle();
        expected.set(id, binding.held);
      } else if (what < 0.7) {
        const to = 5 + Math.floor(next() * 3);
        await sequences.use(id);
        await sequences.fork(to);
        if (expected.has(id)) expected.set(to, expected.get(id));
        else expected.delete(to);
      } else if (what < 0.8) {
        await sequences.forget(id);
        expected.delete(id);
      } else if (what < 0.9) {
        const tokens = [1, 2, i];
        const ok = await sequences
          .restore(id, new Uint8Array(Int32Array.of(...tokens, 3 + i).buffer))
          .then(
            () => true,
            ({ code }) => {
              assert.equal(code, 'CORRUPT');
              return false;
            },
          );
        if (ok) expected.set(id, tokens);
      } else if (what < 0.95) {
        await sequences.borrow();
        assert.deepEqual(binding.held, [], at);
        binding.held = [9, 9, 9];
      } else {
        const left = structuredClone(await sequences.leave());
        sequences = new Sequences(
          binding,
          binding.memory,
          new SessionSwap(files, memory),
          left,
          slots,
        );
      }
    }
    assert.equal(kept > 100, name !== 'nothing' || slots > 1, `${name}: ${kept}`);
    for (const id of expected.keys()) await sequences.forget(id);
    assert.equal(readdirSync(folder).length, 0, name);
  }
});

test('an invalid state is an error and changes no sequence', async () => {
  const binding = new FakeBinding();
  const sequences = new Sequences(binding, binding.memory, new SessionSwap(async () => null));
  await sequences.use(0);
  binding.held = [1, 2, 3];
  const wrong = [
    new Uint8Array(0),
    new Uint8Array(3),
    new Uint8Array(Int32Array.of(1, 2, 4).buffer),
  ];
  for (const id of [0, 1]) {
    for (const state of wrong)
      await assert.rejects(sequences.restore(id, state), { code: 'CORRUPT' });
  }
  await sequences.use(0);
  assert.deepEqual(binding.held, [1, 2, 3]);
  assert.equal(sequences.missingTokens, null);
});

test("a chat continues its own sequence, or starts from a copy of another's prefix", async () => {
  const binding = new FakeBinding();
  const sequences = new Sequences(
    binding,
    binding.memory,
    new SessionSwap(async () => null),
    [],
    3,
  );
  const chat = async (prompt, taken = new Set()) => {
    const id = sequences.best(Int32Array.from(prompt), taken);
    await sequences.use(id, taken, Int32Array.from(prompt));
    const begun = [...binding.held];
    binding.held = prompt;
    return [id, begun];
  };
  const [system, long] = [
    [1, 2, 3],
    [1, 2, 3, 10, 11, 12, 13],
  ];
  assert.deepEqual(await chat(long), [0, []]);
  assert.deepEqual(
    await chat([...system, 20, 21, 22, 23]),
    [-1, long],
    'another chat with the same system prompt',
  );
  assert.deepEqual(await chat([...long, 14]), [0, long], 'the first chat continues');
  assert.deepEqual(
    await chat([7, 8, 9], new Set([0, -1])),
    [-2, []],
    'sequences in use are not reused',
  );
  assert.deepEqual(
    await chat([5, 5, 5, 5]),
    [-1, [...system, 20, 21, 22, 23]],
    'the least recently used sequence',
  );
  assert.deepEqual(await chat([5, 5, 5, 6]), [-1, [5, 5, 5, 5]], 'another ending of the same chat');
  await chat([...long, 14]);
  assert.deepEqual(
    await chat([1, 2, 3, 10, 30, 31, 32]),
    [-2, [...long, 14]],
    'a copy replaces the sequence that shares less',
  );
});
