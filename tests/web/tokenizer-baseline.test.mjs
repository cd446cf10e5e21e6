// Hugging Face directories against the library that their tokenizer.json was written for: ids of
// thousands of texts, assembled from cases that are hard for tokenizers.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Tokenizer } from '@huggingface/tokenizers';
import { extent } from '../extent.mjs';
import { root } from './helpers.mjs';
import { random } from './random.mjs';

const kTexts = extent(1500, 5000);
const parts = [
  'a',
  'b',
  'the ',
  'The',
  ' ',
  '  ',
  '\n',
  '\r\n',
  '\t',
  '.',
  '...',
  '!?',
  "'s",
  "'LL",
  '1',
  '22',
  '333',
  '4444',
  'é',
  'e\u0301',
  'ﬁ',
  'Å',
  'Å',
  '中',
  '文字',
  '가',
  '\u1100\u1161',
  'ا',
  'ש',
  'हि',
  '🙂',
  '👩‍👩‍👧',
  '\u200d',
  '\u200b',
  '\u00a0',
  '\u3000',
  'ß',
  'İ',
  'ı',
  'ſ',
  '_',
  '-',
  '<',
  '>',
  '<|',
  '|>',
  '{',
  '}',
  '\\',
  '/',
  'http://x.y',
  '\u0000',
  '\u007f',
  '\ufeff',
  '\ue000',
  '𝔘',
  '0x1F',
  '\u0301',
  'ñ',
  'Straße',
  'MiXeD',
  '日本語',
  'т',
  'ё',
  'Ω',
  '½',
  '²',
];

for (const name of ['qwen3', 'llama3', 'smollm3', 'gemma3']) {
  test(`${name}: the ids of ${kTexts} odd texts`, async (t) => {
    const directory = join(root, 'tests', 'data', 'hf', name);
    const read = (file) =>
      existsSync(join(directory, file))
        ? JSON.parse(readFileSync(join(directory, file), 'utf8'))
        : {};
    const file = {
      decoder: null,
      post_processor: null,
      normalizer: null,
      pre_tokenizer: null,
      ...read('tokenizer.json'),
    };
    const peer = new Tokenizer(file, read('tokenizer_config.json'));
    const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
    const engine = await Engine.load(directory, {
      contextLength: 64,
      threads: 1,
      memoryBudget: 64e6,
    });
    t.after(() => engine.dispose());
    const next = random(7);
    const pick = (n) => Math.floor(next() * n);
    for (let i = 0; i < kTexts; i++) {
      const text = Array.from({ length: 1 + pick(24) }, () => parts[pick(parts.length)]).join('');
      const theirs = Array.from(peer.encode(text, { add_special_tokens: false }).ids);
      assert.deepEqual(
        Array.from(await engine.tokenize(text, { addSpecial: false })),
        theirs,
        JSON.stringify(text),
      );
    }
  });
}
