// Packs bench:gpu into one archive for a machine with a GPU and nothing installed: Node itself, the
// package, Dawn, a Vulkan loader, small models, and a script that starts it.
//   npm run bench:gpu -- --pack [--out build/gpu-kit.tar.xz]
//   there: tar xf gpu-kit.tar.xz && gpu-kit/run --only probe
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { gzipSync } from 'node:zlib';
import { basename, dirname, join, relative } from 'node:path';
import { inRoot, run, runQuiet } from '../../../web/scripts/lib.mjs';
import { kernelPages, syntheticPackage } from './bundles.mjs';
import { testModels } from './models.mjs';

const kName = 'gpu-kit';
const kMaxBytes = 30e6;
/**
 * Of xz. Most of the kit is machine code, which is a tenth smaller with the filter for x86. The dictionary
 * holds all of it, since engines are there twice.
 */
const kXz = `${process.arch === 'x64' ? '--x86 ' : ''}--lzma2=preset=9e,dict=192MiB`;
const kDist = /(-node|^node|^gpu\S*)\.js$|^engine\.(gpu|simd128|simd128-full)\.wasm$/;
const kScripts = [
  'tests/bench/gpu.mjs',
  'tests/bench/gpu',
  'web/scripts/lib.mjs',
  'package.json',
  'node_modules/webgpu/package.json',
  'node_modules/webgpu/index.js',
];
const kFolders = ['/usr/lib/x86_64-linux-gnu', '/lib/x86_64-linux-gnu', '/usr/lib64', '/usr/lib'];
/** By folder in the kit: used where a machine has no library of that name. */
const kLibraries = {
  cxx: ['libstdc++.so.6', 'libgcc_s.so.1'],
  vulkan: ['libvulkan.so.1'],
};

const kRun = `#!/bin/sh
# Measures the GPU of this machine: run [--only probe,kernels,models,shapes,shape=NAME] [FILE...]
case $0 in */*) here=\${0%/*} ;; *) here=. ;; esac
has() {
  for folder in ${kFolders.join(' ')}; do
    [ -e "$folder/$1" ] && return 0
  done
  return 1
}
own=
${Object.entries(kLibraries)
  .map(([folder, [name]]) => `has ${name} || own=$own$here/lib/${folder}:`)
  .join('\n')}
if [ -n "$own" ]; then
  LD_LIBRARY_PATH=$own$LD_LIBRARY_PATH
  export LD_LIBRARY_PATH
fi
exec "$here/node" "$here/tests/bench/gpu.mjs" "$@"
`;

function addLibraries(folder) {
  for (const [into, names] of Object.entries(kLibraries))
    for (const name of names) {
      const found = kFolders.map((from) => join(from, name)).find(existsSync);
      if (!found) throw new Error(`${name} is not on this machine; Debian has it in libvulkan1`);
      cpSync(realpathSync(found), join(folder, 'lib', into, name));
    }
}

/** The largest files below `folder`: path, bytes, and bytes after gzip, which are nearer to their share. */
export function largest(folder, count = 12) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .map((path) => ({ path, bytes: statSync(path).size }))
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, count)
    .map(({ path, bytes }) => ({
      path: relative(folder, path),
      bytes,
      gzipped: gzipSync(readFileSync(path), { level: 1 }).length,
    }));
}

/** Throws if an archive of `folder` with `bytes` bytes is too large; the message lists what is large. */
export function checkSize(folder, bytes, most = kMaxBytes) {
  if (bytes <= most) return;
  const mb = (n) => `${(n / 1e6).toFixed(1)} MB`;
  const lines = largest(folder).map(
    (file) => `  ${mb(file.bytes)}, gzipped ${mb(file.gzipped)}: ${file.path}`,
  );
  throw new Error([`the kit has ${mb(bytes)}, more than ${mb(most)}:`, ...lines].join('\n'));
}

/** Writes the archive `out`. */
export async function pack(out) {
  const folder = inRoot('build', 'bench-gpu', kName);
  rmSync(folder, { recursive: true, force: true });
  const add = (path) => cpSync(inRoot(path), join(folder, path), { recursive: true });
  kScripts.forEach(add);
  const dawn = join('node_modules', 'webgpu', 'dist', `${process.platform}-${process.arch}`);
  add(dawn);
  for (const name of readdirSync(inRoot('dist')).filter((name) => kDist.test(name)))
    add(join('dist', name));
  for (const built of [await kernelPages(), await syntheticPackage()])
    add(relative(inRoot(), built));
  for (const file of testModels()) {
    add(relative(inRoot(), file));
    add(relative(inRoot(), join(dirname(file), 'manifest.json')));
  }
  cpSync(process.execPath, join(folder, 'node'));
  // Symbols that nothing links with take a tenth of the archive.
  for (const path of ['node', join(dawn, 'dawn.node')]) run('strip', [join(folder, path)]);
  addLibraries(folder);
  writeFileSync(join(folder, 'run'), kRun);
  chmodSync(join(folder, 'run'), 0o755);
  const commit = runQuiet('git', ['describe', '--always', '--dirty']).trim();
  const { version } = JSON.parse(readFileSync(inRoot('node_modules/webgpu/package.json'), 'utf8'));
  writeFileSync(join(folder, 'kit.json'), JSON.stringify({ commit, webgpu: version }));
  mkdirSync(dirname(out), { recursive: true });
  const args = ['--sort=name', '--owner=0', '--group=0', '-C', dirname(folder), '-cJf', out, kName];
  run('tar', args, { env: { XZ_OPT: kXz } });
  const { size } = statSync(out);
  console.log(`${basename(out)}: ${(size / 1e6).toFixed(1)} MB`);
  checkSize(folder, size);
}
