// esbuild plugin for gpu.js. Loads WGSL files of kernels/ as text without comments and indentation;
// lines that begin with //@ mark parts of a template and stay. Loads types.def as a list of types,
// and codebooks.cpp as sets of bits by name.
import { readFileSync } from 'node:fs';

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
    .join('\n') + '\n';

/** Parses lines SLUICE_…_TYPE(NAME, [name,] id, [values,] bytes). Element types have one value. */
export function typesOf(text) {
  return [...text.matchAll(/^SLUICE_(\w+)_TYPE\((\w+),(?: [a-z]\w*,)? ([\d, ]+)\)$/gm)].map(
    ([, kind, name, numbers]) => {
      const [id, ...size] = numbers.split(',').map(Number);
      const [values, bytes] = kind === 'ELEMENT' ? [1, ...size] : size;
      return { name, kind, id, values, bytes };
    },
  );
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
    load(/[\\/]kernels[\\/]types\.def$/, 'json', (text) => JSON.stringify(typesOf(text)))(build);
    load(/[\\/]kernels[\\/]codebooks\.cpp$/, 'json', (text) => JSON.stringify(codebooksOf(text)))(
      build,
    );
  },
};
