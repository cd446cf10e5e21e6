// Runs the node:test files of a directory of tests/ and counts their results.
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inRoot, jobs } from '../../web/scripts/lib.mjs';
import { extent } from '../extent.mjs';
import { SuiteError, execute, lastLines, minute, results } from './processes.mjs';

function countTap(text) {
  const number = (name) => Number(new RegExp(`^# ${name} (\\d+)$`, 'm').exec(text)?.[1] ?? NaN);
  return {
    passed: number('pass'),
    failed: number('fail') + number('cancelled'),
    skipped: number('skipped') + number('todo'),
  };
}

/**
 * Runs a whole directory, two files at a time, since they spend much time waiting for browsers and
 * servers.
 */
export async function nodeTests(folder, { env = {}, timeoutMs = extent(20, 90) * minute } = {}) {
  const files = existsSync(inRoot('tests', folder))
    ? readdirSync(inRoot('tests', folder))
        .filter((f) => f.endsWith('.test.mjs'))
        .sort()
    : [];
  if (files.length === 0) throw new SuiteError(`no tests in tests/${folder}`);
  const args = [
    '--test',
    `--test-concurrency=${Math.min(jobs, 2)}`,
    '--test-reporter=tap',
    ...files.map((f) => inRoot('tests', folder, f)),
  ];
  const { code, output } = await execute(process.execPath, args, { env, timeoutMs });
  writeFileSync(join(results, `${folder.replaceAll('/', '-')}.tap`), output);
  const count = countTap(output);
  if (Number.isNaN(count.passed)) throw new SuiteError(lastLines(output, 60));
  if (code !== 0) {
    count.failed ||= 1;
    const notOk = /^( *)not ok [\s\S]*?^\1  \.\.\.$/gm;
    const failures = [...output.matchAll(notOk)].map((m) => lastLines(m[0], 30));
    count.details = failures.join('\n') || lastLines(output, 60);
  }
  return count;
}
