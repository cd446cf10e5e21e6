// The built site has every file of the package that the page loads on demand.
import assert from 'node:assert/strict';
import { cpSync, existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { load, openSite } from './page-site.mjs';
import { root } from './helpers.mjs';

const source = join(root, 'web');
let pages;
before(async () => (pages = await openSite('site-files')));
after(() => pages.close());

/** Files that browser code of the package names: workers, modules on demand, wasm binaries. */
function namedFiles() {
  const sources = readdirSync(source, { recursive: true }).filter(
    (name) => name.endsWith('.ts') && !/node|inline|^(cli|ai-sdk|serve)/.test(name),
  );
  const named = sources.flatMap((name) => {
    const text = readFileSync(join(source, name), 'utf8');
    const found = text.matchAll(/(?:new URL\(|(?<!typeof )import\()\s*'\.\/([\w.-]+)'/g);
    return [...found].map(([, file]) => file);
  });
  return [...new Set(named)].sort();
}

test('the site has every file that the package loads on demand', () => {
  const named = namedFiles();
  for (const known of ['worker.js', 'chat.wasm', 'safetensors.js', 'adapters.js', 'qsf.js'])
    assert.ok(named.includes(known), `${known}: ${named}`);
  assert.deepEqual(
    named.filter((name) => !existsSync(join(pages.site, 'dist', name))),
    [],
  );
});

test('the page loads a Hugging Face directory', () => {
  cpSync(join(root, 'tests', 'data', 'hf', 'qwen3'), join(pages.site, 'qwen3'), {
    recursive: true,
  });
  return pages.withTabs(
    async (open) => {
      const a = await open('?model=/qwen3/');
      await a.selectOption('#context', '128');
      await load(a);
    },
    { expected: /404/ }, // files that a directory may lack
  );
});
