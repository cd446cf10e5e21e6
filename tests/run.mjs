// npm test runs the short suite from a fresh clone, npm run test:all the long one. Each suite
// prints one line; the last line of all is "N passed, N failed". GoogleTest and node:test results
// are counted one by one. A suite that cannot be built or run counts as one failure, and its output
// is shown.
//   npm test                     the short suite
//   npm test -- native web       only these suites
//   npm test -- --list           their names
//   npm run test:all             all tests of all suites; also with names
import { mkdirSync } from 'node:fs';
import { setup } from '../web/scripts/setup.mjs';

const argv = process.argv.slice(2);
process.env.SLUICE_CACHE ??= 'none'; // not the user's
if (argv.includes('--all')) process.env.SLUICE_TEST_ALL = '1'; // before any module reads it
const { all } = await import('./extent.mjs');
const { built, startBuilds } = await import('./runner/builds.mjs');
const { add, none } = await import('./runner/counts.mjs');
const { SuiteError, measured, results } = await import('./runner/processes.mjs');
const { longSuites, suites } = await import('./runner/suites.mjs');

async function runSuite(name) {
  const start = Date.now();
  let compiled = 0;
  let spent;
  try {
    compiled = await built(name);
    spent = await measured(suites[name]);
  } catch (e) {
    spent = {
      cpu: 0,
      wall: 0,
      value: { ...none(), failed: 1, details: e instanceof SuiteError ? e.message : e.stack },
    };
  }
  const { value: count, cpu } = spent;
  if (count.details) console.log(count.details.trimEnd());
  const skipped = count.skipped ? `, ${count.skipped} skipped` : '';
  const seconds = (n) => `${n.toFixed(0)} s`;
  const parts = [
    ...(compiled ? [`compiled ${seconds(compiled)}`] : []),
    `ran ${seconds(cpu)} of processor time`,
  ];
  console.log(
    `${name.padEnd(10)} ${count.passed} passed, ${count.failed} failed${skipped}  (${seconds((Date.now() - start) / 1000)}: ${parts.join(', ')})`,
  );
  return count;
}

async function main(names) {
  if (argv.includes('--list')) return void console.log(Object.keys(suites).join('\n'));
  const unknown = names.filter((name) => !suites[name]);
  if (unknown.length)
    throw new Error(`no suite '${unknown[0]}'; there are ${Object.keys(suites).join(', ')}`);
  const chosen = names.length
    ? names
    : Object.keys(suites).filter((suite) => all || !longSuites.includes(suite));
  setup(chosen.includes('windows') ? 'testWindows' : 'test');
  mkdirSync(results, { recursive: true });
  const total = none();
  startBuilds(chosen);
  for (const name of chosen) add(total, { ...(await runSuite(name)), details: undefined });
  if (total.skipped) console.log(`${total.skipped} skipped`);
  console.log(`${total.passed} passed, ${total.failed} failed`);
  process.exitCode = total.failed ? 1 : 0;
}

main(argv.filter((name) => !name.startsWith('--'))).catch((e) => {
  console.error(`test: ${e.message}`);
  console.log('0 passed, 1 failed');
  process.exitCode = 1;
});
