// Builds the wasm binaries: links them with CMake and Emscripten, merges the relaxed SIMD
// instructions into them, optimizes them for size, and checks that what they import is there.
// Emscripten's own JavaScript is not used: web/worker/runtime.ts takes its place.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename } from 'node:path';
import { cached, cacheFolder } from './cache.mjs';
import { namedByOrder, withoutNames } from './wasm-order.mjs';
import { bin, concurrently, inRoot, jobs, root, run, runAside, runQuiet, write } from './lib.mjs';

const linker = `${process.execPath};${inRoot('web', 'scripts', 'link.mjs')}`;

export function cmakeBuild(preset, { targets = [], variables = [], quiet = false } = {}) {
  if (preset === 'wasm')
    variables = [`-DCMAKE_CXX_LINKER_LAUNCHER=${cacheFolder() ? linker : ''}`, ...variables];
  runQuiet('cmake', ['--preset', preset, ...variables]);
  const chosen = targets.length ? ['--target', ...targets] : [];
  (quiet ? runQuiet : run)('cmake', ['--build', '--preset', preset, '-j', String(jobs), ...chosen]);
}

// Optimizes for size, without passes that move a computation to the place where its result is used:
// the order in the kernels is chosen for register allocation. A second -Oz saves another 2 kB.
const optimize = [
  '-Oz',
  ...['', '-notee', '-nostructure', '-nonesting', '-notee-nostructure'].map(
    (kind) => `--skip-pass=simplify-locals${kind}`,
  ),
];

function relaxedImports(wasmFile) {
  const module = new WebAssembly.Module(readFileSync(wasmFile));
  return WebAssembly.Module.imports(module)
    .filter((i) => i.module === 'relaxed')
    .map((i) => i.name);
}

/** The engine's binaries: name, and whether it has relaxed SIMD instructions. */
export const variants = [
  { name: 'relaxed', relaxed: true },
  { name: 'relaxed16', relaxed: true },
  { name: 'simd128', relaxed: false },
  { name: 'gpu', relaxed: false },
  { name: 'gpu-full', relaxed: false },
  { name: 'relaxed-full', relaxed: true },
  { name: 'relaxed16-full', relaxed: true },
  { name: 'simd128-full', relaxed: false },
];

/** simd128-full for the demo, which is built in a fraction of the time: nothing optimizes the program. */
export const demoEngine = { name: 'demo', relaxed: false, optimized: false };

/** Adds an empty custom section, by which the runtime knows an engine of this package. */
function marked(bytes) {
  const name = Buffer.from('sluice');
  return Buffer.concat([bytes, Buffer.from([0, name.length + 1, name.length]), name]);
}

// Modules have no kernels.
const optimizeModule = ['-Oz'];

const featuresOf = (relaxed) => [
  '--enable-simd',
  '--enable-threads',
  '--enable-bulk-memory',
  '--enable-mutable-globals',
  '--enable-sign-ext',
  '--enable-nontrapping-float-to-int',
  ...(relaxed ? ['--enable-relaxed-simd'] : []),
];

const relaxedSource = (relaxed) =>
  inRoot('kernels', 'isa', relaxed ? 'relaxed.wat' : 'relaxed_strict.wat');

/** Whether `final` is newer than what it is made of. */
function isCurrent(final, linked, relaxed) {
  const time = (file) => (existsSync(file) ? statSync(file).mtimeMs : 0);
  return time(final) > Math.max(time(linked), time(relaxedSource(relaxed)));
}

/** Path of the program with the functions that it imports: `linked` if there are none. */
async function merge(linked, relaxed, scratch) {
  if (!relaxedImports(linked).length) return linked;
  const part = `${scratch}.part`;
  const merged = `${scratch}.merged`;
  const features = featuresOf(relaxed);
  await runAside(bin('wasm-as'), [...features, relaxedSource(relaxed), '-o', part]);
  await runAside(bin('wasm-merge'), [
    ...features,
    '-g',
    linked,
    'main',
    part,
    'relaxed',
    '-o',
    merged,
  ]);
  rmSync(part);
  return merged;
}

/**
 * Merges the relaxed functions that a linked program imports into it, where its calls become
 * instructions, and optimizes nothing else: for tests.
 */
export async function mergeBinary(linked, relaxed, final) {
  if (isCurrent(final, linked, relaxed)) return;
  const merged = await merge(linked, relaxed, final.replace(/\.wasm$/, ''));
  if (merged === linked) return copyFileSync(linked, final);
  await runAside(bin('wasm-opt'), [
    ...featuresOf(relaxed),
    '--inlining',
    merged,
    '-o',
    `${final}.new`,
  ]);
  renameSync(`${final}.new`, final);
  rmSync(merged);
}

