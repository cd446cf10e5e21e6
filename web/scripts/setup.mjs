// Installs what the named purposes need on Debian 12 with Node 20: system packages with apt-get,
// npm packages with npm ci. If everything is installed, it does nothing and takes a fraction of a
// second.
//   node web/scripts/setup.mjs build test bench
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inRoot, root, run } from './lib.mjs';

// 'a | b': the first one, unless the other one is installed.
const packages = {
  native: [
    'cmake',
    'ninja-build',
    'g++',
    'nlohmann-json3-dev',
    'libcli11-dev',
    'libcurl4-openssl-dev',
    'libedit-dev',
    'liblz4-dev',
    'libzstd-dev',
    'libcpp-httplib-dev',
    'libpng-dev',
    'libjpeg62-turbo-dev',
    'libwebp-dev',
    'pkg-config',
  ],
  wasm: ['cmake', 'ninja-build', 'emscripten', 'nlohmann-json3-dev'],
  browser: ['chromium-headless-shell | chromium'],
  window: ['chromium'],
  browsers: ['firefox-esr', 'webkit2gtk-driver', 'xvfb', 'mesa-vulkan-drivers'],
  test: [
    'clang',
    'clang-format',
    'libclang-rt-14-dev',
    'libgtest-dev',
    'pkg-config',
    'python3-numpy',
    'g++-aarch64-linux-gnu',
    'qemu-user-static',
  ],
  windows: ['g++-mingw-w64-x86-64-posix', 'googletest', 'wine64'],
  fuzz: ['clang', 'libclang-rt-14-dev', 'llvm', 'libgtest-dev'],
  bench: ['libbenchmark-dev'],
};
const purposes = {
  build: ['native', 'wasm'],
  native: ['native'],
  wasm: ['wasm'],
  test: ['native', 'wasm', 'browser', 'browsers', 'test'],
  testWindows: ['native', 'wasm', 'browser', 'browsers', 'test', 'windows'],
  demo: ['wasm', 'browser'],
  fuzz: ['native', 'fuzz'],
  bench: ['native', 'wasm', 'window', 'bench'],
};

function missingPackages(wanted) {
  const choices = wanted.map((name) => name.split(' | '));
  const names = choices.map(([first]) => first);
  const query = spawnSync(
    'dpkg-query',
    ['-W', '-f', '${Package} ${db:Status-Status}\n', ...choices.flat()],
    {
      encoding: 'utf8',
    },
  );
  if (query.error) {
    console.error(
      `setup: this is not Debian, so packages are not checked. Debian's names: ` +
        `${names.join(' ')}`,
    );
    return [];
  }
  const installed = new Set(
    query.stdout
      .split('\n')
      .filter((l) => l.endsWith(' installed'))
      .map((l) => l.split(' ')[0]),
  );
  return names.filter((_, i) => !choices[i].some((name) => installed.has(name)));
}

function installPackages(names) {
  const command = ['apt-get', 'install', '-y', '--no-install-recommends', ...names];
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  const isRoot = process.getuid?.() === 0;
  const canSudo = !isRoot && spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status === 0;
  if (!isRoot && !canSudo) {
    throw new Error(
      `system packages are missing and this user cannot install them; run:\n  sudo ` +
        `${command.join(' ')}`,
    );
  }
  console.log(`setup: installing ${names.join(' ')}`);
  const prefix = isRoot ? [] : ['sudo', '-n', 'DEBIAN_FRONTEND=noninteractive'];
  for (const line of [['apt-get', 'update', '-q'], command]) {
    const [program, ...args] = [...prefix, ...line];
    run(program, args, { env, stdio: ['ignore', 'inherit', 'inherit'] });
  }
}

// npm records what it installed in node_modules/.package-lock.json. File times are not reliable
// after a checkout.
function npmPackagesAreCurrent() {
  const installed = inRoot('node_modules', '.package-lock.json');
  if (!existsSync(installed)) return false;
  const read = (file) => JSON.parse(readFileSync(file, 'utf8')).packages;
  const have = read(installed);
  return Object.entries(read(inRoot('package-lock.json'))).every(
    ([path, wanted]) => path === '' || wanted.optional || have[path]?.version === wanted.version,
  );
}

/** wanted: names in `purposes`. Throws an error whose message says what to do. */
export function setup(...wanted) {
  if (Number(process.versions.node.split('.')[0]) < 20) {
    throw new Error(`Node 20 or later is needed, this is ${process.version}`);
  }
  const groups = wanted.flatMap((name) => {
    if (!purposes[name])
      throw new Error(`unknown purpose '${name}': ${Object.keys(purposes).join(', ')}`);
    return purposes[name];
  });
  const missing = missingPackages([...new Set(groups.flatMap((g) => packages[g]))]);
  if (missing.length) installPackages(missing);
  if (!npmPackagesAreCurrent()) {
    console.log('setup: npm ci');
    run('npm', ['ci', '--loglevel=error'], { stdio: ['ignore', 'inherit', 'inherit'] });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.chdir(root);
  try {
    setup(...(process.argv.length > 2 ? process.argv.slice(2) : ['build']));
  } catch (e) {
    console.error(`setup: ${e.message}`);
    process.exit(1);
  }
}
