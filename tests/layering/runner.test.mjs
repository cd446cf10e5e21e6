// Checks that a test that hangs, or leaves something open, costs the runner that one file.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { nodeFile, unfinished } from '../runner/node.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-runner-'));
after(() => rmSync(folder, { recursive: true }));

function file(name, lines) {
  const path = join(folder, name);
  writeFileSync(
    path,
    [
      "import assert from 'node:assert/strict';",
      "import { describe, test } from 'node:test';",
      "import { Worker } from 'node:worker_threads';",
      ...lines,
    ].join('\n'),
  );
  return path;
}
// Node passes it to the files that it starts, where it would make this file's tests theirs.
const env = { NODE_TEST_CONTEXT: undefined };

test('a failed test that leaves a worker open ends its file', async () => {
  const path = file('worker.mjs', [
    "test('passes', () => {});",
    "test('fails', () => {",
    "  new Worker('setInterval(() => {}, 1000)', { eval: true });",
    '  assert.equal(1, 2);',
    '});',
  ]);
  const { count } = await nodeFile(path, { env });
  assert.deepEqual([count.passed, count.failed], [1, 1]);
  assert.match(count.details, /worker\.mjs:\nnot ok 2 - fails/);
});

test('a file that hangs is killed with what it started, and its test is named', async () => {
  const started = join(folder, 'pid');
  const path = file('hangs.mjs', [
    "import { spawn } from 'node:child_process';",
    "import { renameSync, writeFileSync } from 'node:fs';",
    "test('passes', () => {});",
    "describe('outer', () => {",
    "  test('inner', async () => {",
    "    const { pid } = spawn('sleep', ['1000']);",
    `    setTimeout(() => {`,
    `      writeFileSync('${started}.part', String(pid));`,
    `      renameSync('${started}.part', '${started}');`,
    `    }, 200);`,
    '    await new Promise(() => {});',
    '  });',
    '});',
  ]);
  const stop = new AbortController();
  const run = nodeFile(path, { env, stop: stop.signal });
  while (!existsSync(started)) await sleep(20);
  stop.abort();
  const { count } = await run;
  assert.deepEqual([count.passed, count.failed], [1, 1]);
  assert.match(count.details, /hangs\.mjs: did not end, stopped in: outer > inner\n/);
  const pid = Number(readFileSync(started, 'utf8'));
  // A killed process remains a zombie until its parent's successor collects it.
  const alive = () =>
    existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  for (let tries = 0; alive() && tries < 500; ++tries) await sleep(10);
  assert.ok(!alive());
});

test('a file that ends without a report counts as one failure', async () => {
  const { count } = await nodeFile(file('dies.mjs', ['process.exit(3);']), { env });
  assert.deepEqual([count.passed, count.failed], [0, 1]);
});

test('unfinished() names the last test that began, with its parents', () => {
  const report = ['# running: a', 'ok 1 - a', '# running: b', '# running:     c'];
  assert.equal(unfinished(report.join('\n')), 'b > c');
  assert.equal(unfinished(report.slice(0, 3).join('\n')), 'b');
  assert.equal(unfinished(''), '');
});
