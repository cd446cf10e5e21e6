// npm test: every suite of the project, from a fresh clone. Each suite prints one line; the last
// line of all is "N passed, N failed". GoogleTest and node:test results are counted one by one; a
// suite that could not be built or run counts as one failure and shows what it said.
//   npm test                     all suites but windows
//   npm test -- native web       only these
//   npm test -- windows          the programs for Windows under wine: 12 minutes of compiling without a cache
//   npm test -- --list           their names
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { capture, inRoot, jobs } from '../web/scripts/lib.mjs';
import { setup } from '../web/scripts/setup.mjs';

const results = inRoot('build', 'test-results');
const minute = 60_000;

class SuiteError extends Error {}

async function must(command, args, options = {}) {
  const { code, output } = await capture(command, args, { timeoutMs: 40 * minute, ...options });
  if (code !== 0) throw new SuiteError(`${[command, ...args].join(" ").slice(0, 160)}\n${lastLines(output, 60)}`);
  return output;
}

const lastLines = (text, n) => text.trimEnd().split('\n').slice(-n).join('\n');

// --- counting ---------------------------------------------------------------------------------

function countGtest(file) {
  const report = JSON.parse(readFileSync(file, 'utf8'));
  const count = { passed: 0, failed: 0, skipped: 0 };
  for (const suite of report.testsuites) {
    for (const t of suite.testsuite) {
      if (t.failures?.length) count.failed++;
      else if (t.status === 'NOTRUN' || t.result === 'SKIPPED') count.skipped++;
      else count.passed++;
    }
  }
  return count;
}

function countTap(text) {
  const number = (name) => Number(new RegExp(`^# ${name} (\\d+)$`, 'm').exec(text)?.[1] ?? NaN);
  return {
    passed: number('pass'),
    failed: number('fail') + number('cancelled'),
    skipped: number('skipped') + number('todo'),
  };
}

function add(a, b) {
  for (const key of ['passed', 'failed', 'skipped']) a[key] += b[key];
  if (b.details) a.details = `${a.details ?? ''}${b.details}\n`;
  return a;
}

const none = () => ({ passed: 0, failed: 0, skipped: 0 });

// --- ways to run ------------------------------------------------------------------------------

async function cmake(preset, targets = [], variables = []) {
  await must('cmake', ['--preset', preset, ...variables]);
  const chosen = targets.length ? ['--target', ...targets] : [];
  // Behind the tests before: on a slow machine it gets little time until they are over.
  await must('cmake', ['--build', '--preset', preset, '-j', String(jobs), ...chosen], { idle: true, timeoutMs: 85 * minute });
}

// One GoogleTest program; `wrapper` runs it (qemu, wine), `filter` chooses tests.
async function gtest(program, { wrapper = [], filter, env, label, timeoutMs = 20 * minute }) {
  const report = join(results, `${label}.json`);
  rmSync(report, { force: true });
  const command = [...wrapper, program, '--gtest_brief=1', `--gtest_output=json:${relative(inRoot(), report)}`];
  if (filter) command.push(`--gtest_filter=${filter}`);
  const { code, output } = await capture(command[0], command.slice(1), { env, timeoutMs });
  if (!existsSync(report)) {
    return { ...none(), failed: 1, details: `${label}: died (${code})\n${lastLines(output, 60)}` };
  }
  const count = countGtest(report);
  if (code !== 0) count.details = `${label}:\n${lastLines(output, 60)}`;
  if (code !== 0 && count.failed === 0) count.failed = 1;  // a sanitizer's word at exit
  return count;
}

const testPrograms = (preset) => {
  const folder = inRoot('build', preset, 'tests');
  return readdirSync(folder).filter((f) => f.endsWith('_tests')).map((f) => [f, join(folder, f)]);
};

