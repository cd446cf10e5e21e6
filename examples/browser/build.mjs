// Builds the page into site/: plain files for any static host, with the package beside them.
//   node examples/browser/build.mjs        needs dist/ (npm run build)
import { build } from 'esbuild';
import { cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');
const sample = 'sluice-tales-Q8_0.gguf';

// The page imports the built package by a relative URL, like a page without a bundler.
const packageBeside = {
  name: 'package-beside',
  setup: (b) =>
    b.onResolve({ filter: /^sluice-llm$/ }, () => ({ path: './dist/index.js', external: true })),
};

/** dist: the built package; site: output directory. */
export async function buildSite({ dist = join(root, 'dist'), site = join(root, 'site') } = {}) {
  rmSync(site, { recursive: true, force: true });
  mkdirSync(join(site, 'dist'), { recursive: true });
  for (const name of ['index.html', 'bench.html', 'icon.svg', 'isolate.js', 'theme.js'])
    cpSync(join(here, name), join(site, name));
  for (const name of readdirSync(dist).filter((n) =>
    /^(index|worker|templates|model-cache|qsf|gpu)\.js$|\.wasm$/.test(n),
  )) {
    cpSync(join(dist, name), join(site, 'dist', name));
  }
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
