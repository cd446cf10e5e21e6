// The published package: its files, their sizes, the declarations as a strict consumer sees them,
// and bundling. Needs dist/ (npm run build).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { inRoot, root } from '../../web/scripts/lib.mjs';
import { longOnly } from '../extent.mjs';
import { consumerFolder, typecheck } from './typecheck.mjs';

const kB = 1024;
const limits = {
  // raw and gzipped bytes; a page fetches these before the model
  'engine.simd128.wasm': [1015 * kB, 350 * kB],
  'engine.relaxed.wasm': [1012 * kB, 350 * kB], // 0.3 kB of it is a KV cache on the GPU
  'engine.relaxed16.wasm': [1012 * kB, 351 * kB],
  'engine.simd128-full.wasm': [1260 * kB, 430 * kB], // for files and options that need them; pictures are 62 kB, QSF types 7 kB
  'engine.relaxed-full.wasm': [1260 * kB, 430 * kB],
  'engine.relaxed16-full.wasm': [1260 * kB, 431 * kB],
  'pictures.js': [14 * kB, 6 * kB], // only for prompts with pictures
  'engine.gpu.wasm': [1120 * kB, 380 * kB], // no types of few files; 0.5 kB is the layer split between GPU and CPU, 6.6 kB draft models and batches of several sequences
  'engine.gpu-full.wasm': [1267 * kB, 440 * kB], // with all types, approximate modes and pictures
  'chat.wasm': [320 * kB, 139 * kB], // a sixth of it is OpenAI's requests and responses, 4 kB pictures
  'templates.js': [18 * kB, 8 * kB],
  'safetensors.wasm': [200 * kB, 88 * kB],
  'safetensors.js': [8 * kB, 3 * kB],
  'gpu.js': [112 * kB, 37 * kB], // 3 kB of it are int8 and f16 matrix multiplication, 1.2 kB replays, 0.3 kB pictures
  'gpu-auto.js': [12 * kB, 5.1 * kB], // only for device 'auto'
  'gpu-types.js': [20 * kB, 5.2 * kB], // only for rare quantization types
  'gpu-pictures.js': [36 * kB, 13 * kB], // only for prompts with pictures
  'gpu-kv.js': [18 * kB, 7.2 * kB], // only for a KV cache that is quantized, evicts or exceeds memory
  'gpu-lora.js': [6 * kB, 3 * kB], // only for LoRA adapters
  'gpu-parallel.js': [2.3 * kB, 1.2 * kB], // only for several sequences
  'gpu-recurrent.js': [15 * kB, 5.1 * kB], // only for models with recurrent layers; 0.6 kB are states that stay on the GPU
  'gpu-ops.js': [2 * kB, 1 * kB], // only for latent attention with a matrix per head
  'gpu-gemma.js': [12 * kB, 4.5 * kB], // only for Gemma 3n and Gemma 4
  'gpu-relative.js': [8.5 * kB, 3.3 * kB], // only for relative positions
  'index.js': [40 * kB, 14 * kB],
  'embed.js': [4 * kB, 2 * kB],
  'model-cache.js': [8.5 * kB, 4.2 * kB], // 1 kB of it is hf: references and the rule of keys
  'sources.js': [12 * kB, 5.5 * kB],
  'hosts.js': [7 * kB, 3.5 * kB],
  'worker.js': [160 * kB, 50 * kB],
};

const packageJson = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'));

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

