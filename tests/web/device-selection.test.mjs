// Device selection from given measurements: what the CPU and the GPU compute. Measures nothing.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { importWeb, random } from './helpers.mjs';

const { choose, gpuPass, splitPass } = await importWeb('gpu/device-selection');

// A model with 1.1 billion weights at 4 bits, and one with a million; times are in milliseconds.
const large = { bytes: 0.6e9, macs: 1.1e9, layers: 22, batch: 64, streamed: 0 };
const small = { bytes: 1e6, macs: 1e6, layers: 4, batch: 64, streamed: 0 };
const cpu = { decode: 20, prefill: 8 };
const gpu = { pass: 1, dispatch: 0.005, byte: 1 / 100e6, mac: 1 / 1e9, upload: 1 / 5e6 };

describe('device selection', () => {
  test('a fast GPU computes a large model entirely', () => {
    const { prefill, decode, gpuMinBatch, reason, rates } = choose(large, { cpu, gpu });
    assert.deepEqual([prefill, decode, gpuMinBatch], ['webgpu', 'webgpu', 1]);
    assert.match(
      reason,
      /^The GPU computes: measured, prefill \d+ tokens\/s on the GPU and 125 on the CPU, decode \d+ and 50\.$/,
    );
    assert.ok(rates.webgpu.decode > rates.wasm.decode && rates.webgpu.prefill > rates.wasm.prefill);
  });

  test('a slow GPU computes nothing', () => {
    const slow = { ...gpu, byte: 1 / 1e6, mac: 1 / 5e7 };
    const { prefill, decode, gpuMinBatch, reason } = choose(large, { cpu, gpu: slow });
    assert.deepEqual([prefill, decode, gpuMinBatch], ['wasm', 'wasm', Infinity]);
    assert.match(reason, /^The CPU computes: measured/);
  });

  test('a model too small for the cost of a GPU pass stays on the CPU', () => {
    assert.equal(
      choose(small, { cpu: { decode: 0.05, prefill: 0.01 }, gpu }).gpuMinBatch,
      Infinity,
    );
  });

  test('a GPU that reads weights no faster than the CPU computes only prompts', () => {
    const reads = { ...gpu, byte: 1 / 30e6 };
    const { prefill, decode, gpuMinBatch, reason } = choose(large, { cpu, gpu: reads });
    assert.deepEqual([prefill, decode], ['webgpu', 'wasm']);
    assert.ok(gpuMinBatch > 1 && gpuMinBatch <= 64, gpuMinBatch);
    assert.ok(
      gpuPass(large, reads, gpuMinBatch) < Math.max(cpu.decode, gpuMinBatch * cpu.prefill),
      'faster from gpuMinBatch on',
    );
    assert.ok(
      1.15 * gpuPass(large, reads, gpuMinBatch / 2) >
        Math.max(cpu.decode, (gpuMinBatch / 2) * cpu.prefill),
      'not faster at half of it',
    );
    assert.match(
      reason,
      new RegExp(
        `^The GPU computes batches of ${gpuMinBatch} tokens and more, the CPU smaller ones`,
      ),
    );
  });

  test('the time to stream weights to the GPU counts for each token', () => {
    const streamed = 0.5e9; // 100 ms per pass
    assert.equal(choose(large, { cpu, gpu }).decode, 'webgpu');
    assert.equal(choose({ ...large, streamed }, { cpu, gpu }).decode, 'wasm');
    assert.equal(
      choose({ ...large, streamed }, { cpu: { decode: 300, prefill: 8 }, gpu }).decode,
      'webgpu',
      'unless the CPU streams more slowly',
    );
  });

  test('a GPU that is faster only at decoding is chosen if prompt plus output is faster', () => {
    const odd = { ...gpu, mac: 1 / 1.22e8 }; // prefill takes 9 ms per token
    const { decode, gpuMinBatch } = choose(large, { cpu, gpu: odd });
    assert.deepEqual(
      [decode, gpuMinBatch],
      ['webgpu', 1],
      '256 prompt tokens take 2.3 s, not 2; 128 output tokens 1.3 s, not 2.6',
    );
    assert.equal(choose(large, { cpu, gpu: { ...gpu, mac: 1 / 0.3e8 } }).gpuMinBatch, Infinity);
  });

  describe('a model larger than the GPU budget', () => {
    const streamed = 0.3e9;
    const slowly = { ...gpu, upload: 1 / 1e6 };
    const half = { ...large, streamed, split: { layers: 11, share: 0.5 } };

    test('the first layers go to the GPU if that beats streaming and the CPU', () => {
      const { prefill, decode, gpuMinBatch, gpuLayers, reason, rates } = choose(half, {
        cpu,
        gpu: slowly,
      });
      assert.deepEqual([prefill, decode, gpuMinBatch, gpuLayers], ['webgpu', 'webgpu', 1, 11]);
      assert.match(
        reason,
        /^The GPU computes the first 11 of 22 layers, the CPU the others: measured, prefill \d+ tokens\/s this way and 125 on the CPU, decode \d+ and 50\.$/,
      );
      const pass = splitPass(half, { cpu, gpu: slowly }, 1);
      assert.ok(Math.abs(rates.webgpu.decode - 1000 / pass) < 1e-9);
      assert.ok(
        pass > cpu.decode / 2 && pass < cpu.decode && pass < gpuPass(half, slowly, 1),
        `${pass} ms`,
      );
    });

    test('no split if streaming or CPU only is as fast', () => {
      const fast = { ...gpu, upload: 1 / 1e9 };
      assert.deepEqual(
        [choose(half, { cpu, gpu: fast }).gpuMinBatch, choose(half, { cpu, gpu: fast }).gpuLayers],
        [1, undefined],
      );
      const slow = { ...gpu, pass: 30 };
      assert.deepEqual(
        [
          choose(half, { cpu, gpu: slow }).gpuLayers,
          choose({ ...half, only: true }, { cpu, gpu: slow }).gpuMinBatch,
        ],
        [undefined, Infinity],
      );
      assert.equal(
        choose({ ...half, split: { layers: 1, share: 0.05 } }, { cpu, gpu }).gpuLayers,
        undefined,
        '5 % of the weights is not worth a split',
      );
    });

    test('a requested split is chosen unless CPU only is faster', () => {
      const fast = { ...gpu, upload: 1 / 1e9 };
      assert.equal(choose({ ...half, only: true }, { cpu, gpu: fast }).gpuLayers, 11);
      assert.equal(
        choose(
          { ...half, only: true, streamed: 0 },
          { cpu, gpu: { ...gpu, byte: 1 / 1e6, mac: 1 / 5e7 } },
        ).decode,
        'wasm',
      );
    });

    test('the choice is never slower by its own estimate, and a faster GPU keeps the split', () => {
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
          gpu: {
            pass: between(0.2, 20),
            dispatch: between(0.001, 0.1),
            byte: 1 / between(1e7, 1e9),
            mac: 1 / between(1e8, 1e10),
            upload: 1 / between(1e6, 1e7),
          },
        };
        const { gpuMinBatch, gpuLayers } = choose(work, measured);
        const total = (pass) => 4 * pass(64) + 128 * pass(1);
        const alone = {
          gpu: total((n) => gpuPass(work, measured.gpu, n)),
          cpu: total((n) => Math.max(decode, n * measured.cpu.prefill)),
          split: total((n) => splitPass(work, measured, n)),
        };
        const chosen = gpuLayers
          ? alone.split
          : gpuMinBatch === 1
            ? alone.gpu
            : gpuMinBatch === Infinity
              ? alone.cpu
              : undefined;
        seen.add(
          gpuLayers
            ? 'split'
            : gpuMinBatch === 1
              ? 'gpu'
              : gpuMinBatch === Infinity
                ? 'cpu'
                : 'prompts',
        );
        if (chosen)
          assert.ok(
            chosen <= 1.16 * Math.min(alone.cpu, alone.split),
            JSON.stringify({ work, measured, alone, gpuLayers }),
          );
        if (!gpuLayers) continue;
        const faster = {
          ...measured,
          gpu: Object.fromEntries(
            Object.entries(measured.gpu).map(([name, ms]) => [
              name,
              name === 'upload' ? ms : ms * next(),
            ]),
          ),
        };
        assert.notEqual(choose(work, faster).gpuMinBatch, Infinity);
      }
      assert.ok(seen.has('split') && seen.has('cpu'), [...seen].join());
    });
  });

  test('a faster GPU never computes less', () => {
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
        choose(work, { cpu: host, gpu: given }),
        choose(work, { cpu: host, gpu: faster }),
      ];
      assert.ok(
        after.gpuMinBatch <= before.gpuMinBatch,
        `${before.gpuMinBatch}, then ${after.gpuMinBatch}`,
      );
      assert.deepEqual(choose(work, { cpu: host, gpu: given }), before);
      assert.equal(before.decode === 'webgpu', before.gpuMinBatch === 1);
      assert.equal(before.prefill === 'webgpu', before.gpuMinBatch !== Infinity);
    }
  });
});