const together = Math.min(jobs, 4);
/** The sum of what the runs count, so many at a time. */
async function inTurns(runs) {
  const total = none();
  const worker = async () => {
    for (let run = runs.shift(); run; run = runs.shift()) add(total, await run());
  };
  await Promise.all(Array.from({ length: together }, worker));
  return total;
}

// As many runs of a program as are made at a time, each of its share of the tests, with its own place for files.
const shards = (path, { env, label, ...options }) => Array.from({ length: together }, (_, i) => async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-tests-'));
  const share = { GTEST_TOTAL_SHARDS: `${together}`, GTEST_SHARD_INDEX: `${i}`, TMPDIR: folder, TEST_TMPDIR: folder };
  try {
    return await gtest(path, { ...options, env: { ...env, ...share }, label: `${label}-${i}` });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

async function gtestAll(preset, options = {}) {
  const programs = testPrograms(preset);
  if (programs.length === 0) throw new SuiteError(`no test programs in build/${preset}/tests`);
  return inTurns(programs.flatMap(([name, path]) => shards(path, { ...options, label: `${preset}-${name}` })));
}

// The fuzz targets over their committed corpora; each counts as one test.
async function fuzzRegressions(preset) {
  const folder = inRoot('build', preset, 'tests', 'fuzz');
  const total = none();
  const programs = existsSync(folder)
    ? readdirSync(folder).filter((f) => f.endsWith('_fuzz_regression')) : [];
  for (const program of programs) {
    const corpus = inRoot('tests', 'fuzz', 'corpus', program.replace('_fuzz_regression', ''));
    const { code, output } = await capture(join(folder, program), existsSync(corpus) ? [corpus] : []);
    add(total, code === 0 ? { ...none(), passed: 1 }
      : { ...none(), failed: 1, details: `${program}:\n${lastLines(output, 40)}` });
  }
  return total;
}

async function nodeTests(folder, env = {}, timeoutMs = 60 * minute) {
  const files = existsSync(inRoot('tests', folder))
    ? readdirSync(inRoot('tests', folder)).filter((f) => f.endsWith('.test.mjs')).sort()
    : [];
  if (files.length === 0) throw new SuiteError(`no tests in tests/${folder}`);
  // Much of their time they wait: for a browser, a server, a disk.
  const args = ['--test', `--test-concurrency=${Math.min(jobs, 2)}`, '--test-reporter=tap',
    ...files.map((f) => inRoot('tests', folder, f))];
  const { code, output } = await capture(process.execPath, args, { env, timeoutMs });
  const count = countTap(output);
  if (Number.isNaN(count.passed)) throw new SuiteError(lastLines(output, 60));
  if (code !== 0) {
    count.failed ||= 1;
    const notOk = /^( *)not ok [\s\S]*?^\1  \.\.\.$/gm;
    count.details = [...output.matchAll(notOk)].map((m) => lastLines(m[0], 30)).join('\n') || lastLines(output, 60);
  }
  return count;
}

let packageBuilt;
const buildPackage = () =>
  (packageBuilt ??= must(process.execPath, [inRoot('web', 'scripts', 'build.mjs'), 'wasm', 'web']));

// --- what is compiled -------------------------------------------------------------------------

const emulated = ['kernels_tests', 'conformance_tests'];
// Where threads meet: the files of these tests alone are compiled.
const threaded = ['Thread', 'Pool', 'Concurren', 'Driver', 'Session', 'Stream'];

// Rooms six files at a time, as the presets of sanitizers have them: headers are read once for all.
const native = (...targets) => cmake('native', targets,
  ['-DSLUICE_TESTS=ON', '-DSLUICE_WERROR=ON', '-DCMAKE_UNITY_BUILD=ON', '-DCMAKE_UNITY_BUILD_BATCH_SIZE=6']);
const programs = () => native('sluice', 'sluice-make-model');

const builds = {  // by suite
  package: programs,
  web: programs,
  serve: programs,
  native: () => native(),
  asan: () => cmake('asan'),
  tsan() {
    const folders = ['unit', 'conformance', 'api', 'serve'];
    const told = new RegExp(`^TEST(_F|_P)?\\([^)]*(${threaded.join('|')})`, 'm');
    const files = folders.flatMap((folder) => readdirSync(inRoot('tests', folder)).filter((f) => f.endsWith('_test.cpp'))
      .filter((f) => told.test(readFileSync(inRoot('tests', folder, f), 'utf8'))).map((f) => `${folder}/${f.slice(0, -9)}`));
    return cmake('tsan', folders.map((folder) => `${folder}_tests`), [`-DSLUICE_TEST_SOURCES=(${files.join('|')})`]);
  },
  // What runs there (below) is in these files.
  aarch64: () => cmake('aarch64', emulated, ['-DSLUICE_TEST_SOURCES=kernels/[a-z_]+|api/api|conformance/(families|quantized)']),
};

// Compilers work through what the suites want from the start and take the time that no test does:
// browsers, servers and disks keep tests waiting.
const built = {};
function startBuilds(names) {
  let last = Promise.resolve();
  for (const name of names.filter((each) => builds[each])) {
    built[name] = last = last.catch(() => {}).then(builds[name]);
    built[name].catch(() => {});  // its suite tells
  }
}

// --- the suites -------------------------------------------------------------------------------

const suites = {
  async format() {
    const files = (await must('git', ['ls-files', '*.h', '*.cpp'])).trim().split('\n').filter(existsSync);
    await must('clang-format', ['--dry-run', '-Werror', ...files]);
    return { ...none(), passed: 1 };
  },
  async rooms() {
    return nodeTests('rooms');
  },
  async types() {
    const projects = ['web/tsconfig.json', 'tests/web/tsconfig.json'];
    for (const project of projects) await must(inRoot('node_modules', '.bin', 'tsc'), ['--noEmit', '-p', project]);
    return { ...none(), passed: projects.length };
  },
  async package() {
    await Promise.all([buildPackage(), built.package]);
    return nodeTests('package');
  },
  async web() {
    await Promise.all([buildPackage(), built.web]);
    return nodeTests('web');
  },
  async serve() {
    await Promise.all([buildPackage(), built.serve]);  // `npx sluice-llm serve`
    return nodeTests('serve');
  },
  async native() {
    await built.native;
    const count = add(await gtestAll('native'), await fuzzRegressions('native'));
    return add(count, await nodeTests('api'));  // what `cmake --install` gives
  },
  async asan() {
    await built.asan;
    const env = { ASAN_OPTIONS: 'detect_leaks=1', UBSAN_OPTIONS: 'print_stacktrace=1', SLUICE_RANDOM_OPERATIONS: '3' };
    return add(await gtestAll('asan', { env }), await fuzzRegressions('asan'));
  },
  async tsan() {
    await built.tsan;
    return gtestAll('tsan', { filter: threaded.map((word) => `*${word}*`).join(':'),
      env: { TSAN_OPTIONS: 'halt_on_error=1' } });
  },
  async aarch64() {
    await built.aarch64;
    return inTurns(emulated.flatMap((name) => {
      // Emulation is slow: NEON's arithmetic on every weight type and family, streaming on a few.
      const streamed = ['llama_gqa', 'gemma2', 'phi3_longrope_partial', 'gpt2', 'lfm2', 'qwen3moe'];
      const filter = name === 'conformance_tests'
        ? ['Kernels/Quantized.*/neon', 'Families/*.LogitsOf*_neon', 'Families/*.Greedy*_neon',
          ...streamed.map((model) => `Families/*.Budget*/${model}_neon`)].join(':')
        : undefined;
      return shards(inRoot('build', 'aarch64', 'tests', name),
        { wrapper: ['qemu-aarch64-static'], filter, label: `aarch64-${name}` });
    }));
  },
  async wasm() {
    const { buildProgram, countLines, runInBrowser, runInNode } = await import('./wasm/gtest.mjs');
    const { launchChromium, launchFirefox, launchWebKit } = await import('./web/drivers.mjs');
    const name = 'kernels_tests';
    for (const variant of ['simd128', 'relaxed', 'strict']) buildProgram(name, variant);
    return inTurns([
      () => runInNode(name, 'simd128'),
      () => runInNode(name, 'strict'),
      () => runInBrowser(launchChromium, name, 'simd128'),
      () => runInBrowser(launchWebKit, name, 'simd128'),
      () => runInBrowser(launchChromium, name, 'relaxed'),
      () => runInBrowser(launchFirefox, name, 'relaxed'),
    ].map((run) => async () => countLines(await run())));
  },
  async windows() {
    const { wine, wineEnvironment } = await import('./windows/wine.mjs');
    const env = wineEnvironment();
    const timeoutMs = 6 * minute;
    await Promise.all([
      must(wine(), ['cmd', '/c', 'exit'], { env, timeoutMs }),  // a Windows of the tests' own makes itself
      cmake('windows-tests', ['sluice', 'unit_tests', 'kernels_tests', 'conformance_tests', 'api_tests']),
    ]);
    // The preset compiles the tests of what a system decides. Families run on one instruction set, some streamed.
    const filters = {
      unit_tests: '*',
      kernels_tests: '*',
      api_tests: '*',
      conformance_tests: ['*FamilyTest.LogitsOf*_avx2', '*FamilyTest.Greedy*_avx2',
        ...['llama_gqa', 'gemma2', 'lfm2', 'qwen3moe'].flatMap((model) =>
          [`*FamilyTest.Budget*/${model}_avx2`, `*BatchTest.*_${model}`, `*RandomOperationsTest.*/${model}_*`]),
        '*DirectReads*', 'Generating.*', '*Hf*', '*PromptCache*', 'SampleModel.*', 'StoriesTest.Checkpoints*'].join(':'),
    };
    const total = await inTurns(Object.entries(filters).map(([name, filter]) => () =>
      gtest(inRoot('build', 'windows-tests', 'tests', `${name}.exe`), { wrapper: [wine()], filter, env, timeoutMs, label: `windows-${name}` })));
    await cmake('native', ['sluice']);  // which the other is held against
    return add(total, await nodeTests('windows', {}, timeoutMs));
  },
};

const onRequest = ['windows'];

// --- main -------------------------------------------------------------------------------------

async function main(argv) {
  if (argv.includes('--list')) return void console.log(Object.keys(suites).join('\n'));
  const unknown = argv.filter((name) => !suites[name]);
  if (unknown.length) throw new Error(`no suite '${unknown[0]}'; there are ${Object.keys(suites).join(', ')}`);
  setup(argv.includes('windows') ? 'testWindows' : 'test');
  mkdirSync(results, { recursive: true });
  const total = none();
  const chosen = argv.length ? argv : Object.keys(suites).filter((suite) => !onRequest.includes(suite));
  startBuilds(chosen);
  for (const name of chosen) {
    const start = Date.now();
    let count;
    try {
      count = await suites[name]();
    } catch (e) {
      count = { ...none(), failed: 1, details: e instanceof SuiteError ? e.message : e.stack };
    }
    add(total, { ...count, details: undefined });
    const skipped = count.skipped ? `, ${count.skipped} skipped` : '';
    const seconds = `${((Date.now() - start) / 1000).toFixed(0)} s`;
    if (count.details) console.log(count.details.trimEnd());
    console.log(`${name.padEnd(10)} ${count.passed} passed, ${count.failed} failed${skipped}  (${seconds})`);
  }
  if (total.skipped) console.log(`${total.skipped} skipped`);
  console.log(`${total.passed} passed, ${total.failed} failed`);
  process.exitCode = total.failed ? 1 : 0;
}

main(process.argv.slice(2)).catch((e) => {
  console.error(`test: ${e.message}`);
  console.log('0 passed, 1 failed');
  process.exitCode = 1;
});
