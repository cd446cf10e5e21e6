// Runs GoogleTest programs and fuzz targets, in as many processes as there are cores, and counts
// their results.
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { concurrently, inRoot, jobs } from '../../web/scripts/lib.mjs';
import { add, none } from './counts.mjs';
import { SuiteError, execute, lastLines, minute, results } from './processes.mjs';

const together = Math.min(jobs, 4);

/** The sum of what the runs count. */
export async function sumOf(runs) {
  return (await concurrently(runs, together)).reduce(add, none());
}

function countReport(file) {
  const report = JSON.parse(readFileSync(file, 'utf8'));
  const count = none();
  for (const suite of report.testsuites) {
    for (const t of suite.testsuite) {
      if (t.failures?.length) count.failed++;
      else if (t.status === 'NOTRUN' || t.result === 'SKIPPED') count.skipped++;
      else count.passed++;
    }
  }
  return count;
}

/** One program; `wrapper` runs it (qemu, wine), `filter` chooses tests. */
export async function gtest(
  program,
  { wrapper = [], filter, env, label, timeoutMs = 20 * minute },
) {
  const report = join(results, `${label}.json`);
  rmSync(report, { force: true });
  const reportOption = `--gtest_output=json:${relative(inRoot(), report)}`;
  const command = [...wrapper, program, '--gtest_brief=1', reportOption];
  if (filter) command.push(`--gtest_filter=${filter}`);
  const { code, output } = await execute(command[0], command.slice(1), { env, timeoutMs });
  if (!existsSync(report)) {
    return { ...none(), failed: 1, details: `${label}: died (${code})\n${lastLines(output, 60)}` };
  }
  const count = countReport(report);
  if (code !== 0) count.details = `${label}:\n${lastLines(output, 60)}`;
  if (code !== 0 && count.failed === 0) count.failed = 1; // a sanitizer's report at exit
  return count;
}

/** As many runs of a program as are made at a time, each of its share of the tests, with its own place for files. */
export const shards = (path, { env, label, ...options }) =>
  Array.from({ length: together }, (_, i) => async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-tests-'));
    const share = {
      GTEST_TOTAL_SHARDS: `${together}`,
      GTEST_SHARD_INDEX: `${i}`,
      TMPDIR: folder,
      TEST_TMPDIR: folder,
    };
    try {
      return await gtest(path, { ...options, env: { ...env, ...share }, label: `${label}-${i}` });
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
 * The test programs of a build. `filters`: by name, which tests of a program run (null: none of it);
 * a program that is not named runs whole.
 */
export async function gtestAll(preset, { filters = {}, ...options } = {}) {
  const programs = programsOf(preset).filter(([name]) => filters[name] !== null);
  if (programs.length === 0) throw new SuiteError(`no test programs in build/${preset}/tests`);
  return sumOf(
    programs.flatMap(([name, path]) =>
      shards(path, { filter: filters[name], ...options, label: `${preset}-${name}` }),
    ),
  );
}

/** The fuzz targets over their committed corpora; each counts as one test. */
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
