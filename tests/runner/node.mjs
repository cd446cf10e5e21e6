// Runs the node:test files of a directory of tests/ and counts their results. Each file is a process
// group of its own with a limit, so that a test that hangs cannot stop the others.
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { concurrently, inRoot, jobs } from '../../web/scripts/lib.mjs';
import { extent } from '../extent.mjs';
import { add, none } from './counts.mjs';
import { SuiteError, execute, lastLines, minute, results } from './processes.mjs';

// Ends a file after its last test, even if a failed test left a worker or a server open.
const [major, minor] = process.versions.node.split('.').map(Number);
const forceExit = major > 20 || (major === 20 && minor >= 14) ? ['--test-force-exit'] : [];

const reporters = [
  '--test-reporter=tap',
  '--test-reporter-destination=stdout',
  `--test-reporter=${new URL('running.mjs', import.meta.url)}`,
  '--test-reporter-destination=stderr',
];

const matches = (text, pattern) => [...text.matchAll(pattern)];

/** Counts of a report; of its top-level tests if it has no summary. */
function countTap(text) {
  // The last one: a test may have printed something.
  const number = (name) =>
    Number(matches(text, new RegExp(`^# ${name} (\\d+)$`, 'gm')).at(-1)?.[1] ?? NaN);
  const count = {
    passed: number('pass'),
    failed: number('fail') + number('cancelled'),
    skipped: number('skipped') + number('todo'),
  };
  if (!Number.isNaN(count.passed)) return count;
  return {
    ...none(),
    passed: matches(text, /^ok \d+ /gm).length,
    failed: matches(text, /^not ok \d+ /gm).length,
  };
}

/** The test that was running when the report ended: the last one that began, with its parents. */
export function unfinished(text) {
  const open = [];
  for (const [, indent, name] of matches(text, /^# running: ( *)(.*)$/gm)) {
    open.length = Math.min(open.length, indent.length / 4);
    open.push(name);
  }
  return open.join(' > ');
}

/**
 * Runs one file. At its limit, or when `stop` is aborted, it is killed with everything that it
 * started, and counts as failed. Resolves to its counts, report and seconds of processor time.
 */
export async function nodeFile(file, options) {
  const args = [...forceExit, ...reporters, file]; // without --test, which would start another process
  const { code, stopped, output, cpuSeconds } = await execute(process.execPath, args, options);
  const name = relative(inRoot(), file);
  const count = countTap(output);
  if (stopped) {
    count.failed++;
    const during = unfinished(output) || 'the file itself';
    count.details = `${name}: did not end, stopped in: ${during}\n${lastLines(output, 30)}`;
  } else if (code !== 0) {
    count.failed ||= 1;
    const failures = matches(output, /^( *)not ok [\s\S]*?^\1  \.\.\.$/gm);
    const texts = failures.map(([text]) => lastLines(text, 30));
    count.details = `${name}:\n${texts.join('\n') || lastLines(output, 60)}`;
  }
  return { count, output, name, cpuSeconds };
}

/**
 * Runs a whole directory, two files at a time, since they spend much time waiting for browsers and
 * servers. `timeoutMs` is for each file.
 */
export async function nodeTests(folder, { env = {}, timeoutMs = extent(12, 60) * minute } = {}) {
  const files = existsSync(inRoot('tests', folder))
    ? readdirSync(inRoot('tests', folder))
        .filter((f) => f.endsWith('.test.mjs'))
        .sort()
    : [];
  if (files.length === 0) throw new SuiteError(`no tests in tests/${folder}`);
  const runs = await concurrently(
    files.map((f) => () => nodeFile(inRoot('tests', folder, f), { env, timeoutMs })),
    Math.min(jobs, 2),
  );
  writeFileSync(
    join(results, `${folder.replaceAll('/', '-')}.tap`),
    runs.map(({ output }) => output).join('\n'),
  );
  writeFileSync(
    join(results, `${folder.replaceAll('/', '-')}.seconds.json`),
    JSON.stringify(Object.fromEntries(runs.map(({ name, cpuSeconds }) => [name, cpuSeconds]))),
  );
  return runs.map(({ count }) => count).reduce(add, none());
}
