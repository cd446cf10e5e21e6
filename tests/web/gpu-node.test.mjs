// The package `webgpu` in processes of their own: `npx sluice-llm run --device webgpu`, a missing
// package, and ends of the process at every moment. Dawn aborts a process that ends while one of its
// promises is pending, so each must exit with its own code.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { longOnly } from '../extent.mjs';
import { noSoftwareAdapter, useSoftwareAdapter } from './gpu-node.mjs';
import { models } from './gpu-page.mjs';
import { root } from './helpers.mjs';

if (!noSoftwareAdapter) useSoftwareAdapter();
const skip = noSoftwareAdapter;
const gpt2 = models('arch').find(({ name }) => name === 'gpt2');
const file = join(gpt2.folder, gpt2.file);

/** Runs node; resolves to its exit code and output. */
const node = (args) =>
  new Promise((resolve) =>
    execFile(process.execPath, args, (error, stdout, stderr) =>
      resolve({ code: error ? (error.code ?? error.signal) : 0, stdout, stderr }),
    ),
  );
const script = (text, dist = join(root, 'dist')) =>
  node([
    '--input-type=module',
    '-e',
    `import { Engine } from ${JSON.stringify(pathToFileURL(join(dist, 'node.js')).href)};
     const load = (more) => Engine.load(${JSON.stringify(file)}, { device: 'webgpu', contextLength: 32, threads: 1, ...more });
     const generate = (engine, maxTokens = 16) => engine.generate([1, 2, 3], { maxTokens, temperature: 0, ignoreEos: true });
     ${text}`,
  ]);

test('--device webgpu gives the text of the CPU', { skip }, async () => {
  const run = async (device) => {
    const args = ['run', file, '-p', 'mill river', '-n', '4', '--temp', '0', '--raw', '--json'];
    const { code, stdout, stderr } = await node([
      join(root, 'dist', 'cli.js'),
      ...args,
      ...['--ctx', '64', '--device', device],
    ]);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  };
  const [gpu, cpu] = [await run('webgpu'), await run('wasm')];
  assert.deepEqual([gpu.device, cpu.device], ['webgpu', 'wasm']);
  assert.equal(gpu.text, cpu.text);
  assert.ok(gpu.memory.gpu > 0 && gpu.generatedTokens === 4);
});

const ends = {
  // The first three always, the others in the long suite.
  'an idle engine does not keep the process alive':
    'for await (const piece of generate(await load(), 2)); ',
  'the process exits while kernels compile': 'await load(); process.exit(7);',
  'the engine is disposed of during a generation':
    "const engine = await load(); const over = (async () => { for await (const piece of generate(engine)) void engine.dispose(); })(); await over.catch(({ code }) => { if (code !== 'DISPOSED') throw code; });",
  'the process exits during a generation':
    'let n = 0; for await (const piece of generate(await load())) if (++n === 2) process.exit(7);',
  'the process exits while the engine loads':
    'load().catch(() => {}); setTimeout(() => process.exit(7), 200);',
  'the engine is disposed of while kernels compile': 'await (await load()).dispose();',
  'two engines in one process':
    'for await (const piece of generate(await load(), 2)); const other = await load(); for await (const piece of generate(other, 2));',
};
for (const [i, [name, text]] of Object.entries(ends).entries())
  test(name, { skip: skip || (i > 2 && longOnly) }, async () => {
    const { code, stderr } = await script(text);
    assert.equal(code, text.includes('exit(7)') ? 7 : 0, stderr);
  });

// A package whose calls take a while, and write when they begin and end.
const kSlowPackage = `
import { writeSync } from 'node:fs';
const slowly = (name) => {
  const channel = new BroadcastChannel('calls');
  channel.postMessage(name);
  writeSync(2, 'begin ' + name + ';');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
  writeSync(2, 'end ' + name + ';');
  channel.close();
};
class GPU {
  async requestAdapter() {
    slowly('requestAdapter');
    return new GPUAdapter();
  }
}
class GPUAdapter {
  info = { architecture: 'none' };
  features = new Set();
  get limits() {
    slowly('limits');
    return {};
  }
  async requestDevice() {
    throw new Error('none');
  }
}
class GPUDevice { createComputePipelineAsync() {} popErrorScope() {} }
class GPUBuffer { mapAsync() {} }
class GPUQueue { onSubmittedWorkDone() {} }
export const globals = { GPU, GPUAdapter, GPUDevice, GPUBuffer, GPUQueue };
slowly('import');
export const create = () => (slowly('create'), new GPU());
`;

test('the process does not exit within a call of WebGPU', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-slow-gpu-'));
  try {
    const needed = /(node\.js|gpu\.js|engine\.gpu\.wasm)$/;
    for (const name of readdirSync(join(root, 'dist')).filter((name) => needed.test(name)))
      copyFileSync(join(root, 'dist', name), join(folder, name));
    const slow = join(folder, 'node_modules', 'webgpu');
    mkdirSync(slow, { recursive: true });
    writeFileSync(join(slow, 'package.json'), '{"type":"module","exports":"./index.js"}');
    writeFileSync(join(slow, 'index.js'), kSlowPackage);
    for (const last of ['import', 'create', 'requestAdapter', 'limits']) {
      const { code, stderr } = await script(
        `new BroadcastChannel('calls').onmessage = ({ data }) => {
           if (data === ${JSON.stringify(last)}) setTimeout(() => process.exit(7), 50);
         };
         await load();`,
        folder,
      );
      assert.equal(code, 7, stderr);
      assert.ok(stderr.includes(`end ${last};`), stderr);
      assert.equal(stderr.replace(/begin (\w+);end \1;/g, ''), '', stderr);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('without the package, webgpu is an error that names it, and auto uses the CPU', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-no-dawn-'));
  try {
    const needed = /(node\.js|engine\.simd128\.wasm)$/;
    for (const name of readdirSync(join(root, 'dist')).filter((name) => needed.test(name)))
      copyFileSync(join(root, 'dist', name), join(folder, name));
    const { code, stdout, stderr } = await script(
      `const refused = await load().catch(({ code, message }) => [code, message]);
       const auto = await Engine.inspect(${JSON.stringify(file)}, { device: 'auto', kernels: 'wasm128' });
       console.log(JSON.stringify([refused, auto.device]));`,
      folder,
    );
    assert.equal(code, 0, stderr);
    const [[refused, message], auto] = JSON.parse(stdout);
    assert.equal(refused, 'NOT_SUPPORTED');
    assert.match(message, /^Node has no WebGPU of its own: install the npm package webgpu/);
    assert.deepEqual([auto.prefill, auto.decode, auto.reason], ['wasm', 'wasm', message]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
