// A saved state is continued by the model that saved it, and by no other: the package in Node, from
// files and over HTTP. Which values matter, in every family: tests/conformance/saved_state_test.cpp.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { Engine } from '../../dist/node.js';
import { faultyServer, root } from './helpers.mjs';

const directory = mkdtempSync(join(tmpdir(), 'sluice-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const path = join(root, 'tests/data/arch/llama-gqa.gguf');
const bytes = readFileSync(path);
const prompt = [1, 88, 68, 244, 67, 48, 142, 237, 225, 152, 31, 77];
const options = { contextLength: 200, threads: 1 };
const greedy = { maxTokens: 12, temperature: 0, ignoreEos: true };

/** A copy of the model in which the value of a metadata key has other bytes. */
function withValue(key, size, change) {
  const copy = Buffer.from(bytes);
  const at = copy.indexOf(key) + key.length + 4;
  assert.ok(at > key.length + 4, key);
  change(copy, at, size);
  return copy;
}
const otherRotation = withValue('llama.rope.freq_base', 4, (copy, at) =>
  copy.writeFloatLE(copy.readFloatLE(at) * 20, at),
);
const otherName = withValue('general.name', 8, (copy, at) => copy.write('x', at + 8));
const otherWeights = Buffer.from(bytes);
otherWeights[bytes.length - 5000] ^= 1;

async function stateOf(source, more) {
  const engine = await Engine.load(source, { ...options, ...more });
  await engine.generate(prompt, { maxTokens: 0 }).result;
  const state = await engine.saveState();
  await engine.dispose();
  return state;
}

/** Continues `state` in the model and compares with a run of its own. */
async function continues(source, state, more) {
  const engine = await Engine.load(source, { ...options, ...more });
  try {
    const alone = await engine.generate(prompt, { ...greedy, cachePrompt: false }).text();
    await engine.restoreState(state);
    const { text, usage } = await engine.generate(prompt, greedy).result;
    assert.equal(text, alone);
    return usage.cachedTokens;
  } finally {
    await engine.dispose();
  }
}

function file(name, content) {
  const to = join(directory, name);
  writeFileSync(to, content);
  return to;
}

test('metadata that changes answers, and other weights, are refused', async () => {
  const state = await stateOf(path);
  assert.equal(await continues(path, state), prompt.length - 1);
  assert.equal(await continues(file('name.gguf', otherName), state), prompt.length - 1);
  assert.equal(await continues(path, state, { contextLength: 400 }), prompt.length - 1);
  const refused = [
    ['metadata', otherRotation],
    ['weights', otherWeights],
  ];
  for (const [what, content] of refused)
    await assert.rejects(continues(file(`${what}.gguf`, content), state), {
      code: 'CORRUPT',
      message: new RegExp(`the ${what} differ`),
    });
  await assert.rejects(continues(path, state, { kvType: 'q8_0' }), {
    code: 'CORRUPT',
    message: /the KV cache types differ/,
  });
});

test('over HTTP, with and without a cache, a state fits the same file', async () => {
  const server = await faultyServer({ bytes, etag: '"1"' });
  const cacheDir = join(directory, 'cache');
  try {
    const states = [
      await stateOf(path),
      await stateOf(server.url),
      await stateOf(server.url, { cacheDir }),
    ];
    for (const state of states)
      for (const [source, more] of [[path], [server.url], [server.url, { cacheDir }]])
        assert.equal(await continues(source, state, more), prompt.length - 1);
    await assert.rejects(continues(file('other.gguf', otherRotation), states[1]), {
      code: 'CORRUPT',
    });
  } finally {
    await server.close();
  }
});

test('an uncached model saves its state after the server has gone', async () => {
  const server = await faultyServer({ bytes, etag: '"1"' });
  const engine = await Engine.load(server.url, options);
  await engine.generate(prompt, { maxTokens: 0 }).result;
  for (let seen = -1; seen < server.state.requests; await setTimeout(200))
    seen = server.state.requests;
  await server.close();
  const state = await engine.saveState();
  await engine.dispose();
  assert.equal(await continues(path, state), prompt.length - 1);
});

test('a rotation for long contexts is not continued by the one for short ones', async () => {
  const phi = join(root, 'tests/data/arch/phi3-longrope-partial.gguf');
  const short = { contextLength: 30 }; // trained for 32
  const state = await stateOf(phi, short);
  assert.equal(await continues(phi, state, { contextLength: 32 }), prompt.length - 1);
  await assert.rejects(continues(phi, state), {
    code: 'CORRUPT',
    message: /the RoPE factors differ/,
  });
  await assert.rejects(continues(phi, await stateOf(phi), short), { code: 'CORRUPT' });
});