/**
 * Merges the relaxed functions that a linked program imports into it, and optimizes the result. A
 * plain binary that imports them gets plain SIMD versions, which have the same results wherever the
 * kernels use them. `change`: of the result's bytes.
 */
export async function finishBinary(linked, relaxed, final, passes = optimize, change = null) {
  if (isCurrent(final, linked, relaxed)) return;
  const inputs = [
    linked,
    relaxedSource(relaxed),
    inRoot('node_modules', 'binaryen', 'package.json'),
    ...['wasm.mjs', 'wasm-order.mjs'].map((name) => inRoot('web', 'scripts', name)),
  ].map((file) => readFileSync(file));
  inputs.push(JSON.stringify([relaxed, passes, change?.name]));
  await cached([final], inputs, () => finish(linked, relaxed, final, passes, change));
}

async function finish(linked, relaxed, final, passes, change) {
  const scratch = final.replace(/\.wasm$/, '');
  const merged = await merge(linked, relaxed, scratch);
  const features = featuresOf(relaxed);
  const small = `${scratch}.small`;
  await runAside(bin('wasm-opt'), [
    ...features,
    ...passes,
    '-Oz',
    // Nothing but the end of a module's stack lies below 1024, so a constant may become an
    // instruction's offset.
    '--low-memory-unused',
    '--reorder-functions', // by use, as namedByOrder() expects
    '--strip-debug',
    '--strip-producers',
    merged,
    '-o',
    small,
  ]);
  write(small, namedByOrder(readFileSync(small)));
  await runAside(bin('wasm-opt'), [
    ...features,
    '--reorder-functions-by-name',
    '--strip-debug',
    small,
    '-o',
    `${final}.new`,
  ]);
  if (change) write(`${final}.new`, change(readFileSync(`${final}.new`)));
  renameSync(`${final}.new`, final);
  for (const file of [`${scratch}.merged`, small]) rmSync(file, { force: true });
}

/** Path of the finished binary of an engine or module. */
export const finished = (name) => inRoot('build', 'wasm-finished', `${name}.wasm`);

/** Names of what web/worker/runtime.ts provides to engines. */
async function runtimeImports() {
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: ['web/worker/runtime.ts'],
    bundle: true,
    format: 'esm',
    write: false,
  });
  const runtime = await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
  return new Set(runtime.importNames());
}

/** Fails if a binary imports what `isProvided` does not know: Emscripten 3.1.6 imports no more. */
function checkImports(file, isProvided) {
  const missing = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(file)))
    .filter(({ module, name }) => module !== 'relaxed' && !isProvided(name))
    .map(({ name }) => name);
  if (missing.length) throw new Error(`${basename(file)} imports unknown: ${missing.join(', ')}`);
}

async function finishEngine({ name, relaxed, optimized = true }, provided) {
  const final = finished(`engine.${name}`);
  const linked = inRoot('build', 'wasm', `engine-${name}.wasm`);
  checkImports(linked, (each) => provided.has(each));
  if (optimized) return finishBinary(linked, relaxed, final, optimize, marked);
  write(final, marked(withoutNames(readFileSync(linked))));
}

/**
 * The binaries beside the engines: web/io/safetensors.ts, web/chat/chat-wasm.ts and
 * web/serve/server.ts use them.
 */
export const modules = ['safetensors', 'chat', 'chat-server'];

/** What web/protocol/wasm-module.ts and its users provide. */
const provided =
  /^(memory|emscripten_(resize_heap|memcpy_big)|sluice_(number|pow|exp|char_class|(upper|lower)_case|local_time)|time|getentropy|abort)$/;

async function finishModule(name) {
  const final = finished(name);
  await finishBinary(inRoot('build', 'wasm', `${name}.wasm`), false, final, optimizeModule);
  checkImports(final, (each) => provided.test(each));
}

/** Builds these engines and modules. */
export async function buildWasm({ engines = variants, modules: others = modules } = {}) {
  mkdirSync(inRoot('build', 'wasm-finished'), { recursive: true });
  cmakeBuild('wasm', { targets: [...engines.map(({ name }) => `engine-${name}`), ...others] });
  const imports = await runtimeImports();
  // The programs of npm's binaryen use one core each.
  const parts = engines.map((engine) => () => finishEngine(engine, imports));
  const rest = others.map((name) => () => finishModule(name));
  await concurrently([...parts, ...rest], jobs);
}
