// npm run build: builds the native program (build/native/sluice), the npm package (dist/) and the
// example page (site/).
//   node web/scripts/build.mjs [native] [wasm] [web] [--tools]     default: all three parts
// native: the program; --tools also builds sluice-make-model, which tests and
// benchmarks use. wasm: the binaries. web: bundles (esbuild) and declarations (tsc).
import { copyFileSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { cached } from './cache.mjs';
import { def } from './def.mjs';
import { inRoot, root } from './lib.mjs';
import { setup } from './setup.mjs';
import { recording, writeThirdParty } from './third-party.mjs';
import { writeTypes } from './types.mjs';
import { buildWasm, cmakeBuild, demoEngine, finished, modules, variants } from './wasm.mjs';
import { wgsl } from './wgsl.mjs';

// Keeps some imports as separate files: the chat template renderer, the readers of LoRA adapters and
// of unusual sources, embeddings and the model cache's manager, which are loaded on demand, and
// entries that others import. Node has
// versions of its own, which are not minified, so that stack traces can be read.
const filesApart = (forNode) => ({
  name: 'files-apart',
  setup: (build) => {
    build.onResolve(
      { filter: /\/(templates|adapters|embed|sources|model-cache)\.js$/ },
      ({ path, kind }) =>
        kind === 'dynamic-import'
          ? { path: `./${basename(path, '.js')}${forNode ? '-node' : ''}.js`, external: true }
          : null,
    );
    build.onResolve({ filter: /\/pictures\/node\.js$/ }, ({ kind }) =>
      kind === 'dynamic-import' ? { path: './pictures-node.js', external: true } : null,
    );
    build.onResolve({ filter: /^\.\/(node|ai-sdk)\.js$/ }, ({ path }) => ({
      path: forNode ? path.replace('ai-sdk.js', 'ai-sdk-node.js') : path,
      external: true,
    }));
  },
});
// Modules that find files beside the script have a version for inline.js, which has none.
const modulesInlined = {
  name: 'modules-inlined',
  setup: (build) =>
    build.onResolve({ filter: /\/(modules|chat-binary)\.js$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace('.js', '-inlined.ts')),
    })),
};
// inline.js contains the worker and the wasm binaries. Its worker is a classic script, because a
// page opened from disk can start no other kind.
const inlinedFiles = (esbuild, common) => ({
  name: 'inlined-files',
  setup: (build) => {
    build.onResolve({ filter: /^inlined:/ }, ({ path }) => ({
      path: path.slice(8),
      namespace: 'inlined',
    }));
    build.onLoad({ filter: /\.wasm$/, namespace: 'inlined' }, ({ path }) => {
      return {
        contents: gzipSync(readFileSync(inRoot('dist', path)), { level: 9 }).toString('base64'),
        loader: 'text',
      };
    });
    build.onLoad({ filter: /\.js$/, namespace: 'inlined' }, async ({ path }) => {
      const { outputFiles } = await esbuild.build({
        ...common,
        entryPoints: [`web/${path.replace(/js$/, 'ts')}`],
        minify: true,
        sourcemap: false,
        write: false,
        plugins: [modulesInlined, inlinedFiles(esbuild, common)],
        format: 'iife',
        define: { 'import.meta.url': 'self.location.href' },
      });
      return { contents: outputFiles[0].text, loader: 'text' };
    });
  },
});
const unpackerNotice = '/*! fzstd, MIT License, Copyright (c) 2020 Arjun Barrett */';
// Contains comments for bundlers, which minifying would remove.
const importAsset =
  'const importAsset=(url)=>import(/* webpackIgnore: true *//* @vite-ignore */url);';

/** What all bundles have in common; `outdir` is an absolute path. */
export const settings = (outdir) => ({
  absWorkingDir: root,
  outdir,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  sourcemap: 'linked',
  legalComments: 'linked',
  tsconfigRaw: { compilerOptions: { useDefineForClassFields: false } },
  plugins: [filesApart(false)],
  logLevel: 'warning',
});

