// The worker's generation loop over a scripted engine: which generations a cancel ends, and the
// warning of a context that is nearly full.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { GenerationLoop } = await importWeb('worker/generation-loop');
const { Step } = await importWeb('worker/binding');

/** Each step emits a token in every slot. Slot i ends after `lengths[i]` tokens. */
class ScriptedBinding {
  slot = 0;
  slots;
  constructor(lengths) {
    this.slots = lengths.map((length) => ({ length, tokens: 0, ready: [], finish: '' }));
  }
  get selected() {
    return this.slots[this.slot];
  }
  select(slot) {
    this.slot = slot;
  }
  begin() {
    return true;
  }
  step() {
    for (const slot of this.slots) {
      if (slot.finish) continue;
      slot.ready.push({ token: slot.tokens++, text: 'x' });
      if (slot.tokens === slot.length) slot.finish = 'length';
    }
    return this.slots.every(({ finish }) => finish) ? Step.Done : Step.Progress;
  }
  outcome() {
    return this.selected.finish ? Step.Done : Step.Progress;
  }
  cancel() {
    this.selected.finish ||= 'cancelled';
  }
  takePieces() {
    return this.selected.ready.splice(0);
  }
  answer() {
    const { finish, tokens } = this.selected;
    return { finish, completionTokens: tokens, promptTokens: 1, cachedTokens: 0 };
  }
  unitStates() {
    return [];
  }
  poll() {}
}

const info = { plan: { contextLength: 1000, kvCapacity: 1000 } };

test('a cancelled generation ends at its token, while others continue to their ends', async () => {
  const binding = new ScriptedBinding([200, 50, 200]);
  const reporter = { stats: {}, publish() {}, progress() {} };
  const loop = new GenerationLoop({ binding, io: { poke() {} }, info }, reporter);
  const cancelAt = [5, Infinity, 100];
  const results = await Promise.all(
    cancelAt.map((most, slot) => {
      const cancelFlag = { cancelled: false };
      let seen = 0;
      const pieces = (list) => (cancelFlag.cancelled = (seen += list.length) >= most);
      return loop.answer(slot, Int32Array.of(1), {}, { cancelFlag, begun() {}, pieces });
    }),
  );
  assert.deepEqual(
    results.map(({ finishReason, text }) => [finishReason, text.length]),
    [
      ['cancelled', 5],
      ['length', 50],
      ['cancelled', 100],
    ],
  );
});

/** Warnings of one generation of `length` tokens after a prompt of 1 token. */
async function warnings(length, cachedTokens, plan) {
  const binding = new ScriptedBinding([length]);
  const { answer } = binding;
  binding.answer = () => ({ ...answer.call(binding), cachedTokens });
  const events = [];
  const reporter = { stats: {}, publish() {}, progress: (event) => events.push(event) };
  const loop = new GenerationLoop({ binding, io: { poke() {} }, info: { plan } }, reporter);
  const cancelFlag = { cancelled: false };
  await loop.answer(0, Int32Array.of(1), {}, { cancelFlag, begun() {}, pieces() {} });
  return events.filter(({ phase }) => phase === 'warning');
}

test('a session that passes 90 % of its context warns once', async () => {
  const plan = { contextLength: 100, kvCapacity: 128 };
  assert.deepEqual(await warnings(88, 0, plan), []);
  assert.deepEqual(await warnings(89, 0, plan), [
    {
      phase: 'warning',
      code: 'CONTEXT_NEARLY_FULL',
      message: 'The context is nearly full: 90 of 100 tokens.',
    },
  ]);
  assert.deepEqual(await warnings(95, 90, plan), []);
});

test('a KV cache that evicts does not warn', async () => {
  assert.deepEqual(await warnings(95, 0, { contextLength: 100, kvCapacity: 64 }), []);
});
