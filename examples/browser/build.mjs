// Builds the page into site/: plain files for any static host, with the package beside them.
//   node examples/browser/build.mjs        needs dist/ (npm run build)
import { build } from 'esbuild';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');
const sample = 'sluice-tales-Q8_0.gguf';
/** Entries of the package that the page imports. */
const kEntries = ['index.js', 'huggingface.js'];

// The page imports the built package by a relative URL, like a page without a bundler.
const packageBeside = {
  name: 'package-beside',
  setup: (b) =>
    b.onResolve({ filter: /^sluice-llm(\/\w+)?$/ }, ({ path }) => ({
      path: `./dist/${path.split('/')[1] ?? 'index'}.js`,
      external: true,
    })),
};

/**
 * Files of `dist` that the page may load: its entries, and what they name as './file', loaded at
 * once or on demand.
 */
export function filesOf(dist) {
  const files = new Set(kEntries.filter((name) => existsSync(join(dist, name))));
  for (const name of files) {
    if (!name.endsWith('.js')) continue;
    const named = readFileSync(join(dist, name), 'utf8').matchAll(/["'`]\.\/([\w.-]+)["'`]/g);
    for (const [, other] of named) if (existsSync(join(dist, other))) files.add(other);
  }
  return [...files];
}

/** dist: the built package; site: output directory. */
export async function buildSite({ dist = join(root, 'dist'), site = join(root, 'site') } = {}) {
  rmSync(site, { recursive: true, force: true });
  mkdirSync(join(site, 'dist'), { recursive: true });
  for (const name of ['index.html', 'bench.html', 'icon.svg', 'isolate.js', 'theme.js'])
    cpSync(join(here, name), join(site, name));
  for (const name of filesOf(dist)) cpSync(join(dist, name), join(site, 'dist', name));
  mkdirSync(join(site, 'models'));
  // The sample model that the page offers.
  cpSync(join(root, 'examples', 'models', sample), join(site, 'models', sample));
  await build({
    entryPoints: {
      main: join(here, 'main.ts'),
      bench: join(here, 'bench.ts'),
      style: join(here, 'style', 'style.css'),
    },
    outdir: site,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    plugins: [packageBeside],
    logLevel: 'warning',
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildSite();
