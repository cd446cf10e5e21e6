// Scripts that are built for bench:gpu. In a packed kit (pack.mjs) they lie ready, and esbuild is
// not there.
import { copyFileSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { inRoot } from '../../../web/scripts/lib.mjs';

const folder = inRoot('build', 'bench-gpu');

/** Describes the kit that is running; absent in a checkout. */
export const kitFile = inRoot('kit.json');

/** What esbuild is told: entries of this repository as modules in `outdir`, with `plugins`. */
async function bundle(entryPoints, outdir, plugins = []) {
  const { build } = await import('esbuild');
  const { wgsl } = await import('../../../web/scripts/wgsl.mjs');
  await build({
    entryPoints,
    outdir,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    ignoreAnnotations: true, // package.json has no side effects, trace.ts has
    plugins: [wgsl, ...plugins],
    logLevel: 'warning',
  });
}

/** Path of the kernels' pages: page.js measures (page.ts), check.js compares (tests/web/gpu). */
export async function kernelPages() {
  const outdir = join(folder, 'kernels');
  if (existsSync(kitFile)) return outdir;
  await bundle(
    [
      { in: inRoot('tests', 'bench', 'gpu', 'page.ts'), out: 'page' },
      { in: inRoot('tests', 'web', 'gpu', 'page.ts'), out: 'check' },
    ],
    outdir,
  );
  return outdir;
}

const synthetic = {
  name: 'synthetic weights',
  setup(build) {
    build.onResolve({ filter: /\/weight-upload\.js$/ }, () => ({
      path: inRoot('tests', 'bench', 'gpu', 'synthetic-upload.ts'),
    }));
  },
};

/** Path of a copy of the package whose gpu.js has synthetic weights and measures (shape-gpu.ts). */
export async function syntheticPackage() {
  const outdir = join(folder, 'dist');
  if (existsSync(kitFile)) return outdir;
  mkdirSync(outdir, { recursive: true });
  const needed =
    /(-node|^node|^gpu-types|^gpu-kv|^gpu-parallel|^gpu-recurrent|^gpu-ops|^gpu-gemma|^gpu-relative)\.js$|^engine\.(gpu|simd128)\.wasm$/;
  for (const name of readdirSync(inRoot('dist')).filter((name) => needed.test(name)))
    copyFileSync(inRoot('dist', name), join(outdir, name));
  await bundle([{ in: inRoot('tests', 'bench', 'gpu', 'shape-gpu.ts'), out: 'gpu' }], outdir, [
    synthetic,
  ]);
  return outdir;
}
