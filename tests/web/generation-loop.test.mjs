// The worker's generation loop over a scripted engine: which generations a cancel ends.
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

test('a cancelled generation ends at its token, while others continue to their ends', async () => {
  const binding = new ScriptedBinding([200, 50, 200]);
  const reporter = { stats: {}, publish() {}, progress() {} };
  const loop = new GenerationLoop({ binding, io: { poke() {} } }, reporter);
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
