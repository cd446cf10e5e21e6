// The benchmark of GPUs in Node: the shapes' headers are models that the engine loads, and a tiny
// shape is measured on a software adapter.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Engine } from '../../dist/node.js';
import { runKit, totalOf } from '../bench/gpu/kit.mjs';
import { compare } from '../bench/gpu/models.mjs';
import { checkSize } from '../bench/gpu/pack.mjs';
import { shapeFile } from '../bench/gpu/shapes.mjs';
import { serveVirtual } from '../bench/gpu/virtual-file.mjs';
import { longOnly } from '../extent.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';

/** Parameters in millions, and bytes of a file, of published models of these shapes. */
const kPublished = {
  'lfm2.5-230m': { arch: 'lfm2', layers: 14, million: [225, 235] },
  'qwen3-0.6b': { arch: 'qwen3', layers: 28, million: [590, 600] },
  'llama-3.2-1b': { arch: 'llama', layers: 16, million: [1230, 1240] },
  'gemma-4-e2b': { arch: 'gemma4', layers: 35, million: [4500, 5200] },
  'llama-3.1-8b': { arch: 'llama', layers: 32, million: [8000, 8060] },
};
let folder;
before(() => (folder = mkdtempSync(join(tmpdir(), 'sluice-gpu-bench-'))));
after(() => rmSync(folder, { recursive: true }));

for (const [name, { arch, layers, million }] of Object.entries(kPublished))
  test(
    `${name} has the size of the published model`,
    { skip: layers > 14 && longOnly },
    async () => {
      const file = shapeFile(name, 'Q8_0');
      const server = await serveVirtual({ 'model.gguf': file });
      try {
        const info = await Engine.inspect(`${server.url}/model.gguf`, { cache: 'none' });
        assert.deepEqual([info.architecture, info.layers], [arch, layers]);
        const weights = (file.size - file.header.length) / (34 / 32) / 1e6;
        assert.ok(weights > million[0] && weights < million[1], `${weights} million weights`);
      } finally {
        await server.close();
      }
    },
  );

test('a kit that is too large is an error that lists what is large', () => {
  const kit = join(folder, 'kit');
  mkdirSync(join(kit, 'dist'), { recursive: true });
  writeFileSync(join(kit, 'dist', 'engine.wasm'), new Uint8Array(3e6));
  writeFileSync(join(kit, 'run'), 'x');
  checkSize(kit, 30e6);
  assert.throws(() => checkSize(kit, 30e6 + 2e5), {
    message:
      'the kit has 30.2 MB, more than 30.0 MB:\n' +
      '  3.0 MB, gzipped 0.0 MB: dist/engine.wasm\n  0.0 MB, gzipped 0.0 MB: run',
  });
});

test('a model is compared behind the tokens of the CPU', () => {
  const choices = (all) => all.map(([token, gap]) => ({ token, gap }));
  const cpu = {
    tokens: [5, 6, 7, 8],
    choices: choices([
      [5, 1],
      [6, 5e-4],
      [7, 0.25],
      [8, 2],
    ]),
  };
  const gpu = {
    tokens: [5, 9, 9, 9],
    choices: choices([
      [5, 1],
      [9, 0],
      [9, 0],
      [8, 2],
    ]),
  };
  assert.deepEqual(compare(gpu, cpu), {
    equalTokens: 1,
    firstDifference: { at: 1, gap: 5e-4 },
    forced: {
      equal: 2,
      of: 4,
      others: [
        { at: 1, gap: 5e-4 },
        { at: 2, gap: 0.25 },
      ],
      wrong: 1,
    },
  });
  assert.equal(
    totalOf([compare(gpu, cpu), compare(cpu, cpu), { error: 'unsupported' }]),
    "2 of 3 models: 8 choices behind the CPU's tokens, 2 differ, 1 with a gap above 0.001",
  );
  const { equalTokens, firstDifference, forced } = compare(cpu, cpu);
  assert.deepEqual([equalTokens, firstDifference, forced.wrong], [4, null, 0]);
});

test(
  'a shape is measured with synthetic weights',
  { skip: noSoftwareAdapter || longOnly },
  async () => {
    useSoftwareAdapter();
    const out = join(folder, 'results.json');
    const sizes = { prefill: 16, decode: 9, traced: 5, contextLength: 64 };
    await runKit(['shape=tiny:Q4_0'], out, [], sizes);
    const { probe, shapes } = JSON.parse(readFileSync(out, 'utf8'));
    assert.ok(probe.copyBytesPerSecond > 1e6 && probe.dependentDispatchMs > 0);
    const [{ error, decode, prefill, kernels, shareOfCopyBandwidth }] = shapes;
    assert.equal(error, undefined);
    // Two layers of six dispatches, the head, the embedding, and two for the choice.
    assert.equal(decode.dispatches, 16);
    assert.ok(decode.weightBytes > 8e5 && prefill.tokensPerSecond > 0 && shareOfCopyBandwidth > 0);
    assert.ok(decode.encodeMs > 0 && decode.commandsMs > 0 && decode.waitMs > 0);
    assert.ok(probe.encodeDispatchMs > 0);
    const measured = Object.values(kernels).reduce((sum, { count }) => sum + count, 0);
    assert.ok(measured >= 16, `${measured} dispatches with timestamps`);
  },
);
