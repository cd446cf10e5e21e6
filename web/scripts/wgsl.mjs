// esbuild plugin for gpu.js. Loads WGSL files of kernels/ as text without comments and needless
// spaces; lines that begin with //@ mark parts of a template and stay. Loads types.def (def.mjs), and
// codebooks.cpp as sets of bits by name.
import { readFileSync } from 'node:fs';
import { def } from './def.mjs';

/** Signs around which no space is needed. Two signs stay apart: `- -x` and `> =` are not one. */
const kSigns =
  /(?<=[\w)\]]) ?(&&|\|\||[-+*/<>=!]?=|<<|>>|->|[-+*/<>&|^,:;{(?]) ?(?=[\w(]|$)|(?<=^|[\w)\]};]) ?([)};]) ?(?=[\w(@]|$)/g;

export const shortened = (text) =>
  text
    .split('\n')
    .map((line) =>
      line
        .trim()
        .replace(/\/\/(?!@).*$/, '')
        .trimEnd(),
    )
    .filter(Boolean)
    .map((line) => (line.startsWith('//@') ? line : line.replace(kSigns, '$1$2')))
    .join('\n') + '\n';

/** Parses arrays of 64-bit numbers: their hexadecimal digits by the name of the array. */
export const codebooksOf = (text) =>
  Object.fromEntries(
    [...text.matchAll(/constexpr uint64_t (\w+)\[\] = \{([^}]*)\}/g)].map(([, name, numbers]) => [
      name,
      [...numbers.matchAll(/0x([\da-f]{16})/g)].map(([, digits]) => digits),
    ]),
  );

const load = (pattern, loader, contents) => (build) =>
  build.onLoad({ filter: pattern }, ({ path }) => ({
    contents: contents(readFileSync(path, 'utf8')),
    loader,
  }));

export const wgsl = {
  name: 'wgsl',
  setup(build) {
    load(/\.wgsl$/, 'text', shortened)(build);
    def.setup(build);
    load(/[\\/]kernels[\\/]codebooks\.cpp$/, 'json', (text) => JSON.stringify(codebooksOf(text)))(
      build,
    );
  },
};
