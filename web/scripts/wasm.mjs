// The engines' binaries: links them with CMake and Emscripten, merges the relaxed SIMD instructions
// in, makes them small, and writes the JavaScript beside them (glue.mjs).
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { makeGlue, missingFunctions } from './glue.mjs';
import { bin, concurrently, inRoot, jobs, run, runAside, runQuiet, write } from './lib.mjs';

export function cmakeBuild(preset, { targets = [], variables = [], quiet = false } = {}) {
  runQuiet('cmake', ['--preset', preset, ...variables]);
  const chosen = targets.length ? ['--target', ...targets] : [];
  (quiet ? runQuiet : run)('cmake', ['--build', '--preset', preset, '-j', String(jobs), ...chosen]);
}

// As small as can be, but nothing may move a computation to where its result is used: kernels keep
// an order that engines have registers for. Twice: the second time takes off another 2 kB.
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

/**
 * The engine's binaries by number: what each is called, and whether it has relaxed instructions.
 */
export const variants = [
  { name: 'relaxed', relaxed: true },
  { name: 'relaxed16', relaxed: true },
  { name: 'simd128', relaxed: false },
  { name: 'gpu', relaxed: false },
];

/** With a custom section, by which the glue knows which of its binaries this is. */
export function marked(bytes, number) {
  const name = Buffer.from('sluice');
  return Buffer.concat([
    bytes,
    Buffer.from([0, name.length + 2, name.length]),
    name,
    Buffer.from([number]),
  ]);
}

/**
 * Merges the relaxed functions that a linked program imports into it and optimizes the result.
 * Resolves to their names. The plain binary may import them as well: it gets bodies of plain SIMD
 * with the same results wherever the kernels use them.
 */
export async function finishBinary(linked, relaxed, final) {
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
  // By name, instances of one template lie side by side, and gzip, whose window is 32 kB, sees what
  // they share.
  const sorted = `${scratch}.sorted`;
  await runAside(bin('wasm-opt'), [
    ...features,
    '-g',
    '--reorder-functions-by-name',
    merged,
    '-o',
    sorted,
  ]);
  await runAside(bin('wasm-opt'), [
    ...features,
    ...optimize,
    '-Oz',
    '--strip-debug',
    '--strip-producers',
    sorted,
    '-o',
    `${final}.new`,
  ]);
  renameSync(`${final}.new`, final);
  for (const file of [`${scratch}.part`, `${scratch}.merged`, sorted])
    rmSync(file, { force: true });
  return names;
}

/** Where the finished binary of an engine, or of safetensors, lies. */
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

/**
 * What web/io/safetensors.ts gives to its binary; all else is what only a program that ends would
 * call.
 */
async function finishSafetensors() {
  const final = finished('safetensors');
  await finishBinary(inRoot('build', 'wasm', 'safetensors.wasm'), false, final);
  const known = [
    'memory',
    'emscripten_resize_heap',
    'emscripten_memcpy_big',
    'sluice_number',
    'abort',
  ];
  const names = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(final))).map(
    (i) => i.name,
  );
  const missing = names.filter((name) => !known.includes(name));
  if (missing.length) throw new Error(`undefined in safetensors.wasm: ${missing.join(', ')}`);
}

/**
 * Builds these engines, the reader of safetensors where that is wanted, and the glue, at `glue`.
 */
export async function buildWasm({ engines = variants, safetensors = true, glue }) {
  mkdirSync(inRoot('build', 'wasm-glue'), { recursive: true });
  const targets = engines.map(({ name }) => `engine-${name}`);
  cmakeBuild('wasm', { targets: safetensors ? [...targets, 'safetensors'] : targets });
  // binaryen's programs of npm use one core each.
  const parts = engines.map((engine) => () => finishEngine(engine));
  const binaries = await concurrently(safetensors ? [...parts, finishSafetensors] : parts, jobs);
  write(glue, makeGlue(binaries.slice(0, engines.length)));
}
