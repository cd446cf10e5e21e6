// Builds the wasm binaries: links them with CMake and Emscripten, merges the relaxed SIMD
// instructions into them, optimizes them for size, and writes the JavaScript glue (glue.mjs).
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { makeGlue, missingFunctions } from './glue.mjs';
import { namedByOrder } from './wasm-order.mjs';
import { bin, concurrently, inRoot, jobs, run, runAside, runQuiet, write } from './lib.mjs';

export function cmakeBuild(preset, { targets = [], variables = [], quiet = false } = {}) {
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

/** The engine's binaries, by number: name, and whether it has relaxed SIMD instructions. */
export const variants = [
  { name: 'relaxed', relaxed: true },
  { name: 'relaxed16', relaxed: true },
  { name: 'simd128', relaxed: false },
  { name: 'gpu', relaxed: false },
];

/** Adds a custom section with the number of the binary, which the glue reads. */
export function marked(bytes, number) {
  const name = Buffer.from('sluice');
  return Buffer.concat([
    bytes,
    Buffer.from([0, name.length + 2, name.length]),
    name,
    Buffer.from([number]),
  ]);
}

// Modules have no kernels. Nothing but the stack, which ends at 0, lies below 1024, so a constant may
// become an instruction's offset.
const optimizeModule = ['-Oz', '--low-memory-unused'];

/**
 * Merges the relaxed functions that a linked program imports into it, and optimizes the result.
 * Resolves to their names. A plain binary that imports them gets plain SIMD versions, which have
 * the same results wherever the kernels use them.
 */
export async function finishBinary(linked, relaxed, final, passes = optimize) {
  const names = relaxedImports(linked);
  const source = inRoot('kernels', 'isa', relaxed ? 'relaxed.wat' : 'relaxed_strict.wat');
  const time = (file) => (existsSync(file) ? statSync(file).mtimeMs : 0);
  if (time(final) > Math.max(time(linked), time(source))) return names;
  const scratch = final.replace(/\.wasm$/, '');
  let merged = linked;
  const features = [
    '--enable-simd',
    '--enable-threads',
    '--enable-bulk-memory',
    '--enable-mutable-globals',
    '--enable-sign-ext',
    '--enable-nontrapping-float-to-int',
    ...(relaxed ? ['--enable-relaxed-simd'] : []),
  ];
  if (names.length) {
    const part = `${scratch}.part`;
    merged = `${scratch}.merged`;
    await runAside(bin('wasm-as'), [...features, source, '-o', part]);
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
  }
  const small = `${scratch}.small`;
  await runAside(bin('wasm-opt'), [
    ...features,
    ...passes,
    '-Oz',
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
  renameSync(`${final}.new`, final);
  for (const file of [`${scratch}.part`, `${scratch}.merged`, small]) rmSync(file, { force: true });
  return names;
}

/** Path of the finished binary of an engine or module. */
export const finished = (name) => inRoot('build', 'wasm-glue', `${name}.wasm`);

async function finishEngine({ name, relaxed }) {
  const linked = inRoot('build', 'wasm', `engine-${name}`);
  const names = await finishBinary(`${linked}.wasm`, relaxed, finished(`engine.${name}`));
  const missing = missingFunctions(readFileSync(`${linked}.mjs`, 'utf8')).filter(
    (f) => !names.includes(f),
  );
  if (missing.length) throw new Error(`undefined in ${name}: ${missing.join(', ')}`);
  return { file: `${linked}.mjs`, names };
}

/** The binaries beside the engines: web/io/safetensors.ts and web/chat/chat-wasm.ts use them. */
export const modules = ['safetensors', 'chat'];

/** What web/protocol/wasm-module.ts and its users provide. */
const provided =
  /^(memory|emscripten_(resize_heap|memcpy_big)|sluice_(number|pow|(upper|lower)_case|local_time)|time|getentropy|abort)$/;

async function finishModule(name) {
  const final = finished(name);
  await finishBinary(inRoot('build', 'wasm', `${name}.wasm`), false, final, optimizeModule);
  const missing = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(final)))
    .map((i) => i.name)
    .filter((i) => !provided.test(i));
  if (missing.length) throw new Error(`undefined in ${name}.wasm: ${missing.join(', ')}`);
}

/** Builds these engines and modules, and the glue, which is written to `glue`. */
export async function buildWasm({ engines = variants, modules: others = modules, glue }) {
  mkdirSync(inRoot('build', 'wasm-glue'), { recursive: true });
  cmakeBuild('wasm', { targets: [...engines.map(({ name }) => `engine-${name}`), ...others] });
  // The programs of npm's binaryen use one core each.
  const parts = engines.map((engine) => () => finishEngine(engine));
  const rest = others.map((name) => () => finishModule(name));
  const binaries = await concurrently([...parts, ...rest], jobs);
  write(glue, makeGlue(binaries.slice(0, engines.length)));
}
