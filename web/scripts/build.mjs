// npm run build: the native program at build/native/sluice, the package in dist/.
//   node web/scripts/build.mjs [native] [wasm] [web]     nothing named: all three
// wasm: three binaries from the same sources; relaxed SIMD instructions, which this Emscripten's
// compiler does not know, are imported functions until here, where binaryen merges their one-line
// bodies in and inlines them. web: esbuild bundles, tsc writes the declarations.
import { existsSync, copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { makeGlue, missingFunctions } from './glue.mjs';
import { inRoot, jobs, root, run, runQuiet, write } from './lib.mjs';
import { setup } from './setup.mjs';
import { wgsl } from './wgsl.mjs';

const bin = (name) => inRoot('node_modules', '.bin', name);

export function cmakeBuild(preset, { targets = [], variables = [], quiet = false } = {}) {
  runQuiet('cmake', ['--preset', preset, ...variables]);
  const chosen = targets.length ? ['--target', ...targets] : [];
  (quiet ? runQuiet : run)('cmake', ['--build', '--preset', preset, '-j', String(jobs), ...chosen]);
}

// As small as can be, but nothing may move a computation to where its result is used: kernels keep
// an order that engines have registers for. Twice: the second time takes off another 2 kB.
const optimize = ['-Oz', ...['', '-notee', '-nostructure', '-nonesting', '-notee-nostructure']
  .map((kind) => `--skip-pass=simplify-locals${kind}`)];

function relaxedImports(wasmFile) {
  const module = new WebAssembly.Module(readFileSync(wasmFile));
  return WebAssembly.Module.imports(module).filter((i) => i.module === 'relaxed').map((i) => i.name);
}

/** The engine's binaries by number: what each is called, and whether it has relaxed instructions. */
export const variants = [
  { name: 'relaxed', relaxed: true },
  { name: 'relaxed16', relaxed: true },
  { name: 'simd128', relaxed: false },
  { name: 'gpu', relaxed: false },
];

/** A custom section, by which the glue knows which of the binaries it was given. */
function marked(bytes, number) {
  const name = Buffer.from('sluice');
  return Buffer.concat([bytes, Buffer.from([0, name.length + 2, name.length]), name, Buffer.from([number])]);
}

/**
 * Merges the relaxed functions that a linked program imports into it and optimizes the result.
 * Returns their names. The plain binary may import them as well: it gets bodies of plain SIMD with
 * the same results wherever the kernels use them.
 */
export function finishBinary(linked, relaxed, final, number = null) {
  const names = relaxedImports(linked);
  const source = inRoot('kernels', 'isa', relaxed ? 'relaxed.wat' : 'relaxed_strict.wat');
  const time = (file) => (existsSync(file) ? statSync(file).mtimeMs : 0);
  if (time(final) > Math.max(time(linked), time(source))) return names;
  const scratch = final.replace(/\.wasm$/, '');
  let merged = linked;
  const features = [
    '--enable-simd', '--enable-threads', '--enable-bulk-memory', '--enable-mutable-globals',
    '--enable-sign-ext', '--enable-nontrapping-float-to-int',
    ...(relaxed ? ['--enable-relaxed-simd'] : []),
  ];
  if (names.length) {
    const part = `${scratch}.part`;
    merged = `${scratch}.merged`;
    runQuiet(bin('wasm-as'), [...features, source, '-o', part]);
    runQuiet(bin('wasm-merge'), [...features, '-g', linked, 'main', part, 'relaxed', '-o', merged]);
  }
  // By name, instances of one template lie side by side, and gzip, whose window is 32 kB, sees what they share.
  const sorted = `${scratch}.sorted`;
  runQuiet(bin('wasm-opt'), [...features, '-g', '--reorder-functions-by-name', merged, '-o', sorted]);
  runQuiet(bin('wasm-opt'), [...features, ...optimize, '-Oz', '--strip-debug', '--strip-producers', sorted, '-o', final]);
  if (number !== null) writeFileSync(final, marked(readFileSync(final), number));
  for (const file of [`${scratch}.part`, `${scratch}.merged`, sorted]) rmSync(file, { force: true });
  return names;
}

function buildWasm() {
  mkdirSync(inRoot('build', 'wasm-glue'), { recursive: true });
  cmakeBuild('wasm', { targets: [...variants.map(({ name }) => `engine-${name}`), 'safetensors'] });
  finishSafetensors();
  write(inRoot('build', 'wasm-glue', 'glue.js'), makeGlue(variants.map(({ name, relaxed }, number) => {
    const linked = inRoot('build', 'wasm', `engine-${name}`);
    const final = inRoot('build', 'wasm-glue', `engine.${name}.wasm`);
    const names = finishBinary(`${linked}.wasm`, relaxed, final, number);
    const missing = missingFunctions(readFileSync(`${linked}.mjs`, 'utf8')).filter((f) => !names.includes(f));
    if (missing.length) throw new Error(`undefined in ${name}: ${missing.join(', ')}`);
    return { file: `${linked}.mjs`, names };
  })));
}

/** What web/io/safetensors.ts gives to its binary; all else is what only a program that ends would call. */
function finishSafetensors() {
  const final = inRoot('build', 'wasm-glue', 'safetensors.wasm');
  finishBinary(inRoot('build', 'wasm', 'safetensors.wasm'), false, final);
  const known = ['memory', 'emscripten_resize_heap', 'emscripten_memcpy_big', 'sluice_number', 'abort'];
  const names = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(final))).map((i) => i.name);
  const missing = names.filter((name) => !known.includes(name));
  if (missing.length) throw new Error(`undefined in safetensors.wasm: ${missing.join(', ')}`);
}

