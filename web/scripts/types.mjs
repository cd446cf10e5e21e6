// Writes the package's declarations: one file per entry, with public types only. tsc declares every
// source file, and rollup gathers what an entry exports. The other entries take Engine and Session
// from index.d.ts, because a class with private members must be declared once.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bin, inRoot, run } from './lib.mjs';

const entries = ['index', 'ai-sdk', 'ai-sdk-v4', 'huggingface', 'sessions'];
// TypeScript 5.2 and later; without it Symbol.asyncDispose is an error where `lib` is ES2022.
const header = '/// <reference lib="esnext.disposable" />\n';

/** `export { A, B }` as the entry's script has them: what it does not export is a type. */
function exportsOf(code, script) {
  const values = [...readFileSync(script, 'utf8').matchAll(/export\s*\{([^}]*)\}/g)]
    .flatMap(([, list]) => list.split(','))
    .map((one) =>
      one
        .trim()
        .split(/\s+as\s+/)
        .at(-1),
    );
  return code.replace(/^export \{ (.*) \};$/m, (_, list) => {
    const names = list.split(', ');
    const part = (keyword, wanted) => {
      const some = names.filter((name) => values.includes(name) === wanted);
      return some.length ? [`${keyword} { ${some.join(', ')} };`] : [];
    };
    return [...part('export', true), ...part('export type', false)].join('\n');
  });
}

export async function writeTypes() {
  const { rollup } = await import('rollup');
  const { dts } = await import('rollup-plugin-dts');
  const all = inRoot('build', 'types');
  rmSync(all, { recursive: true, force: true });
  const emit = ['--noEmit', 'false', '--declaration', '--emitDeclarationOnly'];
  run(bin('tsc'), ['-p', 'web/tsconfig.json', ...emit, '--outDir', all]);
  for (const name of entries) {
    const fromIndex = {
      name: 'from-index',
      resolveId: (id, importer) =>
        importer && /^\.\/(api|ai-sdk)/.test(id)
          ? { id: id.startsWith('./api') ? './index.js' : id, external: true }
          : null,
    };
    const bundle = await rollup({
      input: join(all, `${name}.d.ts`),
      external: [/^@ai-sdk\//],
      plugins: [...(name === 'index' ? [] : [fromIndex]), dts()],
    });
    const { output } = await bundle.generate({ format: 'es' });
    if (output.length !== 1) throw new Error(`the declarations of ${name} are in several files`);
    const code = exportsOf(output[0].code, inRoot('dist', `${name}.js`));
    writeFileSync(inRoot('dist', `${name}.d.ts`), (name === 'index' ? header : '') + code);
  }
  writeFileSync(inRoot('dist', 'inline.d.ts'), "export * from './index.js';\n");
}
