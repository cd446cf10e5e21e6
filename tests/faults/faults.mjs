// Mutation testing of the short suite: applies each fault of the list to a git worktree and runs
// suites there until one fails. README.md beside this file explains the results.
//   node tests/faults/faults.mjs                        all that have no result yet
//   node tests/faults/faults.mjs --only NAME,NAME       only these
//   node tests/faults/faults.mjs --suites unit,native   only these suites
//   node tests/faults/faults.mjs --again                also those that have a result
//   node tests/faults/faults.mjs --no-baseline          assumes that the suites pass without a fault
//   node tests/faults/faults.mjs --list | --markdown    prints the faults, or the results so far; runs nothing
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { capture, inRoot, root, write } from '../../web/scripts/lib.mjs';
import { faults, occurrences, suitesOf } from './list.mjs';

const folder = inRoot('build', 'faults');
const tree = join(folder, 'tree');
const resultsFile = join(folder, 'results.json');
const minute = 60_000;
// The time limit of a suite is three times what it took without a fault, but a rebuild may take
// longer than that run.
const minLimitMs = 20 * minute;
const firstLimitMs = 120 * minute;

const known = {
  only: { type: 'string' },
  suites: { type: 'string' },
  again: { type: 'boolean' },
  'no-baseline': { type: 'boolean' },
  list: { type: 'boolean' },
  markdown: { type: 'boolean' },
};
let options;
try {
  options = parseArgs({ options: known }).values;
} catch (error) {
  console.error(`faults: ${error.message}`);
  process.exit(2);
}

// --- results -------------------------------------------------------------------------------------

/** { baseline: { suite: seconds }, faults: { name: result } } */
const results = existsSync(resultsFile)
  ? JSON.parse(readFileSync(resultsFile, 'utf8'))
  : { baseline: {}, faults: {} };
const save = () => write(resultsFile, `${JSON.stringify(results, null, 2)}\n`);

/** Identifies the change itself, so that a result stays valid while the fault is the same. */
const keyOf = (fault) =>
  createHash('sha256')
    .update(JSON.stringify([fault.file, fault.old, fault.new]))
    .digest('hex')
    .slice(0, 16);

function resultOf(fault) {
  const result = results.faults[fault.name];
  return result?.key === keyOf(fault) ? result : undefined;
}

const wantedSuites = (fault) =>
  suitesOf(fault).filter((suite) => !options.suites || options.suites.split(',').includes(suite));

/** A caught fault is done; one that slipped through is done when all of its suites have run. */
function isDone(fault) {
  const { outcome, ran } = resultOf(fault) ?? {};
  return (
    outcome === 'caught' ||
    (outcome === 'slipped' && wantedSuites(fault).every((suite) => ran.includes(suite)))
  );
}

const isGood = (fault) => resultOf(fault)?.outcome === 'caught';

function caughtBy(fault) {
  const { outcome, suite, tests, ran } = resultOf(fault) ?? {};
  if (outcome === 'slipped') return `SLIPPED through ${ran.join(', ')}`;
  if (outcome !== 'caught') return outcome?.toUpperCase() ?? 'not tried';
  const others = tests.length > 1 ? ` and ${tests.length - 1} more` : '';
  return `${suite}: ${tests[0] ?? 'unknown test'}${others}`;
}

function printTable(list) {
  const width = Math.max(...list.map(({ name }) => name.length));
  for (const fault of list) {
    console.log(
      `${fault.name.padEnd(width)}  ${`${resultOf(fault)?.seconds ?? ''}`.padStart(6)} s  ${caughtBy(fault)}`,
    );
  }
  console.log(`${list.filter(isGood).length} of ${list.length} caught`);
}

function printMarkdown(list) {
  console.log('| Fault | What is wrong | Caught by | Seconds |\n|---|---|---|---:|');
  const cell = (text) => text.replace(/[|<]/g, '\\$&');
  for (const fault of list) {
    console.log(
      `| ${fault.name} | ${cell(fault.why)} | ${cell(caughtBy(fault))} | ${resultOf(fault)?.seconds ?? ''} |`,
    );
  }
}