const glueAtBuild = {
  name: 'glue',
  setup: (build) =>
    build.onResolve({ filter: /^\.\/glue\.js$/ }, () => ({ path: inRoot('build', 'wasm-glue', 'glue.js') })),
};

// Files of their own: the template renderer, fetched when a chat begins, and the reader of adapters; the
// command line uses node.js.
const filesApart = {
  name: 'files-apart',
  setup: (build) => build.onResolve({ filter: /^\.\/(templates|adapters|node)\.js$/ }, ({ path, kind, importer }) =>
    (kind === 'dynamic-import' || importer.endsWith('cli.ts') ? { path, external: true } : null)),
};
const modulesInlined = {
  name: 'modules-inlined',
  setup: (build) => build.onResolve({ filter: /^\.\/worker\/modules\.js$/ },
    () => ({ path: inRoot('web', 'worker', 'modules-inlined.ts') })),
};
// inline.js carries worker and wasm in itself. Its worker is a classic script, because a page opened
// from the disk may start no other kind.
const inlinedFiles = (esbuild, common) => ({
  name: 'inlined-files',
  setup: (build) => {
    build.onResolve({ filter: /^inlined:/ }, ({ path }) => ({ path: path.slice(8), namespace: 'inlined' }));
    build.onLoad({ filter: /\.wasm$/, namespace: 'inlined' }, ({ path }) => {
      return { contents: gzipSync(readFileSync(inRoot('dist', path)), { level: 9 }).toString('base64'), loader: 'text' };
    });
    build.onLoad({ filter: /\.js$/, namespace: 'inlined' }, async ({ path }) => {
      const { outputFiles } = await esbuild.build({
        ...common, entryPoints: [`web/${path.replace(/js$/, 'ts')}`], minify: true, sourcemap: false, write: false,
        plugins: [glueAtBuild, modulesInlined, inlinedFiles(esbuild, common)], format: 'iife', define: { 'import.meta.url': 'self.location.href' },
      });
      return { contents: outputFiles[0].text, loader: 'text' };
    });
  },
});
const unpackerNotice = '/*! fzstd, MIT License, Copyright (c) 2020 Arjun Barrett */';
// What a bundler finds in a comment, which minifying would take away.
const importAsset = 'const importAsset=(url)=>import(/* webpackIgnore: true *//* @vite-ignore */url);';
const rendererNotice = '/*! @huggingface/jinja, MIT License, Copyright (c) Hugging Face */';

