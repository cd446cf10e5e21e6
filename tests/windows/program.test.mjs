// sluice.exe under wine against the native program: the same output and files, byte for byte.
// Features that the Windows build lacks are errors that name them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { wine, wineEnvironment } from './wine.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const model = 'examples/models/sluice-tales-Q8_0.gguf';
const folder = mkdtempSync(join(tmpdir(), 'sluice-windows-'));
after(() => rmSync(folder, { recursive: true }));

const timeout = 120_000; // a hanging program counts as failed
function call(program, args, input, env) {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd: root,
    input,
    timeout,
    killSignal: 'SIGKILL',
    env: { ...process.env, ...env },
  });
  assert.ifError(error);
  return { status, stdout: stdout.toString(), stderr: stderr.toString() };
}
const onWindows = (args, input = '') =>
  call(wine(), [join(root, 'build/windows-tests/sluice.exe'), ...args], input, wineEnvironment());
const here = (args, input = '') => call(join(root, 'build/native/sluice'), args, input);

/** Checks that both programs succeed and print the same; returns the output. */
function same(args, input) {
  const expected = here(args, input);
  assert.equal(expected.status, 0, expected.stderr);
  const got = onWindows(args, input);
  assert.equal(got.status, 0, got.stderr);
  assert.equal(got.stdout, expected.stdout);
  return got.stdout;
}

test('run prints the same text, also within a budget', () => {
  const args = ['run', model, '--raw', '-p', 'Once upon a time', '-n', '60', '--temp', '0'];
  const story = same(args);
  assert.match(story, /^Once upon a time.{100}/s);
  assert.doesNotMatch(story, /[\r\x1b]/);
  assert.equal(same([...args, '--memory-budget', '1000k', '--threads', '2']), story);
});

test('info prints the same plan and types', () => {
  const facts = JSON.parse(
    onWindows(['info', model, '--json', '--memory-budget', '1000k', '--threads', '2']).stdout,
  );
  const ours = JSON.parse(
    here(['info', model, '--json', '--memory-budget', '1000k', '--threads', '2']).stdout,
  );
  assert.deepEqual(facts.plan, ours.plan);
  assert.deepEqual(facts.types, ours.types);
});

test('file names, prompts and output are UTF-8', () => {
  const named = join(folder, 'Märchen 物語 🦊.gguf');
  copyFileSync(model, named);
  const text = same([
    'run',
    named,
    '--raw',
    '-p',
    'Es war einmal — 昔々 🦊',
    '-n',
    '3',
    '--temp',
    '0',
  ]);
  assert.ok(text.startsWith('Es war einmal — 昔々 🦊'));
  const list = join(folder, 'Wörter.txt');
  writeFileSync(list, 'Once upon a time, naïvely');
  same(['tokenize', named, '--file', list]);
  const { status, stderr } = onWindows(['info', join(folder, 'fehlt — 無.gguf')]);
  assert.equal(status, 1);
  assert.match(stderr, /fehlt — 無\.gguf.*\[NOT_FOUND\]/);
});

test('paths may have backslashes', () => {
  const models = ['hf\\gemma3\\config.json', 'hf\\llama3', 'hf/llama3\\'].map(
    (name) => `tests\\data\\${name}`,
  );
  for (const path of models) {
    const { status, stdout, stderr } = onWindows(['info', path, '--json']);
    assert.equal(status, 0, stderr);
    assert.deepEqual(
      JSON.parse(stdout).types,
      JSON.parse(here(['info', path.replaceAll('\\', '/'), '--json']).stdout).types,
    );
  }
});

test('convert writes the same file, can replace one, and leaves no temporary file', () => {
  const out = join(folder, 'converted');
  const files = ['here.gguf', 'there — 其処.gguf'].map((name) => join(folder, name));
  writeFileSync(files[1], 'another file');
  [here, onWindows].forEach((program, i) => {
    const { status, stderr } = program([
      'convert',
      '--force',
      model,
      files[i],
      '--type',
      'q4_k_m',
      '--threads',
      '2',
    ]);
    assert.equal(status, 0, stderr);
  });
  assert.ok(readFileSync(files[0]).equals(readFileSync(files[1])));
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.endsWith('.part')),
    [],
  );
  const { status, stderr } = onWindows([
    'convert',
    model,
    join(out, 'nowhere.gguf'),
    '--type',
    'q8_0',
  ]);
  assert.equal(status, 1);
  assert.match(stderr, /cannot write .* \[IO\]/);
});

test('chat reads lines from a pipe', () => {
  const { status, stdout, stderr } = onWindows(
    ['chat', model, '-n', '4', '--temp', '0'],
    'Hello\r\n/stats\r\n/quit\r\n',
  );
  assert.equal(status, 0, stderr);
  assert.match(stdout, /2 messages, \d+ of \d+ tokens/);
});

test('the prompt cache saves a prompt once', () => {
  const args = [
    'run',
    '--raw',
    model,
    '-p',
    readFileSync(join(root, 'LICENSE'), 'utf8').slice(0, 300),
    '-n',
    '4',
    '--temp',
    '0',
    '--json',
    '--prompt-cache-dir',
    join(folder, 'Ansagen'),
    '--prompt-cache-size',
    '64M',
  ];
  const [first, second] = [onWindows(args), onWindows(args)].map(({ status, stdout, stderr }) => {
    assert.equal(status, 0, stderr);
    return JSON.parse(stdout);
  });
  assert.equal(second.text, first.text);
  assert.match(readdirSync(join(folder, 'Ansagen')).join(), /^[0-9a-f]{16}\.session$/);
});

test('an error has one sentence, a code and an exit status', () => {
  const cases = [
    [['run', model, '--memory-budget', '10k', '-p', 'a'], 1, /smallest.*\[BUDGET_TOO_SMALL\]/],
    [['info', 'LICENSE'], 1, /\[[A-Z_]+\]/],
    [['info', model, '--no-such-option'], 2, /no-such-option.*\[INVALID_ARGUMENT\]/],
    // Features that this build lacks.
    [['serve', model, '--port', '0'], 1, /this build has no server.*\[INVALID_ARGUMENT\]/],
    [['list', '--cache-dir', 'x'], 1, /this build has no HTTP support.*\[INVALID_ARGUMENT\]/],
    [
      ['info', 'https://example.org/model.gguf'],
      1,
      /this build supports local files only \[INVALID_ARGUMENT\]/,
    ],
  ];
  for (const [args, expected, sentence] of cases) {
    const { status, stdout, stderr } = onWindows(args);
    assert.equal(status, expected, `${args.join(' ')}: ${stderr}`);
    assert.equal(stdout, '');
    assert.match(stderr, new RegExp(`^sluice: .*${sentence.source}\n$`));
  }
});
