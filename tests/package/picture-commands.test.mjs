// Pictures on the command line of the package: `npx sluice-llm run --image` and `/image` in `chat`,
// compared with the same calls of the engine; wrong files, behind which a conversation goes on.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { Engine } from '../../dist/node.js';

const vision = inRoot('..', 'shared', 'fixtures', 'vision');
const skip = !existsSync(vision) && 'no ../shared/fixtures/vision';
const model = join(vision, 'qwen2.5vl.gguf');
const projector = join(vision, 'qwen2.5vl.mmproj.gguf');
const wide = join(vision, 'media', 'wide.png');
const flags = ['-n', '6', '--temp', '0', '--ignore-eos', '--ctx', '512', '--threads', '1'];

let folder;
let engine;
before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), 'sluice-pictures-'));
  engine = await Engine.load(model, { projector, contextLength: 512, threads: 1, cache: 'none' });
});
after(async () => {
  await engine?.dispose();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

const cli = (args, input) =>
  spawnSync(process.execPath, [inRoot('dist', 'cli.js'), ...args], {
    encoding: 'utf8',
    input,
    timeout: 240_000,
  });
const greedy = { maxTokens: 6, temperature: 0, ignoreEos: true };
const image = { type: 'image', image: skip || readFileSync(wide) };
const text = (of) => ({ type: 'text', text: of });
const send = (session, ...content) => session.send({ role: 'user', content }, greedy).text();

test('run places pictures at their marks, others first', { skip }, async () => {
  const run = (...args) => {
    const ran = cli(['run', model, '--json', ...flags, ...args]);
    assert.equal(ran.status, 0, ran.stderr);
    return JSON.parse(ran.stdout);
  };
  const one = await engine.generate([text('a '), image, text(' b')], greedy).result;
  const marked = run('--raw', '-p', 'a <__media__> b', '--image', wide, '--projector', projector);
  assert.deepEqual([marked.text, marked.promptTokens], [one.text, one.usage.promptTokens]);
  const first = await engine.generate([image, text('b')], greedy).result;
  assert.equal(run('--raw', '-p', 'b', '--image', wide).text, first.text); // the one beside it
});

/** A GGUF file with a chat template more, whose entry keeps the alignment of what follows. */
function withTemplate(file, template) {
  const name = 'tokenizer.chat_template';
  const size = 8 + name.length + 4 + 8 + template.length;
  const padded = template + `{#${'-'.repeat(64 - ((size + 4) % 32))}#}`;
  const entry = Buffer.alloc(8 + name.length + 4 + 8 + padded.length);
  entry.writeBigUInt64LE(BigInt(name.length), 0);
  entry.write(name, 8);
  entry.writeUInt32LE(8, 8 + name.length); // a string
  entry.writeBigUInt64LE(BigInt(padded.length), 12 + name.length);
  entry.write(padded, 20 + name.length);
  const head = Buffer.from(file.subarray(0, 24));
  head.writeBigUInt64LE(head.readBigUInt64LE(16) + 1n, 16);
  return Buffer.concat([head, entry, file.subarray(24)]);
}

test('run gives a chat template the parts in their order', { skip }, async () => {
  const templated = join(folder, 'templated.gguf');
  const chatml =
    '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}' +
    "<|im_start|>assistant{{ '\\n' }}";
  writeFileSync(templated, withTemplate(readFileSync(model), chatml));
  const run = (...args) =>
    cli(['run', templated, '--projector', projector, '--json', ...flags, ...args]);
  const prompt = '<|im_start|>user\nlook <__media__> what<|im_end|>\n<|im_start|>assistant\n';
  const raw = await engine.generate(prompt, { ...greedy, images: [image.image] }).result;
  const chat = run('look <__media__> what', '--image', wide);
  assert.equal(chat.status, 0, chat.stderr);
  const { promptTokens, generatedTokens } = JSON.parse(chat.stdout);
  assert.deepEqual(
    [promptTokens, generatedTokens],
    [raw.usage.promptTokens, raw.usage.completionTokens],
  );
  const more = run('<__media__> <__media__>', '--image', wide);
  assert.equal(more.status, 1);
  assert.match(more.stderr, /<__media__> occurs more often than --image/);
});

test('a conversation shows pictures, and goes on behind wrong ones', { skip }, async () => {
  const cut = join(folder, 'cut.png');
  writeFileSync(cut, readFileSync(wide).subarray(0, 400));
  const session = engine.session();
  const seen = await send(session, image, text('look'));
  const then = await session.send('and now', greedy).text();
  const talk = (input, ...more) =>
    cli(['chat', model, '--projector', projector, '--quiet', ...flags, ...more], input);
  const good = talk(`/image ${wide}\nlook\nand now\n`);
  assert.equal(good.status, 0, good.stderr);
  assert.equal(good.stdout, `${seen}\n${then}\n`);
  const plain = await engine.session().send('look', greedy).text();
  const bad = talk(`/image\n/image nowhere.png\n/image ${cut}\nlook\nlook\n`);
  assert.match(bad.stderr, /\/image needs a file name/);
  assert.match(bad.stderr, /cannot read "nowhere.png"/);
  assert.match(bad.stderr, /The PNG picture is damaged/);
  assert.equal(bad.stdout, `${plain}\n`);
  assert.equal(bad.status, 1);
  const blind = cli(['chat', model, '--quiet', ...flags], `/image ${wide}\nlook\n`);
  assert.match(blind.stderr, /the model takes no pictures: .* --projector/);
  assert.equal(blind.stdout, `${plain}\n`);
});