// --- the worktree --------------------------------------------------------------------------------

async function git(...args) {
  const { code, output } = await capture('git', args);
  if (code !== 0) throw new Error(`git ${args.join(' ')}\n${output}`);
  return output.trim();
}

function link(target, path) {
  if (existsSync(target) && !existsSync(path)) symlinkSync(realpathSync(target), path);
}

/** Checks HEAD out, without changes that an earlier run may have left. Builds stay. */
async function prepareTree() {
  mkdirSync(folder, { recursive: true });
  const head = await git('rev-parse', 'HEAD');
  if (existsSync(join(tree, '.git'))) {
    await git('-C', tree, 'checkout', '--quiet', '--force', '--detach', head);
  } else {
    await git('worktree', 'prune');
    await git('worktree', 'add', '--quiet', '--detach', tree, head);
  }
  link(inRoot('node_modules'), join(tree, 'node_modules'));
  // Tests look for shared/ beside their checkout.
  link(join(root, '..', 'shared'), join(folder, 'shared'));
}

// --- suites --------------------------------------------------------------------------------------

let running; // the suite's process, a group leader
function stop(signal) {
  try {
    if (running) process.kill(-running.pid, signal);
  } catch {
    // The process has exited.
  }
}
process.on('exit', () => stop('SIGTERM'));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));

/**
 * Runs one suite in the worktree: { ok, output, seconds, start }. A suite that exceeds the limit is
 * stopped and counts as failed.
 */
