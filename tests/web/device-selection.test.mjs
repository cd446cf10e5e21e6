// Which of CPU and graphics card computes what, from numbers alone: nothing is measured here.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { choose, cardPass, splitPass } = await importWeb('gpu/device-selection');

// A model of a billion weights in four bits, and one of a million; milliseconds.
const large = { bytes: 0.6e9, macs: 1.1e9, layers: 22, batch: 64, streamed: 0 };
const small = { bytes: 1e6, macs: 1e6, layers: 4, batch: 64, streamed: 0 };
const cpu = { decode: 20, prefill: 8 };
const card = { pass: 1, dispatch: 0.005, byte: 1 / 100e6, mac: 1 / 1e9, upload: 1 / 5e6 };

describe('the choice of a device', () => {
  test('a fast card computes all of a large model', () => {
    const { prefill, decode, cardFrom, reason, rates } = choose(large, { cpu, card });
    assert.deepEqual([prefill, decode, cardFrom], ['webgpu', 'webgpu', 1]);
    assert.match(
      reason,
      /^The card computes: measured, prompts \d+ tokens\/s on the card and 125 on the CPU, answers \d+ and 50\.$/,
    );
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
    assert.ok(
      cardPass(large, reads, cardFrom) < Math.max(cpu.decode, cardFrom * cpu.prefill),
      'it is faster from there on',
    );
    assert.ok(
      1.15 * cardPass(large, reads, cardFrom / 2) >
        Math.max(cpu.decode, (cardFrom / 2) * cpu.prefill),
      'and not before',
    );
    assert.match(
      reason,
      new RegExp(`^The card computes passes of ${cardFrom} tokens and more, the CPU the others`),
    );
  });

  test('weights that stream to the card cost a token what they take', () => {
    const streamed = 0.5e9; // a tenth of a second
    assert.equal(choose(large, { cpu, card }).decode, 'webgpu');
    assert.equal(choose({ ...large, streamed }, { cpu, card }).decode, 'wasm');
    assert.equal(
      choose({ ...large, streamed }, { cpu: { decode: 300, prefill: 8 }, card }).decode,
      'webgpu',
      'unless the CPU streams more slowly',
    );
  });

  test('where the card is faster for tokens and not for prompts, all are computed by the one that is faster in the end', () => {
    const odd = { ...card, mac: 1 / 1.22e8 }; // prompts 9 ms a token
    const { decode, cardFrom } = choose(large, { cpu, card: odd });
    assert.deepEqual(
      [decode, cardFrom],
      ['webgpu', 1],
      '256 of a prompt in 2.3 s for 2, 128 of an answer in 1.3 for 2.6',
    );
    assert.equal(choose(large, { cpu, card: { ...card, mac: 1 / 0.3e8 } }).cardFrom, Infinity);
  });

  describe('of a model that the card cannot hold', () => {
    const streamed = 0.3e9;
    const slowly = { ...card, upload: 1 / 1e6 };
    const half = { ...large, streamed, split: { layers: 11, share: 0.5 } };

    test("the first layers are the card's where that beats streaming and the CPU", () => {
      const { prefill, decode, cardFrom, gpuLayers, reason, rates } = choose(half, {
        cpu,
        card: slowly,
      });
      assert.deepEqual([prefill, decode, cardFrom, gpuLayers], ['webgpu', 'webgpu', 1, 11]);
      assert.match(
        reason,
        /^The card computes the first 11 of 22 layers, the CPU the others: measured, prompts \d+ tokens\/s so and 125 on the CPU, answers \d+ and 50\.$/,
      );
      const pass = splitPass(half, { cpu, card: slowly }, 1);
      assert.ok(Math.abs(rates.webgpu.decode - 1000 / pass) < 1e-9);
      assert.ok(
        pass > cpu.decode / 2 && pass < cpu.decode && pass < cardPass(half, slowly, 1),
        `${pass} ms`,
      );
    });

    test('not where streaming is as fast, or the CPU alone', () => {
      const fast = { ...card, upload: 1 / 1e9 };
      assert.deepEqual(
        [choose(half, { cpu, card: fast }).cardFrom, choose(half, { cpu, card: fast }).gpuLayers],
        [1, undefined],
      );
      const slow = { ...card, pass: 30 };
      assert.deepEqual(
        [
          choose(half, { cpu, card: slow }).gpuLayers,
          choose({ ...half, only: true }, { cpu, card: slow }).cardFrom,
        ],
        [undefined, Infinity],
      );
      assert.equal(
        choose({ ...half, split: { layers: 1, share: 0.05 } }, { cpu, card }).gpuLayers,
        undefined,
        'a twentieth of the weights is not worth it',
      );
    });

    test('and where it was asked for, the choice is between that and the CPU', () => {
      const fast = { ...card, upload: 1 / 1e9 };
      assert.equal(choose({ ...half, only: true }, { cpu, card: fast }).gpuLayers, 11);
      assert.equal(
        choose(
          { ...half, only: true, streamed: 0 },
          { cpu, card: { ...card, byte: 1 / 1e6, mac: 1 / 5e7 } },
        ).decode,
        'wasm',
      );
    });

    test('what is chosen is never slower by the same numbers, and a faster card never loses the split to the CPU', () => {
      const next = random(11);
      const between = (low, high) => low * (high / low) ** next();
      const seen = new Set();
      for (let i = 0; i < 400; i++) {
        const layers = Math.ceil(between(2, 80));
        const kept = Math.ceil((layers - 1) * next());
        const bytes = between(1e8, 1e10);
        const work = {
          bytes,
          macs: bytes * between(0.5, 4),
          layers,
          batch: 64,
          streamed: bytes * (1 - kept / layers),
          split: { layers: kept, share: kept / layers },
        };
        const decode = bytes / between(5e6, 4e7);
        const measured = {
          cpu: { decode, prefill: decode * between(0.05, 1) },
          card: {
            pass: between(0.2, 20),
            dispatch: between(0.001, 0.1),
            byte: 1 / between(1e7, 1e9),
            mac: 1 / between(1e8, 1e10),
            upload: 1 / between(1e6, 1e7),
          },
        };
        const { cardFrom, gpuLayers } = choose(work, measured);
        const total = (pass) => 4 * pass(64) + 128 * pass(1);
        const alone = {
          card: total((n) => cardPass(work, measured.card, n)),
          cpu: total((n) => Math.max(decode, n * measured.cpu.prefill)),
          split: total((n) => splitPass(work, measured, n)),
        };
        const chosen = gpuLayers
          ? alone.split
          : cardFrom === 1
            ? alone.card
            : cardFrom === Infinity
              ? alone.cpu
              : undefined;
        seen.add(
          gpuLayers ? 'split' : cardFrom === 1 ? 'card' : cardFrom === Infinity ? 'cpu' : 'prompts',
        );
        if (chosen)
          assert.ok(
            chosen <= 1.16 * Math.min(alone.cpu, alone.split),
            JSON.stringify({ work, measured, alone, gpuLayers }),
          );
        if (!gpuLayers) continue;
        const faster = {
          ...measured,
          card: Object.fromEntries(
            Object.entries(measured.card).map(([name, ms]) => [
              name,
              name === 'upload' ? ms : ms * next(),
            ]),
          ),
        };
        assert.notEqual(choose(work, faster).cardFrom, Infinity);
      }
      assert.ok(seen.has('split') && seen.has('cpu'), [...seen].join());
    });
  });

  test('a card that is faster never gets less to do', () => {
    const next = random(7);
    const between = (low, high) => low * (high / low) ** next();
    for (let i = 0; i < 300; i++) {
      const work = {
        bytes: between(1e6, 1e10),
        macs: between(1e6, 1e10),
        layers: Math.ceil(between(1, 80)),
        batch: 64,
        streamed: next() < 0.5 ? 0 : between(1e6, 1e9),
      };
      const decode = between(0.1, 500);
      const host = { decode, prefill: decode * between(0.05, 1) };
      const given = {
        pass: between(0.2, 20),
        dispatch: between(0.001, 0.1),
        byte: 1 / between(1e6, 1e9),
        mac: 1 / between(1e7, 1e10),
        upload: 1 / between(1e6, 1e8),
      };
      const faster = Object.fromEntries(
        Object.entries(given).map(([name, ms]) => [name, ms * next()]),
      );
      const [before, after] = [
        choose(work, { cpu: host, card: given }),
        choose(work, { cpu: host, card: faster }),
      ];
      assert.ok(after.cardFrom <= before.cardFrom, `${before.cardFrom}, then ${after.cardFrom}`);
      assert.deepEqual(choose(work, { cpu: host, card: given }), before);
      assert.equal(before.decode === 'webgpu', before.cardFrom === 1);
      assert.equal(before.prefill === 'webgpu', before.cardFrom !== Infinity);
    }
  });
});
