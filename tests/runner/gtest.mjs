// Runs GoogleTest programs and fuzz targets, in as many processes as there are cores (at most
// four), and counts their results.
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { concurrently, inRoot, jobs } from '../../web/scripts/lib.mjs';
import { add, none } from './counts.mjs';
import { SuiteError, execute, lastLines, minute, results } from './processes.mjs';

const together = Math.min(jobs, 4);

/** Runs all of `runs` and adds up their counts. */
export async function sumOf(runs) {
  return (await concurrently(runs, together)).reduce(add, none());
}

const reportOf = (label) => join(results, `${label}.json`);

/**
 * The tests of a report, which are those that the filter chose. `name` is Suite.Test, as in
 * filters.
 */
const testsIn = (label) =>
  JSON.parse(readFileSync(reportOf(label), 'utf8')).testsuites.flatMap(({ name, testsuite }) =>
    testsuite.map((t) => ({ ...t, name: `${name}.${t.name}` })),
  );

function countReport(label) {
  const count = none();
  for (const t of testsIn(label)) {
    if (t.failures?.length) count.failed++;
    else if (t.status === 'NOTRUN' || t.result === 'SKIPPED') count.skipped++;
    else count.passed++;
  }
  return count;
}

/** What failed, by name: a program goes on after a failure, and its last lines may not have it. */
const failuresIn = (label) =>
  testsIn(label)
    .filter(({ failures }) => failures?.length)
    .map(({ name, failures }) => `${name}: ${failures.map(({ failure }) => failure).join('\n')}\n`)
    .join('');

const patternOf = (glob) =>
  new RegExp(
    `^${glob
      .replace(/[.+^${}()|[\]\\]/g, '\\$&')
      .replaceAll('*', '.*')
      .replaceAll('?', '.')}$`,
  );

/**
 * One failure for each pattern of a filter that matches no test of these runs, so that a renamed
 * test does not silently disappear. Also one if no test ran.
 */
export function unmatched(labels, filter = '*') {
  const count = none();
  if (!labels.every((label) => existsSync(reportOf(label)))) return count; // one died: already reported
  const names = labels.flatMap(testsIn).map(({ name }) => name);
  for (const glob of filter.split('-')[0].split(':').filter(Boolean)) {
    const pattern = patternOf(glob);
    if (names.some((name) => pattern.test(name))) continue;
    count.failed++;
    count.details = `${count.details ?? ''}${labels[0]}: no test matches ${glob}\n`;
  }
  return count;
}

/** Runs one program. `wrapper` is a command that runs it (qemu, wine); `filter` chooses tests. */
export async function gtest(
  program,
  { wrapper = [], filter, env, label, timeoutMs = 20 * minute },
) {
  const report = reportOf(label);
  rmSync(report, { force: true });
  const reportOption = `--gtest_output=json:${relative(inRoot(), report)}`;
  const command = [...wrapper, program, '--gtest_brief=1', reportOption];
  if (filter) command.push(`--gtest_filter=${filter}`);
  const { code, output } = await execute(command[0], command.slice(1), { env, timeoutMs });
  if (!existsSync(report)) {
    return { ...none(), failed: 1, details: `${label}: died (${code})\n${lastLines(output, 60)}` };
  }
  const count = countReport(label);
  if (code !== 0) count.details = `${label}:\n${failuresIn(label) || lastLines(output, 60)}`;
  if (code !== 0 && count.failed === 0) count.failed = 1; // a sanitizer report at exit
  return count;
}

export const shardLabels = (label) => Array.from({ length: together }, (_, i) => `${label}-${i}`);

/** Splits a program's tests over `together` processes, each with its own temporary directory. */
export const shards = (path, { env, label, ...options }) =>
  shardLabels(label).map((own, i) => async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-tests-'));
    const share = {
      GTEST_TOTAL_SHARDS: `${together}`,
      GTEST_SHARD_INDEX: `${i}`,
      TMPDIR: folder,
      TEST_TMPDIR: folder,
    };
    try {
      return await gtest(path, { ...options, env: { ...env, ...share }, label: own });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

const programsOf = (preset) => {
  const folder = inRoot('build', preset, 'tests');
  return readdirSync(folder)
    .filter((f) => f.endsWith('_tests'))
    .map((f) => [f, join(folder, f)]);
};

/**
 * Runs the test programs of a build. `filters` maps a program to its filter (null: skip it);
 * programs without an entry run all tests.
 */
export async function gtestAll(preset, { filters = {}, ...options } = {}) {
  const programs = programsOf(preset).filter(([name]) => filters[name] !== null);
  if (programs.length === 0) throw new SuiteError(`no test programs in build/${preset}/tests`);
  const labelOf = (name) => `${preset}-${name}`;
  const count = await sumOf(
    programs.flatMap(([name, path]) =>
      shards(path, { filter: filters[name], ...options, label: labelOf(name) }),
    ),
  );
  return add(
    count,
    unmatched(
      programs.flatMap(([name]) => shardLabels(labelOf(name))),
      options.filter,
    ),
  );
}

/** Runs the fuzz targets over their committed corpora; each target counts as one test. */
export async function fuzzRegressions(preset) {
  const folder = inRoot('build', preset, 'tests', 'fuzz');
  const programs = existsSync(folder)
    ? readdirSync(folder).filter((f) => f.endsWith('_fuzz_regression'))
    : [];
  if (programs.length === 0) throw new SuiteError(`no fuzz targets in build/${preset}/tests/fuzz`);
  return sumOf(
    programs.map((program) => async () => {
      const corpus = inRoot('tests', 'fuzz', 'corpus', program.replace('_fuzz_regression', ''));
      const { code, output } = await execute(
        join(folder, program),
        existsSync(corpus) ? [corpus] : [],
      );
      return code === 0
        ? { ...none(), passed: 1 }
        : { ...none(), failed: 1, details: `${program}:\n${lastLines(output, 40)}` };
    }),
  );
}