// Every entry is one file that imports no other package, so that a page can use dist/ without a
// bundler. Workers and wasm are found with new URL('./…', import.meta.url).
export async function bundlePage(esbuild, common, finish = minifyAgain) {
  const entries = {
    ...Object.fromEntries(
      ['index', 'huggingface', 'ai-sdk', 'ai-sdk-v4', 'sessions'].map((name) => [name, name]),
    ),
    templates: 'chat/templates',
    'model-cache': 'io/model-cache',
    adapters: 'api/adapters',
    embed: 'api/embed',
    hosts: 'io/hosts',
    sources: 'io/sources',
    safetensors: 'io/safetensors',
  };
  await esbuild.build({
    ...common,
    entryPoints: Object.entries(entries).map(([out, name]) => ({ in: `web/${name}.ts`, out })),
    minify: true,
  });
  await esbuild.build({
    ...common,
    entryPoints: [{ in: 'web/io/qsf.ts', out: 'qsf' }],
    minify: true,
    banner: { js: unpackerNotice },
  });
  await esbuild.build({
    ...common,
    entryPoints: [
      { in: 'web/gpu/gpu.ts', out: 'gpu' },
      { in: 'web/gpu/kernels/rare-types.ts', out: 'gpu-types' },
      { in: 'web/gpu/kv-parts.ts', out: 'gpu-kv' },
      { in: 'web/gpu/parallel.ts', out: 'gpu-parallel' },
      { in: 'web/gpu/recurrent-parts.ts', out: 'gpu-recurrent' },
      { in: 'web/gpu/rare-ops.ts', out: 'gpu-ops' },
      { in: 'web/gpu/gemma-ops.ts', out: 'gpu-gemma' },
      { in: 'web/gpu/relative-attention.ts', out: 'gpu-relative' },
      { in: 'web/gpu/lora.ts', out: 'gpu-lora' },
      { in: 'web/gpu/auto-device.ts', out: 'gpu-auto' },
      { in: 'web/gpu/pictures/pictures.ts', out: 'gpu-pictures' },
    ],
    minify: true,
    banner: { js: importAsset },
    plugins: [wgsl],
  });
  await esbuild.build({
    ...common,
    entryPoints: [
      { in: 'web/worker/pictures/page.ts', out: 'pictures' },
      { in: 'web/worker.ts', out: 'worker' },
    ],
    minify: true,
    banner: { js: importAsset },
  });
  for (const file of readdirSync(common.outdir))
    if (file.endsWith('.js')) await finish(join(common.outdir, file));
}

/**
 * Minifies a bundle once more: terser inlines and folds what esbuild does not, which saves 4 % of the
 * gzipped size. Comments for bundlers stay.
 */
async function minifyAgain(file) {
  const files = [file, `${file}.map`];
  const terser = inRoot('node_modules', 'terser', 'package.json');
  const inputs = [...files, terser].map((each) => readFileSync(each));
  inputs.push(basename(file), `${terserBundle}`); // its text has the options
  await cached(files, inputs, () => terserBundle(...files));
}

async function terserBundle(file, mapFile) {
  const { minify } = await import('terser');
  const { code, map } = await minify(readFileSync(file, 'utf8'), {
    ecma: 2022,
    module: true,
    compress: { passes: 2 },
    format: { comments: /webpackIgnore|@vite-ignore|^!/ },
    sourceMap: { content: readFileSync(mapFile, 'utf8'), url: basename(mapFile) },
  });
  writeFileSync(file, code);
  writeFileSync(mapFile, map);
}

/** Not minified, and classes keep their names. */
async function bundleNode(esbuild, common) {
  const apart = {
    templates: 'chat/templates',
    sources: 'io/sources',
    adapters: 'api/adapters',
    embed: 'api/embed',
    'model-cache': 'io/model-cache',
    'ai-sdk': 'ai-sdk',
    'ai-sdk-v4': 'ai-sdk-v4',
    huggingface: 'huggingface',
    pictures: 'worker/pictures/node',
  };
  await esbuild.build({
    ...common,
    entryPoints: [
      ...['node', 'worker-node', 'cli'].map((name) => ({ in: `web/${name}.ts`, out: name })),
      ...Object.entries(apart).map(([name, path]) => ({
        in: `web/${path}.ts`,
        out: `${name}-node`,
      })),
    ],
    platform: 'node',
    external: ['webgpu'], // an optional peer dependency
    plugins: [filesApart(true), def],
  });
  for (const name of [
    'node',
    'worker-node',
    'cli',
    ...Object.keys(apart).map((n) => `${n}-node`),
  ]) {
    const file = inRoot('dist', `${name}.js`);
    const text = readFileSync(file, 'utf8');
    // esbuild writes `var Engine = class _Engine`, and stack traces show the second name.
    const renamed = [...text.matchAll(/^var (\w+) = class _\1\b/gm)].map(
      ([, className]) => className,
    );
    writeFileSync(
      file,
      renamed.reduce((all, own) => all.replace(new RegExp(`\\b_${own}\\b`, 'g'), own), text),
    );
  }
}

