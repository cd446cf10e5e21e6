// Writes dist/THIRD_PARTY.md: the third-party code in the package and its licences. npm packages
// are those that esbuild bundled, with their licence files; a package without one fails the build.
// What Emscripten links into the WebAssembly files cannot be detected, so it is listed here.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { inRoot, markdownTable, write } from './lib.mjs';

/**
 * Linked by Emscripten 3.1.6, the only version whose imports web/worker/runtime.ts has,
 * included as headers, or copied as numbers (kernels/codebooks.cpp).
 */
const linked = [
  {
    name: 'Emscripten runtime',
    licence: 'MIT',
    copyright: 'Copyright (c) 2010-2022 The Emscripten Authors',
    files:
      'engine.*.wasm, safetensors.wasm, chat.wasm, chat-server.wasm, worker.js, worker-node.js, inline.js',
  },
  {
    name: 'musl libc',
    licence: 'MIT',
    copyright: 'Copyright (c) 2005-2020 Rich Felker, et al.',
    files: 'engine.*.wasm, safetensors.wasm, chat.wasm, chat-server.wasm',
  },
  {
    name: 'LLVM libc++, libc++abi and compiler-rt',
    licence: 'Apache-2.0 WITH LLVM-exception',
    copyright: 'The LLVM Project',
    files: 'engine.*.wasm, safetensors.wasm, chat.wasm, chat-server.wasm',
  },
  {
    name: 'dlmalloc',
    licence: 'CC0-1.0 (public domain)',
    copyright: 'Doug Lea',
    files: 'engine.*.wasm, safetensors.wasm',
  },
  {
    name: 'nlohmann/json',
    licence: 'MIT',
    copyright:
      'Copyright (c) 2013-2022 Niels Lohmann, 2009 Florian Loitsch, 2008-2009 Bjoern Hoehrmann',
    files: 'engine.gpu*.wasm, safetensors.wasm, chat.wasm, chat-server.wasm',
  },
  {
    name: 'ggml (the codebooks of its quantization types)',
    licence: 'MIT',
    copyright: 'Copyright (c) 2023-2026 The ggml authors',
    files: 'engine.*.wasm',
  },
  {
    name: 'mozjpeg, as @jsquash/jpeg has built it',
    licence: 'BSD-3-Clause, IJG and Zlib',
    copyright: 'Copyright (c) 2009-2020 D. R. Commander and others, 2014 Mozilla Corporation',
    files: 'jpeg.wasm',
  },
  {
    name: 'libwebp, as @jsquash/webp has built it',
    licence: 'BSD-3-Clause',
    copyright: 'Copyright (c) 2010 Google Inc.',
    files: 'webp.wasm',
  },
];

/** Used by the native program and library, which are not in the package. */
const native = [
  ['nlohmann/json', 'MIT', 'header, compiled in'],
  ['CLI11', 'BSD-3-Clause', 'header, compiled into the program'],
  ['libcurl', 'curl', 'linked'],
  ['lz4', 'BSD-2-Clause', 'linked'],
  ['Zstandard', 'BSD-3-Clause or GPL-2.0', 'linked'],
  ['libpng', 'libpng-2.0', 'linked by the program'],
  ['zlib', 'Zlib', 'linked by the program'],
  ['libjpeg-turbo', 'IJG and BSD-3-Clause', 'linked by the program'],
  ['libwebp', 'BSD-3-Clause', 'linked by the program'],
  ['libedit', 'BSD-3-Clause', 'linked by the program'],
  ['cpp-httplib', 'MIT', 'linked by the program, not on macOS'],
  ['ggml', 'MIT', 'the codebooks of its quantization types, compiled in'],
];

/** The package of a file below node_modules; undefined for our own files. */
const packageOf = (path) => /^.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1];

/** Wraps esbuild to record every package that it bundles. `bundled`: package → files of dist/. */
export function recording(esbuild) {
  const bundled = new Map();
  return {
    bundled,
    async build(options) {
      const result = await esbuild.build({ ...options, metafile: true });
      for (const [output, { inputs }] of Object.entries(result.metafile.outputs)) {
        // Output that is not written becomes part of inline.js.
        const file = options.write === false ? 'inline.js' : basename(output);
        for (const [input, { bytesInOutput }] of Object.entries(inputs)) {
          const name = packageOf(input);
          if (!name || !bytesInOutput) continue;
          bundled.set(name, new Set([...(bundled.get(name) ?? []), file]));
        }
      }
      return result;
    },
  };
}

function licenceOf(name) {
  const folder = inRoot('node_modules', name);
  const file =
    existsSync(folder) && readdirSync(folder).find((n) => /^(licen[cs]e|copying)/i.test(n));
  if (!file) throw new Error(`third-party: the bundled package ${name} has no licence file`);
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
  const texts = [file, 'codec/LICENSE.codec.md']
    .map((one) => `${folder}/${one}`)
    .filter((path) => existsSync(path))
    .map((path) => readFileSync(path, 'utf8').trim());
  return { version, license, text: texts.join('\n\n') };
}

const block = (text) => `\`\`\`text\n${text}\n\`\`\`\n`;

/** The list as Markdown. bundled: package → files of dist/ that contain parts of it. */
export function thirdParty(bundled) {
  const packages = [...bundled]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, files]) => ({ name, files: [...files].sort().join(', '), ...licenceOf(name) }));
  const mit = readFileSync(inRoot('LICENSE'), 'utf8').replace(/^[^]*?^Copyright.*\n+/m, '');
  return [
    '# Third-party code',
    'Sluice itself is under the MIT licence (`LICENSE`). The files of this package also contain:',
    '## npm packages',
    markdownTable(
      ['Package', 'Version', 'Licence', 'In'],
      packages.map(({ name, version, license, files }) => [name, version, license, files]),
    ),
    ...packages.flatMap(({ name, text }) => [`### ${name}`, block(text)]),
    '## Linked into WebAssembly',
    markdownTable(
      ['Component', 'Licence', 'Copyright', 'In'],
      linked.map(({ name, licence, copyright, files }) => [
        name,
        licence,
        copyright,
        `\`${files}\``,
      ]),
    ),
    'The text of the MIT licence, which applies to each component above that names it:',
    block(mit.trim()),
    '## Native program and library',
    'They are not in this package. Built from source, they use:',
    markdownTable(['Component', 'Licence', 'How'], native),
  ]
    .map((part) => part.trimEnd())
    .join('\n\n')
    .concat('\n');
}

export const writeThirdParty = (bundled) =>
  write(inRoot('dist', 'THIRD_PARTY.md'), thirdParty(bundled));
