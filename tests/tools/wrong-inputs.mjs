// Runs the table of wrong inputs (wrong-inputs.txt), which says what its rows mean.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Worker } from 'node:worker_threads';
import { inRoot } from '../../web/scripts/lib.mjs';

/** A message of the table, in which "…" is any text. */
function pattern(message) {
  const parts = message.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^sluice: ${parts.join('.+')}\n$`);
}

/** The rows of the table for a program: arguments, exit status, message. */
function read(kind) {
  const text = readFileSync(new URL('wrong-inputs.txt', import.meta.url), 'utf8');
  const rows = [];
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const [, status, message] = /^ {2}(\d) (.*)$/.exec(line) ?? [];
    const [, other] = /^ {2}node (.*)$/.exec(line) ?? [];
    const row = rows.at(-1);
    if (message) Object.assign(row, { status: Number(status), message });
    else if (other) row.node = other;
    else rows.push({ args: line, node: undefined });
  }
  if (kind === 'native') return rows;
  return rows
    .filter(({ node }) => node !== '-')
    .map((row) => ({ ...row, message: row.node ?? forNode(row.message) }));
}

/** The arguments of a row. */
const split = (text) =>
  [...text.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain);

/** The files and servers that the rows name. */
async function prepare() {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-wrong-'));
  const model = inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf');
  const bytes = readFileSync(model);
  mkdirSync(join(folder, 'folder'));
  for (const [name, content] of Object.entries({
    'empty.gguf': '',
    'page.gguf': '<!DOCTYPE html><html><body>Not found</body></html>',
    'half.gguf': bytes.subarray(0, 200000),
    'head.gguf': bytes.subarray(0, 500),
    'schema.json': '{"type": "objec',
    'g.gbnf': 'root ::= "a',
    'out.gguf': 'kept',
    'long.txt': 'a'.repeat(10000),
    text: 'Once',
  }))
    writeFileSync(join(folder, name), content);
  const server = createServer((_, response) => response.writeHead(404).end());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address();
  const values = {
    $M: model,
    $B: inRoot('tests', 'data', 'families', 'llama-biases.gguf'),
    $F: folder,
    $U: `http://127.0.0.1:${port}`,
    $P: String(port),
    $W: process.cwd(),
  };
  const filled = (text) => text.replace(/\$[MBFUPW]/g, (name) => values[name]);
  const close = () => {
    server.close();
    rmSync(folder, { recursive: true });
  };
  return { filled, folder, close };
}

/** What `npx sluice-llm` says where the native program says `message`. */
const forNode = (message) =>
  message
    .replace(/sluice (\w+ )?--help/, 'sluice-llm --help')
    .replace(/\bsluice (?=run|chat|serve|has)/g, 'sluice-llm ');

const env = { ...process.env, SLUICE_CACHE: 'none' };

/** The exit status and output of a process or thread, whose last event is `end`. */
async function outputOf(running, end) {
  const [[status], stdout, stderr] = await Promise.all([
    once(running, end),
    text(running.stdout),
    text(running.stderr),
  ]);
  return { status, stdout, stderr };
}

function run(command, args) {
  const stdio = ['ignore', 'pipe', 'pipe'];
  return outputOf(spawn(command[0], [...command.slice(1), ...args], { env, stdio }), 'close');
}

/** A program for Node in a thread, which takes half of a process's time. */
const runInThread = ([, file], argv) =>
  outputOf(new Worker(file, { argv, env, stdout: true, stderr: true }), 'exit');

/** Tests all rows with a program. `kind`: 'native' or 'node'. */
export function testRows(test, kind, command) {
  const start = kind === 'node' ? runInThread : run;
  test('each wrong input is answered by a whole sentence', async (t) => {
    const { filled, folder, close } = await prepare();
    t.after(close);
    const rows = read(kind);
    assert.ok(rows.length > 60, `${rows.length} rows`);
    for (const { args, status, message } of rows) {
      const ran = await start(command, split(args).map(filled));
      assert.match(ran.stderr, pattern(filled(message)), args);
      assert.deepEqual([ran.status, ran.stdout], [status, ''], args);
    }
    assert.equal(readFileSync(join(folder, 'out.gguf'), 'utf8'), 'kept');
  });
}

/** Tests that output which cannot be written is an error, and a closed pipe ends the program. */
export function testLostOutput(test, command) {
  const model = inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf');
  const line = [...command, 'run', model, 'x', '--quiet'].map((word) => `'${word}'`).join(' ');
  test('output that is lost is an error', async (t) => {
    const full = await run(['sh'], ['-c', `${line} >/dev/full`]);
    if (/dev.full/.test(full.stderr)) return t.skip('no /dev/full');
    assert.deepEqual(full, {
      status: 1,
      stdout: '',
      stderr: 'sluice: cannot write to standard output [IO]\n',
    });
  });
  test('a closed pipe ends the program in silence', async () => {
    const [node, ...args] = [...command, 'run', model, '-', '--quiet'];
    const child = spawn(node, args, { stdio: 'pipe' });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text));
    child.stdout.destroy();
    await once(child.stdout, 'close');
    child.stdin.end('x'); // only now is there a prompt
    const [status, signal] = await once(child, 'close');
    assert.ok(signal === 'SIGPIPE' || status === 141, `${status}, ${signal}`);
    assert.equal(stderr, '');
  });
}