function runSuite(suite, limitMs) {
  const start = Date.now();
  return new Promise((resolve) => {
    let output = '';
    running = spawn(process.execPath, ['tests/run.mjs', suite], {
      cwd: tree,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [running.stdout, running.stderr])
      stream.setEncoding('utf8').on('data', (text) => (output += text));
    const timers = [];
    timers.push(
      setTimeout(() => {
        output += `\n${suite}: no end after ${limitMs / minute} minutes, stopped\n`;
        stop('SIGTERM'); // it stops its own children
        timers.push(setTimeout(() => stop('SIGKILL'), 10_000));
      }, limitMs),
    );
    const end = (code) => {
      timers.forEach(clearTimeout);
      running = undefined;
      resolve({ ok: code === 0, output, seconds: Math.round((Date.now() - start) / 1000), start });
    };
    running.on('close', end);
    // A process that the suite left behind may keep the pipes open.
    running.on('exit', (code) => timers.push(setTimeout(() => end(code), 5000)));
    running.on('error', (error) => {
      output += `${error.message}\n`;
      end(1);
    });
  });
}

/** Output of compilers and bundlers that failed. */
const noCompile =
  /^ninja: build stopped|\.(?:cpp|h|inc):\d+:\d+: (?:fatal )?error: |\berror TS\d+: |✘ \[ERROR\]/m;

const tapFailures = (text) =>
  [...text.matchAll(/^ *not ok \d+ - (.*?)(?: # .*)?$/gm)].map(([, name]) => name);

/**
 * Failed tests in the reports written since `since` (ms). Reports are complete even where the
 * output is cut.
 */
function reportedFailures(since) {
  const reports = join(tree, 'build', 'test-results');
  const names = existsSync(reports)
    ? readdirSync(reports).filter((name) => statSync(join(reports, name)).mtimeMs >= since)
    : [];
  return names.flatMap((name) => {
    const text = readFileSync(join(reports, name), 'utf8');
    if (name.endsWith('.tap')) return tapFailures(text);
    if (!name.endsWith('.json')) return [];
    try {
      return JSON.parse(text).testsuites.flatMap(({ testsuite }) =>
        testsuite
          .filter(({ failures }) => failures?.length)
          .map((test) => `${test.classname}.${test.name}`),
      );
    } catch {
      return []; // the program died while it wrote
    }
  });
}

function failedTests({ output, start }) {
  const found = [
    ...reportedFailures(start),
    ...[...output.matchAll(/^\[  FAILED  \] (\S+?\.\S+?)(?:,| \(|$)/gm)].map(([, name]) => name),
    ...tapFailures(output),
    ...[
      ...output.matchAll(
        /^(\S+: died \(.*?\)|\w+_fuzz_regression(?=:)|.*no end after .*, stopped)/gm,
      ),
    ].map(([line]) => line),
  ];
  return [...new Set(found.map((name) => name.replaceAll(`${tree}/`, '')))];
}

async function checkSuites(suites) {
  const { output } = await capture(process.execPath, ['tests/run.mjs', '--list'], { cwd: tree });
  const missing = suites.filter((suite) => !output.split('\n').includes(suite));
  if (missing.length)
    throw new Error(
      `tests/run.mjs at HEAD has no suite '${missing[0]}'; it has ${output.trim().split('\n').join(', ')}`,
    );
}

/** Builds what the suites need and checks that they pass. */
async function runBaseline(suites) {
  for (const suite of suites) {
    console.log(`${suite} without a fault`);
    const { ok, output, seconds } = await runSuite(suite, firstLimitMs);
    if (!ok)
      throw new Error(
        `${suite} fails without a fault:\n${output.split('\n').slice(-60).join('\n')}`,
      );
    results.baseline[suite] = seconds;
    save();
  }
}

const limitOf = (suite) =>
  Math.max(minLimitMs, 3000 * (results.baseline[suite] ?? firstLimitMs / 3000));

// --- faults --------------------------------------------------------------------------------------

/** Runs the suites with the fault applied, up to the first that fails. */
async function tryFault(fault) {
  const result = { key: keyOf(fault), outcome: 'slipped', seconds: 0, ran: [], tests: [] };
  const path = join(tree, fault.file);
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  if (occurrences(text, fault.old) !== 1) return { ...result, outcome: 'not in HEAD once' };
  writeFileSync(
    path,
    text.replace(fault.old, () => fault.new),
  );
  try {
    for (const suite of wantedSuites(fault)) {
      const run = await runSuite(suite, limitOf(suite));
      write(join(folder, 'logs', `${fault.name}.${suite}.txt`), run.output);
      result.seconds += run.seconds;
      result.ran.push(suite);
      if (run.ok) continue;
      if (noCompile.test(run.output)) return { ...result, outcome: 'does not compile', suite };
      return { ...result, outcome: 'caught', suite, tests: failedTests(run) };
    }
    return result;
  } finally {
    writeFileSync(path, text); // newer than the objects built with the fault
  }
}

async function main() {
  const names = options.only?.split(',');
  const unknown = names?.find((name) => !faults.some((fault) => fault.name === name));
  if (unknown) throw new Error(`there is no fault '${unknown}'; --list prints them`);
  const chosen = faults.filter(
    (fault) => (!names || names.includes(fault.name)) && wantedSuites(fault).length > 0,
  );
  if (chosen.length === 0) throw new Error('these suites try none of the chosen faults');
  if (options.markdown) return printMarkdown(chosen);
  if (options.list) {
    for (const fault of chosen)
      console.log(
        `${fault.name}\n    ${fault.file} (${suitesOf(fault).join(', ')})\n    ${fault.why}`,
      );
    return;
  }
  const todo = chosen.filter((fault) => options.again || !isDone(fault));
  if (todo.length > 0) {
    await prepareTree();
    const used = new Set(todo.flatMap(wantedSuites));
    const suites = ['unit', 'native', 'web', 'package', 'serve', ...used].filter(
      (suite, i, all) => used.has(suite) && all.indexOf(suite) === i,
    );
    await checkSuites(suites);
    if (!options['no-baseline']) await runBaseline(suites);
  }
  for (const [i, fault] of todo.entries()) {
    console.log(`${i + 1}/${todo.length} ${fault.name}`);
    results.faults[fault.name] = await tryFault(fault);
    save();
    console.log(`    ${caughtBy(fault)}`);
  }
  printTable(chosen);
  process.exitCode = chosen.every(isGood) ? 0 : 1;
}

main().catch((error) => {
  console.error(`faults: ${error.message}`);
  process.exitCode = 2;
});
