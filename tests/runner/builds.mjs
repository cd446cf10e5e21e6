// What each suite needs built. Builds of the chosen suites start at once at the lowest priority, so
// they use the time that tests spend waiting for browsers, servers and disks.
import { readFileSync, readdirSync } from 'node:fs';
import { inRoot, jobs } from '../../web/scripts/lib.mjs';
import { all } from '../extent.mjs';
import { measured, minute, must } from './processes.mjs';

async function cmake(preset, targets = [], variables = []) {
  await must('cmake', ['--preset', preset, ...variables]);
  const chosen = targets.length ? ['--target', ...targets] : [];
  await must('cmake', ['--build', '--preset', preset, '-j', String(jobs), ...chosen], {
    idle: true,
    timeoutMs: 85 * minute,
  });
}

// In the short suite the corpora of the fuzzers are only for the address sanitizer.
const native = (...targets) =>
  cmake('native', targets, [
    '-DSLUICE_TESTS=ON',
    '-DSLUICE_WERROR=ON',
    `-DSLUICE_FUZZ_REGRESSIONS=${all ? 'ON' : 'OFF'}`,
  ]);

/**
 * Kernels without sanitizers, which asan in the short suite and tsan link instead of compiling their
 * own. They start no threads.
 */
const kernels = ['kernels', () => native('sluice_kernels')];
const withKernels = (path) => `-DSLUICE_KERNELS_LIBRARY=${path}`;
const plainKernels = withKernels(inRoot('build', 'native', 'kernels', 'libsluice_kernels.a'));

/** Words in the names of tests that use threads; these run under the thread sanitizer. */
export const threaded = ['Thread', 'Pool', 'Driver', 'Session', 'Stream'];

/** The files that contain such tests, and mention threads; only they are compiled. */
function threadedFiles(folders) {
  const pattern = new RegExp(`^TEST(_F|_P)?\\([^)]*(${threaded.join('|')})`, 'm');
  const isThreaded = (text) => pattern.test(text) && /thread/i.test(text);
  return folders.flatMap((folder) =>
    readdirSync(inRoot('tests', folder))
      .filter(
        (f) =>
          f.endsWith('_test.cpp') && isThreaded(readFileSync(inRoot('tests', folder, f), 'utf8')),
      )
      .map((f) => `${folder}/${f.slice(0, -9)}`),
  );
}

/**
 * Files that the short suite runs under the address and undefined-behaviour sanitizers: units,
 * hostile input, random operations.
 */
const addressed = [
  'unit/[a-z0-9_]+',
  'api/(chat|misuse)',
  'conformance/(bad_weights|random_[a-z]+|session_swap|wrong_files)',
];
/**
 * Files that run under emulation: NEON kernels, and models of some families and all quantization
 * types (suites.mjs).
 */
const emulated = 'kernels/[a-z_]+|api/api|conformance/(families|quantized)';

const sources = (expression) => [`-DSLUICE_TEST_SOURCES=${expression}`];

const npmPackage = () =>
  must(process.execPath, [inRoot('web', 'scripts', 'build.mjs'), 'wasm', 'web'], { idle: true });

/** The kernels' tests as WebAssembly. */
const kernelsTests = () =>
  must(
    process.execPath,
    [
      inRoot('tests', 'wasm', 'gtest.mjs'),
      'kernels_tests',
      'simd128',
      'relaxed',
      ...(all ? ['strict'] : []),
    ],
    { idle: true },
  );

/** What each suite needs, in build order: [name, build]. */
const wanted = {
  unit: [['native', () => native('unit_tests')]],
  native: [['native-tests', () => native('all')]],
  package: [['package', npmPackage]],
  web: [
    ['package', npmPackage],
    ['programs', () => native('sluice', 'sluice-make-model')],
  ],
  serve: [
    ['package', npmPackage],
    ['programs', () => native('sluice')],
  ],
  clients: [
    ['package', npmPackage],
    ['programs', () => native('sluice')],
  ],
  asan: [
    kernels,
    [
      'asan',
      () =>
        all
          ? cmake('asan', [], [...sources('.*'), withKernels('')])
          : cmake(
              'asan',
              ['unit_tests', 'conformance_tests', 'api_tests', 'fuzz_regressions'],
              [...sources(addressed.join('|')), plainKernels],
            ),
    ],
  ],
  tsan: [
    kernels,
    [
      'tsan',
      () => {
        const folders = ['unit', 'conformance', 'api', 'serve'];
        return cmake(
          'tsan',
          folders.map((folder) => `${folder}_tests`),
          [...sources(threadedFiles(folders).join('|')), plainKernels],
        );
      },
    ],
  ],
  wasm: [['kernels-wasm', kernelsTests]],
  release: [
    ['release', () => cmake('release')],
    ['programs', () => native('sluice')], // compared with it
  ],
  windows: [
    [
      'windows',
      () =>
        cmake('windows-tests', [
          'sluice',
          'unit_tests',
          'kernels_tests',
          'conformance_tests',
          'api_tests',
        ]),
    ],
    ['programs', () => native('sluice')], // sluice.exe is compared with it
  ],
  aarch64: [
    [
      'aarch64',
      () =>
        cmake(
          'aarch64',
          ['kernels_tests', 'conformance_tests'],
          [
            ...sources(emulated),
            '-DSLUICE_CONFORMANCE_LIBRARIES=',
            `-DSLUICE_KERNELS_OPTIMIZE=${all ? '-O3' : '-O1'}`,
          ],
        ),
    ],
  ],
};

const started = new Map();
let last = Promise.resolve();

/** Starts the builds of these suites, one after another. */
export function startBuilds(suites) {
  for (const [name, build] of suites.flatMap((suite) => wanted[suite] ?? [])) {
    if (started.has(name)) continue;
    const result = last.then(() => measured(build));
    started.set(name, result);
    last = result.catch(() => {}); // the suite reports the error
  }
}

const counted = new Set();

/**
 * Resolves when everything that the suite needs is built, to the processor seconds spent. Each
 * build counts once.
 */
export async function built(suite) {
  let cpu = 0;
  for (const [name] of wanted[suite] ?? []) {
    const spent = await started.get(name);
    if (!counted.has(name)) cpu += spent.cpu;
    counted.add(name);
  }
  return cpu;
}
