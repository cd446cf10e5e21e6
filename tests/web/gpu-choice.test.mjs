// Which of CPU and graphics card computes what, from numbers alone: nothing is measured here.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { choose, cardPass } = await importWeb('gpu/choice');

// A model of a billion weights in four bits, and one of a million; milliseconds.
const large = { bytes: 0.6e9, macs: 1.1e9, layers: 22, batch: 64, streamed: 0 };
const small = { bytes: 1e6, macs: 1e6, layers: 4, batch: 64, streamed: 0 };
const cpu = { decode: 20, prefill: 8 };
const card = { pass: 1, dispatch: 0.005, byte: 1 / 100e6, mac: 1 / 1e9, upload: 1 / 5e6 };

describe('the choice of a device', () => {
  test('a fast card computes all of a large model', () => {
    const { prefill, decode, cardFrom, reason, rates } = choose(large, { cpu, card });
    assert.deepEqual([prefill, decode, cardFrom], ['webgpu', 'webgpu', 1]);
    assert.match(reason, /^The card computes: measured, prompts \d+ tokens\/s on the card and 125 on the CPU, answers \d+ and 50\.$/);
    assert.ok(rates.webgpu.decode > rates.wasm.decode && rates.webgpu.prefill > rates.wasm.prefill);
  });

  test('a slow card computes nothing', () => {
    const slow = { ...card, byte: 1 / 1e6, mac: 1 / 5e7 };
    const { prefill, decode, cardFrom, reason } = choose(large, { cpu, card: slow });
    assert.deepEqual([prefill, decode, cardFrom], ['wasm', 'wasm', Infinity]);
    assert.match(reason, /^The CPU computes: measured/);
  });

  test('products too small to be worth a pass stay on the CPU', () => {
    assert.equal(choose(small, { cpu: { decode: 0.05, prefill: 0.01 }, card }).cardFrom, Infinity);
  });

  test('a card that reads weights no faster than the CPU has the prompts alone', () => {
    const reads = { ...card, byte: 1 / 30e6 };
    const { prefill, decode, cardFrom, reason } = choose(large, { cpu, card: reads });
    assert.deepEqual([prefill, decode], ['webgpu', 'wasm']);
    assert.ok(cardFrom > 1 && cardFrom <= 64, cardFrom);
    assert.ok(cardPass(large, reads, cardFrom) < Math.max(cpu.decode, cardFrom * cpu.prefill), 'it is faster from there on');
    assert.ok(1.15 * cardPass(large, reads, cardFrom / 2) > Math.max(cpu.decode, cardFrom / 2 * cpu.prefill), 'and not before');
    assert.match(reason, new RegExp(`^The card computes passes of ${cardFrom} tokens and more, the CPU the others`));
  });

  test('weights that stream to the card cost a token what they take', () => {
    const streamed = 0.5e9; // a tenth of a second
    assert.equal(choose(large, { cpu, card }).decode, 'webgpu');
    assert.equal(choose({ ...large, streamed }, { cpu, card }).decode, 'wasm');
    assert.equal(choose({ ...large, streamed }, { cpu: { decode: 300, prefill: 8 }, card }).decode, 'webgpu', 'unless the CPU streams more slowly');
  });

  test('where the card is faster for tokens and not for prompts, all are computed by the one that is faster in the end', () => {
    const odd = { ...card, mac: 1 / 1.22e8 }; // prompts 9 ms a token
    const { decode, cardFrom } = choose(large, { cpu, card: odd });
    assert.deepEqual([decode, cardFrom], ['webgpu', 1], '256 of a prompt in 2.3 s for 2, 128 of an answer in 1.3 for 2.6');
    assert.equal(choose(large, { cpu, card: { ...card, mac: 1 / 0.3e8 } }).cardFrom, Infinity);
  });

  test('a card that is faster never gets less to do', () => {
    const next = random(7);
    const between = (low, high) => low * (high / low) ** next();
    for (let i = 0; i < 300; i++) {
      const work = { bytes: between(1e6, 1e10), macs: between(1e6, 1e10), layers: Math.ceil(between(1, 80)), batch: 64, streamed: next() < 0.5 ? 0 : between(1e6, 1e9) };
      const decode = between(0.1, 500);
      const host = { decode, prefill: decode * between(0.05, 1) };
      const given = { pass: between(0.2, 20), dispatch: between(0.001, 0.1), byte: 1 / between(1e6, 1e9), mac: 1 / between(1e7, 1e10), upload: 1 / between(1e6, 1e8) };
      const faster = Object.fromEntries(Object.entries(given).map(([name, ms]) => [name, ms * next()]));
      const [before, after] = [choose(work, { cpu: host, card: given }), choose(work, { cpu: host, card: faster })];
      assert.ok(after.cardFrom <= before.cardFrom, `${before.cardFrom}, then ${after.cardFrom}`);
      assert.deepEqual(choose(work, { cpu: host, card: given }), before);
      assert.equal(before.decode === 'webgpu', before.cardFrom === 1);
      assert.equal(before.prefill === 'webgpu', before.cardFrom !== Infinity);
    }
  });
});
