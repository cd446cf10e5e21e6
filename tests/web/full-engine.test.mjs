// Which engine a load uses. The common engines run exact models of the common quantization types.
// The full ones also have the other types and the approximate modes, and are fetched only for these.
// In Chromium, qsf.test.mjs looks at the requests.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';

const data = (...path) => join(root, 'tests', 'data', ...path);
const folder = mkdtempSync(join(tmpdir(), 'sluice-full-'));
after(() => rmSync(folder, { recursive: true }));

/** The package without its full engines. */
let load;
before(async () => {
  const dist = join(folder, 'dist');
  cpSync(join(root, 'dist'), dist, {
    recursive: true,
    filter: (path) => !path.endsWith('-full.wasm'),
  });
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type": "module"}');
  const { Engine } = await import(pathToFileURL(join(dist, 'node.js')).href);
  load = async (source, options) => {
    const engine = await Engine.load(source, {
      contextLength: 32,
      threads: 1,
      cache: 'none',
      ...options,
    });
    await engine.dispose();
  };
});

const needsFull = { code: 'WASM_LOAD', message: /engine\.\w+-full\.wasm/ };

test('exact models run in the common engines', async () => {
  const clusters = data('qsf', 'clusters.qsf');
  await load(clusters);
  await load(clusters, { approximate: { skipLayersRatio: 0, headClusters: 'off' } });
});

test('options for approximate modes choose the full engine', async () => {
  const clusters = data('qsf', 'clusters.qsf');
  await assert.rejects(load(clusters, { approximate: { skipLayersRatio: 0.5 } }), needsFull);
  for (const headClusters of [4, 'exact'])
    await assert.rejects(load(clusters, { approximate: { headClusters } }), needsFull);
});

test('a file that needs the full engine gets it', async () => {
  const files = ['qsf/own.qsf', 'qsf/embedding.qsf', 'quant-iq/llama-IQ1_M.gguf'];
  for (const file of files.map((name) => data(name)))
    await assert.rejects(load(file), needsFull, file);
});

/** A GGUF file with one tensor's type replaced by another of the same size. */
function withType(file, tensor, from, to) {
  const bytes = readFileSync(file);
  // The name, its dimensions, then the type.
  const at = bytes.indexOf(tensor) + tensor.length;
  const type = at + 4 + 8 * bytes.readUInt32LE(at);
  assert.equal(bytes.readUInt32LE(type), from);
  bytes.writeUInt32LE(to, type);
  const changed = join(folder, 'changed.gguf');
  writeFileSync(changed, bytes);
  return changed;
}

test('a type that no engine runs is an error without the full engine', async () => {
  const f16 = 1;
  const i16 = 25;
  const file = withType(data('families', 'qwen3moe.gguf'), 'blk.0.attn_q.weight', f16, i16);
  await assert.rejects(load(file), { code: 'UNSUPPORTED_TYPE', message: /I16/ });
});