async function buildWeb() {
  const esbuild = recording(await import('esbuild'));
  const dist = inRoot('dist');
  rmSync(dist, { recursive: true, force: true });
  const common = settings(dist);
  await bundlePage(esbuild, common);
  await bundleNode(esbuild, common);
  for (const [codec, name] of [
    ['mozjpeg', 'jpeg'],
    ['webp', 'webp'],
  ])
    copyFileSync(
      inRoot('node_modules', '@jsquash', name, 'codec', 'dec', `${codec}_dec.wasm`),
      join(dist, `${name}.wasm`),
    );
  for (const name of [...variants.map(({ name }) => `engine.${name}`), ...modules])
    copyFileSync(finished(name), join(dist, `${name}.wasm`));
  await esbuild.build({
    ...common,
    entryPoints: ['web/inline.ts'],
    minify: true,
    sourcemap: false,
    plugins: [modulesInlined, inlinedFiles(esbuild, common)],
  });
  await writeTypes();
  const { writeReference } = await import('./reference.mjs');
  writeReference();
  writeThirdParty(esbuild.bundled);
  const { buildSite } = await import('../../examples/browser/build.mjs');
  await buildSite(); // the example page, into site/
}

/**
 * Builds only what the example page needs, in a fraction of the time. One engine, which every browser
 * runs and which has all types, replaces the other CPU engines; there is no GPU engine. Neither it nor
 * the scripts are as small as those of the package. Returns the folders.
 */
export async function buildDemo() {
  setup('wasm');
  const dist = inRoot('build', 'demo', 'dist');
  const site = inRoot('build', 'demo', 'site');
  rmSync(inRoot('build', 'demo'), { recursive: true, force: true });
  const used = modules.filter((name) => name !== 'chat-server');
  await buildWasm({ engines: [demoEngine], modules: used });
  await bundlePage(await import('esbuild'), settings(dist), () => {});
  for (const name of used) copyFileSync(finished(name), join(dist, `${name}.wasm`));
  for (const { name } of variants)
    if (!name.startsWith('gpu'))
      copyFileSync(finished(`engine.${demoEngine.name}`), join(dist, `engine.${name}.wasm`));
  const { buildSite } = await import('../../examples/browser/build.mjs');
  await buildSite({ dist, site });
  return { dist, site };
}

function printSizes() {
  for (const name of readdirSync(inRoot('dist'))
    .filter((n) => /\.(js|wasm)$/.test(n))
    .sort()) {
    const bytes = readFileSync(inRoot('dist', name));
    const kb = (n) => `${(n / 1024).toFixed(1)} kB`.padStart(10);
    console.log(
      `  dist/${name.padEnd(22)}${kb(bytes.length)}${kb(gzipSync(bytes).length)} gzipped`,
    );
  }
}

/** parts: native, wasm, web; empty: all three. */
export async function build(parts, { tools = false } = {}) {
  const all = parts.length === 0;
  const unknown = parts.filter((p) => !['native', 'wasm', 'web'].includes(p));
  if (unknown.length) throw new Error(`unknown part '${unknown[0]}': native, wasm, web`);
  setup(...(all ? ['build'] : parts.map((p) => (p === 'web' ? 'wasm' : p))));
  if (all || parts.includes('native')) {
    const variables = ['-DSLUICE_TESTS=OFF'];
    cmakeBuild('native', { variables });
    if (tools) cmakeBuild('native', { variables, targets: ['sluice-make-model'] });
  }
  if (all || parts.includes('wasm')) await buildWasm();
  if (all || parts.includes('web')) {
    await buildWeb();
    printSizes();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const parts = process.argv.slice(2);
  build(
    parts.filter((part) => part !== '--tools'),
    { tools: parts.includes('--tools') },
  ).catch((e) => {
    console.error(`build: ${e.message}`);
    process.exit(1);
  });
}
