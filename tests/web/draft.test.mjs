// Drafts through the package in Node, on the sample model: what is guessed ahead changes the number of
// passes and not the answer.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';

const model = join(root, 'examples', 'models', 'sluice-tales-Q8_0.gguf');
const options = { memoryBudget: 64e6, contextLength: 256, threads: 1, cache: 'none' };
let Engine;

before(async () => {
  ({ Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href));
});

test('answers are the same, and the counters tell guesses from passes', async () => {
  const prompt = 'Once upon a time there was a girl. Once upon a time there was a girl';
  // A bias towards one token makes a text that repeats itself.
  const ways = [{ temperature: 0 }, { temperature: 1, seed: 3 }, { temperature: 0, ignoreEos: true, logitBias: { 65: 100 } }];
  const plain = await Engine.load(model, options);
  const drafting = await Engine.load(model, { ...options, draft: 'ngram' });
  try {
    for (const way of ways) {
      const expected = await plain.generate(prompt, { maxTokens: 120, ...way }).result;
      const found = await drafting.generate(prompt, { maxTokens: 120, ...way }).result;
      assert.equal(found.text, expected.text);
      assert.deepEqual(found.usage.completionTokens, expected.usage.completionTokens);
    }
    const { draftedTokens, acceptedTokens, passes } = drafting.stats();
    assert.ok(draftedTokens >= acceptedTokens, `${draftedTokens} drafted, ${acceptedTokens} accepted`);
    assert.equal(passes + acceptedTokens, plain.stats().passes);
    assert.equal(plain.stats().draftedTokens, 0);
  } finally {
    await plain.dispose();
    await drafting.dispose();
  }
});

test('what cannot be a draft is refused', async () => {
  for (const draft of ['model', '', true]) {
    await assert.rejects(Engine.load(model, { ...options, draft }), { code: 'INVALID_ARGUMENT' });
  }
});
