// The published package: its files, their sizes, the declarations as a strict consumer sees them,
// and bundling. Needs dist/ (npm run build).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { inRoot, root } from '../../web/scripts/lib.mjs';
import { longOnly } from '../extent.mjs';
import { consumerFolder, typecheck } from './typecheck.mjs';

const kB = 1024;
const limits = {
  // raw and gzipped bytes; a page fetches these before the model
  'engine.simd128.wasm': [1040 * kB, 350 * kB],
  'engine.relaxed.wasm': [1040 * kB, 350 * kB],
  'engine.relaxed16.wasm': [1040 * kB, 350 * kB],
  'engine.gpu.wasm': [1090 * kB, 365 * kB], // 0.5 kB of it is the layer split between GPU and CPU
  'chat.wasm': [370 * kB, 159 * kB], // a third of it is requests and responses of servers
  'templates.js': [18 * kB, 8 * kB],
  'safetensors.wasm': [200 * kB, 88 * kB],
  'safetensors.js': [8 * kB, 3 * kB],
  'gpu.js': [110 * kB, 34 * kB], // 3 kB of it are int8 and f16 matrix multiplication
  'index.js': [40 * kB, 14 * kB],
  'model-cache.js': [8 * kB, 3 * kB],
  'worker.js': [160 * kB, 50 * kB],
};

let consumer;
before(() => {
  consumer = consumerFolder('consumer');
});
after(() => rmSync(consumer, { recursive: true, force: true }));

for (const [name, [raw, zipped]] of Object.entries(limits)) {
  test(`dist/${name} is within its size limit`, () => {
    const bytes = readFileSync(inRoot('dist', name));
    assert.ok(bytes.length <= raw, `${bytes.length} bytes, at most ${raw}`);
    const packed = gzipSync(bytes).length;
    assert.ok(packed <= zipped, `${packed} bytes gzipped, at most ${zipped}`);
  });
}

test('all JavaScript of a page that does not chat stays under 40 kB gzipped', () => {
  const sizes = ['index.js', 'worker.js'].map(
    (name) => gzipSync(readFileSync(inRoot('dist', name))).length,
  );
  const total = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(total <= 40 * kB, `${total} bytes (${sizes})`);
});

test('the package holds only files meant for users', () => {
  const { stdout } = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    encoding: 'utf8',
  });
  const [{ files }] = JSON.parse(stdout);
  const paths = files.map((f) => f.path);
  const known = /^(dist\/|docs\/|LICENSE$|(README|CHANGELOG|SECURITY)\.md$|package\.json$)/;
  assert.deepEqual(
    paths.filter((p) => !known.test(p)),
    [],
  );
  for (const wanted of [
    'LICENSE',
    'docs/architecture.md',
    'dist/THIRD_PARTY.md',
    'dist/docs/api.md',
    'dist/index.js',
    'dist/model-cache.js',
    'dist/index.d.ts',
    'dist/worker.js',
    'dist/node.js',
    'dist/worker-node.js',
    'dist/templates.js',
    'dist/chat.wasm',
    'dist/safetensors.js',
    'dist/safetensors.wasm',
    'dist/engine.simd128.wasm',
    'dist/engine.relaxed.wasm',
    'dist/engine.relaxed16.wasm',
  ]) {
    assert.ok(paths.includes(wanted), `${wanted} is missing`);
  }
  const dead = paths
    .filter((path) => path.endsWith('.md'))
    .flatMap((path) => deadLinks(path, paths));
  assert.deepEqual(dead, []);
});

/** Relative links of a page that lead to no packed file, or to no heading. */
function deadLinks(page, paths) {
  const text = readFileSync(inRoot(page), 'utf8').replace(/^```[^]*?^```/gm, '');
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link);
  return links
    .filter((link) => !/^[a-z]+:/.test(link))
    .filter((link) => {
      const [target, anchor] = link.split('#');
      const path = target ? join(dirname(page), target) : page;
      return !paths.includes(path) || (anchor && !headings(path).includes(anchor));
    })
    .map((link) => `${page}: ${link}`);
}

/** Anchors of a page's headings, as GitHub makes them. */
const headings = (path) =>
  [...readFileSync(inRoot(path), 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );

test('the portable binary needs only fixed-width SIMD, threads and the glue', () => {
  const bytes = readFileSync(inRoot('dist', 'engine.simd128.wasm'));
  assert.ok(WebAssembly.validate(bytes));
  const modules = new Set(
    WebAssembly.Module.imports(new WebAssembly.Module(bytes)).map((i) => i.module),
  );
  assert.deepEqual([...modules].sort(), ['env', 'wasi_snapshot_preview1']);
});

test('each relaxed binary has its own dot product instruction inlined', { skip: longOnly }, () => {
  const products = {
    relaxed: /i32x4\.\w*dot_i8x16_i7x16_add_s/g,
    relaxed16: /i16x8\.\w*dot_i8x16_i7x16_s/g,
  };
  for (const name of Object.keys(products)) {
    const text = spawnSync(
      inRoot('node_modules', '.bin', 'wasm-dis'),
      [inRoot('dist', `engine.${name}.wasm`)],
      { encoding: 'utf8', maxBuffer: 1 << 28 },
    ).stdout;
    assert.ok(!text.includes('(import "relaxed"'), name);
    for (const [whose, product] of Object.entries(products)) {
      const found = [...text.matchAll(product)].length; // one is the merged function itself
      assert.equal(found > 1, whose === name, `${found} products of ${whose} in ${name}`);
    }
  }
});

test('the declarations satisfy a strict consumer', () => {
  const use = `
    import { Engine, SluiceError, type EngineStats } from 'sluice-llm';
    export async function tell(url: string): Promise<string> {
      const engine = await Engine.load(url, { memoryBudget: 64 * 2 ** 20, onProgress: () => {} });
      let text = '';
      for await (const piece of engine.generate('Once', { maxTokens: 8, temperature: 0 })) text += piece.text;
      const stats: EngineStats = engine.stats();
      await engine.dispose();
      return text + stats.generatedTokens;
    }
    export const code = (e: unknown) => (e instanceof SluiceError ? e.code : 'unknown');
  `;
  for (const resolution of ['nodenext', 'bundler']) {
    const options = ['--skipLibCheck', 'false'];
    assert.equal(typecheck(consumer, { 'use.ts': use }, options, resolution), '', resolution);
  }
});

test('esbuild bundles without warnings and keeps the worker and wasm URLs', async () => {
  const { build } = await import('esbuild');
  writeFileSync(
    join(consumer, 'main.js'),
    `import { Engine } from 'sluice-llm'; globalThis.load = Engine.load;`,
  );
  const result = await build({
    entryPoints: [join(consumer, 'main.js')],
    absWorkingDir: consumer,
    bundle: true,
    format: 'esm',
    write: false,
    platform: 'browser',
    logLevel: 'silent',
  });
  assert.deepEqual(result.warnings, []);
  const text = result.outputFiles[0].text;
  assert.match(text, /new URL\("\.\/worker\.js", import\.meta\.url\)/);
  assert.doesNotMatch(text, /node:|new Function|\beval\(/);
  const worker = readFileSync(inRoot('dist', 'worker.js'), 'utf8');
  assert.match(worker, /new URL\("\.\/engine\.relaxed\.wasm",import\.meta\.url\)/);
  assert.doesNotMatch(worker, /new Function|\beval\(/);
  assert.ok(existsSync(inRoot('dist', 'worker.js.map')));
});