// Every entry is a file of its own with no import of another package, so that a page can use dist/
// without a bundler; workers and wasm are found by new URL('./…', import.meta.url).
async function buildWeb() {
  const esbuild = await import('esbuild');
  rmSync(inRoot('dist'), { recursive: true, force: true });
  const common = {
    absWorkingDir: root, outdir: 'dist', bundle: true, format: 'esm', target: 'es2022',
    sourcemap: 'linked', legalComments: 'linked', tsconfigRaw: { compilerOptions: { useDefineForClassFields: false } }, plugins: [glueAtBuild, filesApart], logLevel: 'warning',
  };
  const files = (names) => names.map((name) => `web/${name}.ts`);
  await esbuild.build({ ...common, entryPoints: [{ in: 'web/chat/templates.ts', out: 'templates' }], minify: true, banner: { js: rendererNotice } });
  await esbuild.build({ ...common, entryPoints: [{ in: 'web/api/adapters.ts', out: 'adapters' }], minify: true });
  await esbuild.build({ ...common, entryPoints: [{ in: 'web/io/qsf.ts', out: 'qsf' }], minify: true, banner: { js: unpackerNotice } });
  await esbuild.build({ ...common, entryPoints: [{ in: 'web/io/safetensors.ts', out: 'safetensors' }], minify: true });
  await esbuild.build({ ...common, entryPoints: [{ in: 'web/gpu/gpu.ts', out: 'gpu' }], minify: true, plugins: [wgsl] });
  await esbuild.build({ ...common, entryPoints: files(['index', 'huggingface', 'ai-sdk', 'sessions']), minify: true });
  await esbuild.build({ ...common, entryPoints: files(['worker']), minify: true, banner: { js: importAsset } });
  await esbuild.build({ ...common, entryPoints: files(['node', 'worker-node', 'cli']), platform: 'node' });
  for (const name of [...variants.map((variant) => `engine.${variant.name}.wasm`), 'safetensors.wasm']) {
    copyFileSync(inRoot('build', 'wasm-glue', name), inRoot('dist', name));
  }
  await esbuild.build({
    ...common, entryPoints: files(['inline']), minify: true, sourcemap: false, banner: { js: rendererNotice },
    plugins: [inlinedFiles(esbuild, common)],
  });
  run(bin('tsc'), ['-p', 'web/tsconfig.json', '--noEmit', 'false', '--declaration',
    '--emitDeclarationOnly', '--outDir', 'dist']);
  const { writeReference } = await import('./reference.mjs');
  writeReference();
  const { buildSite } = await import('../../examples/browser/build.mjs');
  await buildSite();  // the example page, into site/
}

function printSizes() {
  for (const name of readdirSync(inRoot('dist')).filter((n) => /\.(js|wasm)$/.test(n)).sort()) {
    const bytes = readFileSync(inRoot('dist', name));
    const kb = (n) => `${(n / 1024).toFixed(1)} kB`.padStart(10);
    console.log(`  dist/${name.padEnd(22)}${kb(bytes.length)}${kb(gzipSync(bytes).length)} gzipped`);
  }
}

export async function build(parts) {
  const all = parts.length === 0;
  const unknown = parts.filter((p) => !['native', 'wasm', 'web'].includes(p));
  if (unknown.length) throw new Error(`unknown part '${unknown[0]}': native, wasm, web`);
  setup(...(all ? ['build'] : parts.map((p) => (p === 'web' ? 'wasm' : p))));
  if (all || parts.includes('native')) cmakeBuild('native', { variables: ['-DSLUICE_TESTS=OFF'] });
  if (all || parts.includes('wasm')) buildWasm();
  if (all || parts.includes('web')) {
    await buildWeb();
    const { buildSite } = await import('../../examples/browser/build.mjs');
    await buildSite();
    printSizes();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  build(process.argv.slice(2)).catch((e) => {
    console.error(`build: ${e.message}`);
    process.exit(1);
  });
}
