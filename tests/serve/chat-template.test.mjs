// --chat-template: a template in place of the model's. The model follows a script that the template
// begins.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { scriptedModel } from '../web/scripted-model.mjs';
import { first, program, Server } from './server.mjs';

const directory = mkdtempSync(join(tmpdir(), 'sluice-template-'));
const file = join(directory, 'model.gguf');
const writing = (mark) => `{% for m in messages %}{{ m.content }}{% endfor %}${mark}`;
const scripts = { '<|one|>': ['First', '.'], '<|two|>': ['Sec', 'ond.'] };

before(() => writeFileSync(file, scriptedModel({ template: writing('<|one|>'), scripts })));
after(() => rmSync(directory, { recursive: true }));

async function said(...options) {
  const server = await Server.startWith(file, '-c', '128', ...options);
  const messages = [{ role: 'user', content: 'Hi' }];
  const { choices } = await server.json('/v1/chat/completions', { messages, temperature: 0 });
  await server.stop();
  return choices[0].message.content;
}

test('a template replaces the one of the model', async () => {
  writeFileSync(join(directory, 'two.jinja'), writing('<|two|>'));
  assert.equal(await said(), 'First.');
  assert.equal(await said('--chat-template', writing('<|two|>')), 'Second.');
  assert.equal(await said('--chat-template-file', join(directory, 'two.jinja')), 'Second.');
});

test('a template that cannot be read is an error at the start', () => {
  for (const options of [
    ['--chat-template', 'chatml'],
    ['--chat-template', '{% if %}'],
    ['--chat-template-file', join(directory, 'nowhere')],
    ['--chat-template', '{{ 1 }}', '--chat-template-file', file],
  ]) {
    const args = [...first, 'serve', file, '--port', '0', ...options];
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8', timeout: 20_000 });
    assert.ok(status > 0, `${options}: ${status}`);
    assert.match(stderr, /template|nowhere/);
  }
});
