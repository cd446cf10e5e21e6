// Prints what takes longest: files to compile, from Ninja's logs, and tests, from the reports of
// the last run. Files of JavaScript tests are in seconds of processor time, browsers included.
//   node tests/runner/slowest.mjs [N]
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { inRoot } from '../../web/scripts/lib.mjs';
import { results } from './processes.mjs';

const read = (file) => readFileSync(file, 'utf8').split('\n');
const list = (folder) => (existsSync(folder) ? readdirSync(folder) : []);

/** [seconds, name] of each compiled file; the last compilation counts. */
function compiled() {
  const found = new Map();
  for (const preset of list(inRoot('build'))) {
    const log = inRoot('build', preset, '.ninja_log');
    if (!existsSync(log)) continue;
    for (const [start, end, , output] of read(log).map((line) => line.split('\t'))) {
      if (output)
        found.set(
          `${preset}: ${output.replace(/(tests\/)?CMakeFiles\/|\.dir|\.o$/g, '')}`,
          (end - start) / 1000,
        );
    }
  }
  return [...found].map(([name, seconds]) => [seconds, name]);
}

function fromGtest(file) {
  const program = file.replace(/(-\d+)?\.json$/, '');
  return JSON.parse(readFileSync(join(results, file), 'utf8')).testsuites.flatMap((suite) =>
    suite.testsuite.map((t) => [parseFloat(t.time), `${program}: ${suite.name}.${t.name}`]),
  );
}

/** Top-level tests; a describe block counts with all its tests. */
function fromTap(file) {
  const found = [];
  let name;
  for (const line of read(join(results, file))) {
    const start = /^(?:not )?ok \d+ - (.*)$/.exec(line);
    if (start) name = start[1];
    const duration = /^  duration_ms: ([\d.]+)$/.exec(line);
    if (duration && name)
      found.push([Number(duration[1]) / 1000, `${file.replace('.tap', '')}: ${name}`]);
    if (duration) name = undefined;
  }
  return found;
}

function slowest(n) {
  const tests = list(results).flatMap((file) =>
    file.endsWith('.tap')
      ? fromTap(file)
      : file.endsWith('.json') && !file.endsWith('.seconds.json')
        ? fromGtest(file)
        : [],
  );
  const most = (rows) => rows.sort(([a], [b]) => b - a).slice(0, n);
  const testFiles = list(results)
    .filter((file) => file.endsWith('.seconds.json'))
    .flatMap((file) => Object.entries(JSON.parse(readFileSync(join(results, file), 'utf8'))))
    .map(([name, seconds]) => [seconds, name]);
  return { files: most(compiled()), tests: most(tests), testFiles: most(testFiles) };
}

const { files, tests, testFiles } = slowest(Number(process.argv[2] ?? 10));
for (const [title, rows] of [
  ['compiled', files],
  ['tests', tests],
  ['files of JavaScript tests', testFiles],
]) {
  console.log(`${title}, seconds`);
  for (const [seconds, name] of rows) console.log(`${seconds.toFixed(1).padStart(8)}  ${name}`);
}
