// The terminal and C sections of docs/quickstart.md: every command is run, and prints what the page
// shows. Needs build/native with all its targets.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { section, take } from '../quickstart.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-quickstart-'));
const env = { ...process.env, HOME: join(folder, 'home') };
const sh = (script, { cwd = join(folder, 'sluice'), input = '' } = {}) =>
  execFileSync('bash', ['-euc', script], { cwd, env, input, encoding: 'utf8' });

before(() => {
  mkdirSync(env.HOME);
  mkdirSync(join(folder, 'sluice'));
  for (const name of ['build', 'examples']) symlinkSync(inRoot(name), join(folder, 'sluice', name));
});
after(() => rmSync(folder, { recursive: true, force: true }));

test('the commands of the terminal section print what it shows', async () => {
  const blocks = section('A conversation in the terminal');
  take(blocks, 'npm run build -- native');
  const settings = take(blocks, 'export PATH');

  const chat = take(blocks, 'sluice chat $M');
  const lines = [...take(blocks, '/help').matchAll(/^> (.*)$/gm)].map(([, line]) => line);
  assert.equal(lines.length, 2);
  const reply = sh(settings + chat, { input: `${lines.join('\n')}\n` });
  assert.ok(reply.length > 40, reply);

  const plain = take(blocks, 'sluice run $M');
  const spelled = take(blocks, 'sluice run -m');
  const expected = take(blocks, 'Once upon a time, ');
  assert.equal(sh(settings + plain), expected);
  assert.equal(sh(settings + spelled), expected);
  assert.equal(sh(`${settings}${plain.trim()} --memory-budget 1200k`), expected);

  const info = sh(settings + take(blocks, 'sluice info'));
  const labels = take(blocks, 'memory plan').match(/^(memory plan.*|  \w.*?(?=  ))/gm);
  assert.equal(labels.length, 5);
  for (const label of labels) assert.ok(info.includes(`\n${label}`), `${label}:\n${info}`);

  await serveAndAsk(settings, blocks);
  take(blocks, 'https://huggingface.co/'); // needs a network
  assert.deepEqual(blocks, []);
});

/** Runs the server of the section at a free port, and its curl command. */
async function serveAndAsk(settings, blocks) {
  const command = `${settings}exec ${take(blocks, 'sluice serve').trim()} --port 0`;
  const options = { cwd: join(folder, 'sluice'), env, stdio: ['ignore', 'pipe', 'pipe'] };
  const server = spawn('bash', ['-euc', command], options);
  let printed = '';
  const url = await new Promise((resolve, reject) => {
    for (const stream of [server.stdout, server.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        printed += text;
        const found = /http:\/\/127.0.0.1:\d+/.exec(printed);
        if (found) resolve(found[0]);
      });
    }
    server.once('exit', () => reject(new Error(printed)));
  });
  try {
    const shown = take(blocks, 'serving').trim();
    assert.equal(printed.split('\n')[0], shown.replace('http://127.0.0.1:8080', url));
    const answer = JSON.parse(sh(take(blocks, 'curl').replace('localhost:8080', url)));
    assert.ok(answer.choices[0].message.content.length > 20, JSON.stringify(answer));
  } finally {
    server.kill('SIGINT');
    await once(server, 'exit');
  }
}

test('the commands of the C section lead to a program that prints what it shows', () => {
  const blocks = section('A program in C');
  take(blocks, 'npm run build -- native');
  sh(take(blocks, 'cmake --install'));
  const cwd = join(folder, 'hello');
  writeFileSync(join(cwd, 'hello.c'), take(blocks, 'int main'));
  const lists = take(blocks, 'find_package');
  const compile = take(blocks, 'pkg-config');
  const build = take(blocks, 'cmake --build');
  const expected = take(blocks, 'Once upon a time, ');
  assert.deepEqual(blocks, []);

  assert.equal(sh(compile.replace('cc ', 'cc -Wall -Wextra -Werror '), { cwd }), expected);
  // A C project links the static library too, although CMake then adds no C++ library by itself.
  for (const library of ['sluice::sluice', 'sluice::static']) {
    writeFileSync(join(cwd, 'CMakeLists.txt'), lists.replace('sluice::sluice', library));
    assert.ok(sh(build, { cwd }).endsWith(expected), library);
  }
});