test('README and benchmarks state the sizes of today', () => {
  const kilobytes = (...names) =>
    names.reduce((sum, name) => sum + gzipSync(readFileSync(inRoot('dist', name))).length, 0) /
    1000;
  const readme = readFileSync(inRoot('README.md'), 'utf8');
  const table = readFileSync(inRoot('docs', 'benchmarks.md'), 'utf8').split('## Download size')[1];
  const row = (name) => table.split('\n').find((line) => line.startsWith(`| ${name}`));
  const chat = kilobytes('chat.wasm', 'templates.js');
  for (const [stated, size] of [
    [readme.match(/chat adds (\d+) kB/)[1], chat],
    [row('`chat.wasm`').match(/(\d+) kB/)[1], chat],
    [row('engine with plain SIMD').match(/(\d+) kB/)[1], kilobytes('engine.simd128.wasm')],
    [row('engine with WebGPU').match(/(\d+) kB/)[1], kilobytes('engine.gpu.wasm')],
    [row('`index.js`').match(/(\d+) kB/)[1], kilobytes('index.js', 'worker.js')],
  ]) {
    assert.ok(
      Math.abs(Number(stated) / size - 1) < 0.05,
      `${stated} kB stated, ${size} kB measured`,
    );
  }
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
    'dist/embed.js',
    'dist/model-cache.js',
    'dist/index.d.ts',
    'dist/worker.js',
    'dist/node.js',
    'dist/worker-node.js',
    'dist/templates.js',
    'dist/chat.wasm',
    'dist/chat-server.wasm',
    'dist/safetensors.js',
    'dist/sources.js',
    'dist/hosts.js',
    'dist/pictures.js',
    'dist/jpeg.wasm',
    'dist/webp.wasm',
    'dist/safetensors.wasm',
    'dist/engine.simd128.wasm',
    'dist/engine.relaxed.wasm',
    'dist/engine.relaxed16.wasm',
    'dist/engine.simd128-full.wasm',
    'dist/engine.relaxed-full.wasm',
    'dist/engine.relaxed16-full.wasm',
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

test('the portable binary needs only fixed-width SIMD, threads and the runtime', () => {
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

// Every entry is imported, and all declarations are checked (skipLibCheck is false).
const use = `
  import { Engine, SluiceError, type EngineStats, type GeneratedToken } from 'sluice-llm';
  import { Engine as Inline } from 'sluice-llm/inline';
  import { huggingFaceUrl } from 'sluice-llm/huggingface';
  import { SavedSessions } from 'sluice-llm/sessions';
  import { sluice } from 'sluice-llm/ai-sdk';
  import { sluiceEmbedding } from 'sluice-llm/ai-sdk/v4';
  export async function tell(file: string, signal: AbortSignal): Promise<string> {
    const url: string = huggingFaceUrl(file);
    const engine: Inline = await Engine.load(url, { memoryBudget: 64 * 2 ** 20, onProgress: () => {}, signal });
    let text = '';
    const show = (piece: GeneratedToken) => (text += piece.text);
    for await (const piece of engine.generate('Once', { maxTokens: 8, temperature: 0 })) show(piece);
    const stats: EngineStats = engine.stats();
    await (await SavedSessions.open()).save('it', engine);
    const versions: ['v3', 'v4'] = [sluice(engine).specificationVersion, sluiceEmbedding(engine).specificationVersion];
    // @ts-expect-error
    engine.generate(1);
    await engine.dispose();
    return text + stats.generatedTokens + versions;
  }
  export const code = (e: unknown) => (e instanceof SluiceError ? e.code : 'unknown');
`;
const node = ['--types', 'node', '--typeRoots', inRoot('node_modules', '@types')];
const noTypes = ['--typeRoots', join(inRoot('tests'), 'none')];
const settings = {
  'a page, with a bundler': ['bundler', 'es2022,dom', noTypes],
  'Node without DOM, nodenext': ['nodenext', 'es2022', node],
  'Node without DOM, node16': ['node16', 'es2022', node],
  'Node with DOM, nodenext': ['nodenext', 'es2022,dom,esnext.disposable', node],
  'node10, which reads typesVersions': ['node10', 'es2022,dom', noTypes],
};
for (const [name, [resolution, lib, options]] of Object.entries(settings)) {
  const skip = /node16|Node with DOM/.test(name) && longOnly;
  test(`the declarations have no error for ${name}`, { skip }, () => {
    const flags = ['--skipLibCheck', 'false', '--lib', lib, ...options];
    if (resolution === 'node10') flags.push('--ignoreDeprecations', '6.0');
    assert.equal(typecheck(consumer, { 'use.ts': use }, flags, resolution), '');
  });
}

test('the declarations lead to no file inside the package', () => {
  const files = readdirSync(inRoot('dist'), { recursive: true }).map(String);
  const declarations = files.filter((name) => name.endsWith('.d.ts')).sort();
  const { exports } = packageJson;
  const entries = Object.values(exports).flatMap(
    ({ types }) => types?.slice('./dist/'.length) ?? [],
  );
  assert.deepEqual(declarations, entries.sort());
  for (const name of declarations) {
    const text = readFileSync(inRoot('dist', name), 'utf8').replace(/\/\*.*?\*\//gs, '');
    const from = [...text.matchAll(/\b(?:from|import\()\s*['"]([^'"]+)['"]/g)].map(
      ([, path]) => path,
    );
    for (const path of from) assert.match(path, /^(\.\/index\.js|@ai-sdk\/provider)$/, name);
    assert.doesNotMatch(text, /@internal/);
  }
  assert.equal(typeof packageJson.typesVersions['*'].sessions[0], 'string');
});

test('bundlers can import each file that is fetched, and Node gets none that is minified', () => {
  const { exports } = packageJson;
  const scripts = readdirSync(inRoot('dist')).filter((name) => /\.(js|wasm)$/.test(name));
  const paths = Object.values(exports).flatMap((entry) =>
    typeof entry === 'string' ? entry : [entry.default, entry.node ?? []].flat(),
  );
  const own =
    /^((worker-node|cli|(templates|adapters|embed|sources|model-cache|pictures)-node)\.js|(chat-server|jpeg|webp)\.wasm)$/; // found by Node's files
  const unreachable = scripts.filter(
    (name) => !paths.includes(`./dist/${name}`) && !own.test(name),
  );
  assert.deepEqual(unreachable, []);
  for (const path of paths) assert.ok(existsSync(inRoot(path)), path);
  const forNode = [
    ...Object.values(exports).flatMap(({ node }) => node ?? []),
    './dist/worker-node.js',
  ];
  assert.ok(forNode.length > 5);
  for (const path of forNode) {
    const lines = readFileSync(inRoot(path), 'utf8').split('\n');
    assert.ok(lines.join('').length < 60 * lines.length, path);
    for (const [, name] of lines.join('\n').matchAll(/(?:from|import\()\s*["'](\.\/[^"']+)/g))
      assert.match(name, /-node\.js$|^\.\/node\.js$/, path);
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
