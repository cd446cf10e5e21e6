// Whole models whose KV cache is on the GPU in each of its types, in Node on a software adapter,
// compared with the CPU and the same type: logits of a prompt, the choice behind each of the CPU's
// tokens, and a sequence that comes back after another one, whose rows are uploaded again.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Engine } from '../../dist/node.js';
import { longOnly } from '../extent.mjs';
import { noSwiftShader, useSwiftShader } from './gpu-node.mjs';
import { nmse, root } from './helpers.mjs';

if (!noSwiftShader) useSwiftShader();

/** Normalized error of the logits, and the gap above which choices must be equal. */
const kNmse = 1e-3;
const kMinGap = 1e-3;
const kTokens = 12;

const all = ['arch', 'families'].flatMap((kind) => {
  const folder = join(root, 'tests', 'data', kind);
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  return manifest.map((model) => ({ ...model, folder }));
});
const named = (name) => all.find((model) => model.name === name);
/** Plain; a window; norms of heads, without and with windows; biases. */
const cases = [
  ['llama-gqa', 'q8_0', false],
  ['llama-gqa', 'f16', longOnly],
  ['mistral-window', 'q8_0', longOnly],
  ['gemma3-scaled', 'q8_0', longOnly],
  ['qwen3', 'q8_0', longOnly],
  ['starcoder2', 'q8_0', longOnly],
];

const load = ({ folder, file }, device, kvType) =>
  Engine.load(join(folder, file), {
    device,
    kvType,
    contextLength: 128,
    threads: 1,
    cache: 'none',
    ...(device === 'wasm' && { kernels: 'wasm128' }),
  });

/** The choice after `tokens`, with its gap to the second. */
async function choice(engine, tokens) {
  const options = { maxTokens: 1, temperature: 0, ignoreEos: true, logprobs: 2 };
  for await (const { topLogprobs } of engine.generate(tokens, options)) {
    if (!topLogprobs) continue;
    const [best, second] = topLogprobs;
    return { token: best.token, gap: best.logprob - second.logprob };
  }
  throw new Error('no token');
}

async function generate(session, prompt) {
  const tokens = [];
  const options = { maxTokens: kTokens, temperature: 0, ignoreEos: true };
  for await (const { token } of session.generate(prompt, options))
    if (token >= 0) tokens.push(token);
  return tokens;
}

/** Tokens of two sequences in turns: the GPU has the rows of one, and gets the other's again. */
async function inTurns(engine) {
  const sessions = [engine.session(), engine.session()];
  const out = [];
  for (const [i, prompt] of [
    [0, 'mill river'],
    [1, 'a stone bridge over'],
    [0, 'the'],
    [1, 'wind'],
  ])
    out.push(await generate(sessions[i], prompt));
  return out;
}

describe('KV cache types on the GPU', { skip: noSwiftShader }, () => {
  const engines = [];
  after(async () => {
    for (const engine of engines) await engine.dispose();
  });
  for (const [name, kvType, skip] of cases)
    test(`${name}, ${kvType}`, { skip, timeout: 300_000 }, async (t) => {
      const model = named(name);
      const { prompt } = model;
      const cpu = await load(model, 'wasm', kvType);
      const gpu = await load(model, 'webgpu', kvType);
      engines.push(cpu, gpu);
      assert.equal(gpu.stats().device, 'webgpu');
      const [wanted, ours] = [await cpu.logits(prompt), await gpu.logits(prompt)];
      assert.equal(ours.length, wanted.length);
      assert.ok(gpu.stats().engine.gpuPasses > 0, 'the GPU computes the logits');
      const error = nmse(ours, wanted);
      t.diagnostic(`NMSE ${error.toExponential(1)}`);
      assert.ok(error < kNmse, `NMSE ${error}`);
      const tokens = await generate(cpu, prompt);
      for (let i = 0; i < kTokens; i++) {
        const before = [...prompt, ...tokens.slice(0, i)];
        const { token, gap } = await choice(cpu, before);
        if (gap > kMinGap)
          assert.equal((await choice(gpu, before)).token, token, `token ${i}, gap ${gap}`);
      }
      assert.deepEqual(await inTurns(gpu), await inTurns(cpu));
      assert.ok(gpu.stats().engine.gpuPasses > kTokens);
    });

  test('an error names other types', async () => {
    await assert.rejects(load(named('llama-gqa'), 'webgpu', 'q2'), {
      code: 'NOT_SUPPORTED',
      message: /KV cache eviction, or a type other than f16 and q8_0/,
    });
  });
});
