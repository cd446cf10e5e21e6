// esbuild plugin for gpu.js. Loads WGSL files of kernels/ as text without comments and needless
// spaces and breaks; lines that begin with //@ mark parts of a template and stay. Loads types.def
// (def.mjs), and codebooks.cpp as sets of bits by name.
import { readFileSync } from 'node:fs';
import { def } from './def.mjs';

/** Signs around which no space is needed. Two signs stay apart: `- -x` and `> =` are not one. */
const kSigns =
  /(?<=[\w)\]]) ?(&&|\|\||[-+*/<>=!]?=|<<|>>|->|[-+*/%<>&|^,:;{(?]) ?(?=[\w(]|$)|(?<=^|[\w)\]};]) ?([)};]) ?(?=[\w(@]|$)| ?(,|[|&=]=?|\|\||&&) (?=[-~!@*(])/g;

/** Declarations at the top begin a line (kernels/shaders.ts), and marks fill one. Other lines are joined. */
export function shortened(text) {
  let all = '';
  let joins = false; // with a line behind it
  for (const whole of text.split('\n')) {
    let line = whole
      .trim()
      .replace(/\/\/(?!@).*$/, '')
      .trimEnd();
    if (!line) continue;
    const mark = line.startsWith('//@');
    if (!mark) line = line.replace(kSigns, '$1$2$3');
    const inside = !mark && /^ /.test(whole) && /[{};,(]$/.test(all);
    const joined = joins && (inside || /^[)}]/.test(line));
    all += (all && !joined ? '\n' : '') + line;
    joins = !mark;
  }
  return all + '\n';
}

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
