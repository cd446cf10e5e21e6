// Layers split between GPU and CPU (option gpuLayers), in Node on a software adapter. With any
// number of first layers on the GPU the results equal the CPU's, through sessions, rewinds, saved
// states, adapters and a lost GPU. Memory on the GPU stays within its budget, and generating a
// token uploads nothing.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { openNode } from './gpu-node.mjs';
import {
  addressOf,
  checkLogits,
  checkLosses,
  checkTwins,
  kNmse,
  losses,
  models,
  mountsOf,
  setup,
} from './gpu-page.mjs';
import { root } from './helpers.mjs';

const arch = models('arch');
const families = models('families');
const named = (list, name) => list.find((model) => model.name === name);
const llama = named(arch, 'llama-gqa'); // three layers
const plain = named(arch, 'gpt2'); // three, and least to compile for a software adapter
const lfm2 = named(families, 'lfm2'); // three: short convolutions and attention
const mixture = named(families, 'qwen3moe'); // two
// Recurrent layers and attention; only ../shared/fixtures has them.
const hybrids = families.filter(({ name }) => ['qwen35', 'falcon-h1'].includes(name));
// Eight tokens at most, so that a software adapter has less to compile.
const kShort = { contextLength: 8 };
const kLayers = 3;
let files;
let tab;

before(async () => {
  files = await serve(mountsOf([...arch, ...families]));
  tab = await openNode(setup);
});
after(async () => {
  const complaints = await tab.page.evaluate('complaints');
  await tab.close();
  await files.close();
  assert.deepEqual(complaints, [], 'errors of the device');
});

const address = (model) => addressOf(files, model);
const inPage = (work, ...args) => tab.page.evaluate(work, args);
const measured = (model, options, more) =>
  inPage(([args]) => measure(args), {
    source: address(model),
    prompt: model.prompt.slice(0, 4),
    positions: 3,
    count: 4,
    options: { ...kShort, ...options },
    ...more,
  });

/**
 * In the long suite the other fixtures are split after their first layer; a model that
 * cannot be split must be an error that names the reason.
 */
const everyModel = !longOnly;
const others = everyModel
  ? [...arch, ...families].filter(
      (model) =>
        ![plain, llama, lfm2, mixture, ...hybrids].includes(model) && model.causal !== false,
    )
  : [];
for (const [model, ...cuts] of [
  [plain, 1],
  [llama, 1],
  [lfm2, 2],
  [mixture, 1],
  ...hybrids.map((model) => [model, 1]),
  ...others.map((model) => [model, 1]),
]) {
  for (const gpuLayers of cuts) {
    test(
      `the first ${gpuLayers} layers of ${model.name} on the GPU`,
      { skip: model !== plain && !everyModel && longOnly },
      async (t) => {
        const result = await measured(model, { gpuLayers }).catch((error) => error.message);
        if (typeof result === 'string' && others.includes(model)) {
          t.diagnostic(result);
          return assert.match(result, /This model cannot .* \(unsupported: .+\)/);
        }
        assert.deepEqual([result.device, result.gpuLayers], ['webgpu', gpuLayers]);
        assert.ok(result.counts.gpuPasses > 0);
        if (!others.includes(model))
          checkLogits(result, model, Math.max(kNmse, 10 * (model.llama_cpp_f16_nmse ?? 0)));
        const { tokens, gap, logits } = await inPage(
          async ([source, prompt, options]) => {
            const cpu = await loadCpu(source, options);
            const logits = [...(await cpu.logits(prompt.slice(0, 3)))];
            const tokens = [];
            let gap = Infinity;
            for await (const { token, topLogprobs } of cpu.generate(prompt, {
              maxTokens: 4,
              temperature: 0,
              ignoreEos: true,
              logprobs: 2,
            })) {
              if (!topLogprobs) continue;
              tokens.push(token);
              gap = Math.min(gap, topLogprobs[0].logprob - topLogprobs[1].logprob);
            }
            await cpu.dispose();
            return { tokens, gap, logits };
          },
          address(model),
          model.prompt.slice(0, 4),
          kShort,
        );
        checkLogits(result, { ...model, reference: Float32Array.from(logits) }, kNmse);
        if (gap > 0.02) assert.deepEqual(result.tokens, tokens);
      },
    );
  }
}

test(
  'gpuLayers 0 is bit-identical to the CPU, all layers to the GPU',
  { skip: longOnly },
  async () => {
    const whole = await measured(plain);
    const all = await measured(plain, { gpuLayers: kLayers });
    assert.deepEqual([whole.gpuLayers, all.gpuLayers, all.gpu], [kLayers, kLayers, whole.gpu]);
    assert.deepEqual([all.logits, all.tokens], [whole.logits, whole.tokens]);
    const none = await measured(plain, { gpuLayers: 0, kernels: 'wasm128' });
    assert.deepEqual([none.device, none.gpuLayers, none.gpu], ['wasm', undefined, 0]);
    const cpu = await measured(plain, { device: 'wasm', kernels: 'wasm128' });
    assert.deepEqual([none.logits, none.tokens], [cpu.logits, cpu.tokens]);
  },
);

test(
  "'auto' puts as many layers on the GPU as fit its budget, and tokens upload nothing",
  { skip: longOnly },
  async () => {
    const result = await inPage(
      async ([source, prompt, options]) => {
        const ask = (more) =>
          load(source, { ...options, ...more }).then(
            async (engine) => {
              const { gpuLayers } = engine.stats();
              await tokensOf(engine, prompt, 1);
              const before = engine.stats().engine;
              await tokensOf(engine, [...prompt, 5], 3);
              const { uploaded, gpuPasses } = engine.stats().engine;
              const { gpu, weights } = engine.memory();
              await engine.dispose();
              return {
                gpuLayers,
                gpu,
                weights,
                uploaded: uploaded - before.uploaded,
                passes: gpuPasses - before.gpuPasses,
              };
            },
            ({ code, message }) => ({ code, message }),
          );
        const out = { one: await ask({ gpuLayers: 1 }), two: await ask({ gpuLayers: 2 }) };
        out.fitting = [];
        for (const gpuBudget of [
          (out.one.gpu + out.two.gpu) / 2,
          out.two.gpu,
          out.two.gpu + (1 << 26),
        ])
          out.fitting.push({ gpuBudget, ...(await ask({ gpuLayers: 'auto', gpuBudget })) });
        out.tooMany = await ask({ gpuLayers: 3, gpuBudget: out.one.gpu });
        out.none = await ask({ gpuLayers: 'auto', gpuBudget: 1 << 16 });
        return out;
      },
      address(plain),
      plain.prompt.slice(0, 3),
      kShort,
    );
    const { one, two, fitting, tooMany, none } = result;
    assert.ok(two.gpu > one.gpu, 'one more layer takes more bytes');
    assert.deepEqual(
      fitting.map(({ gpuLayers }) => gpuLayers),
      [1, 2, 3],
    );
    for (const { gpuBudget, gpu, uploaded, passes } of fitting) {
      assert.ok(gpu <= gpuBudget, `${gpu} bytes of ${gpuBudget}`);
      assert.deepEqual([uploaded, passes], [0, 3]);
    }
    for (const refused of [tooMany, none])
      assert.equal(refused.code, 'BUDGET_TOO_SMALL', JSON.stringify(refused));
    assert.match(tooMany.message, /too small for 3 of the model's 3 layers: they need \d+ bytes/);
  },
);

const ask = (model, options) =>
  inPage(
    ([source, options]) =>
      load(source, options).then(
        (engine) => engine.dispose().then(() => []),
        ({ code, message }) => [code, message],
      ),
    address(model),
    options,
  );

const shared = existsSync(join(root, '..', 'shared', 'fixtures', 'families'));
for (const [name, what] of [
  ['rwkv7', 'more than the residual stream'],
  ['gemma3n', 'per-layer embeddings'],
  ['t5', 'more than the residual stream'],
]) {
  test(`${name} cannot be split`, { skip: !shared && 'no ../shared/fixtures' }, async () => {
    const [code, message] = await ask(named(families, name), { gpuLayers: 1, contextLength: 32 });
    assert.equal(code, 'NOT_SUPPORTED');
    assert.match(message, new RegExp(`^This model cannot be split between GPU and CPU .*${what}`));
  });
}

test('a split without a GPU, or with an invalid number of layers, is an error', async () => {
  for (const options of [
    { gpuLayers: 1, device: 'wasm' },
    { gpuLayers: -1 },
    { gpuLayers: 'some' },
  ])
    assert.equal((await ask(llama, options))[0], 'INVALID_ARGUMENT');
});

for (const [model, gpuLayers] of [[llama, 2], [lfm2, 1], ...hybrids.map((model) => [model, 1])]) {
  test(
    `sessions of ${model.name} with ${gpuLayers} layers on the GPU fork, rewind, are saved and swap states with the CPU's`,
    { skip: longOnly },
    async () => {
      checkTwins(
        await inPage(
          ([source, ...more]) => twinSessions(source, ...more),
          address(model),
          model.prompt,
          { seed: 7, operations: 24, options: { gpuLayers, contextLength: 160 } },
        ),
      );
    },
  );
}

test(
  'after adapters, embeddings and aborted generations the output is right',
  { skip: longOnly },
  async () => {
    const out = await inPage(
      async ([source, prompt]) => {
        const gpuEngine = await gpuOf(source, { gpuLayers: 2, contextLength: 160 });
        const cpu = await loadCpu(source, { contextLength: 160 });
        const expected = await tokensOf(cpu, prompt, 4);
        const vectors = await cpu.embed([prompt.slice(0, 9)]);
        const out = { answers: [] };
        const again = async () =>
          out.answers.push(`${await tokensOf(gpuEngine, prompt, 4)}` === `${expected}`);
        await again();
        const [embedded] = await gpuEngine.embed([prompt.slice(0, 9)]);
        out.apart = Math.max(...embedded.map((value, i) => Math.abs(value - vectors[0][i])));
        await again();
        const random = seeded(3);
        for (let i = 0; i < 6; i++) {
          const giveUp = new AbortController();
          const answer = tokensOf(gpuEngine, [...prompt, 3, 4, i], 20, {
            signal: giveUp.signal,
            cachePrompt: false,
          }).catch(({ name }) => name);
          await after(60 * random());
          giveUp.abort();
          await answer;
          await again();
        }
        out.warnings = gpuEngine.warnings.map(([code]) => code);
        await cpu.dispose();
        return out;
      },
      address(llama),
      llama.prompt,
    );
    assert.deepEqual(out.answers, Array(8).fill(true));
    assert.ok(out.apart < 1e-4, `${out.apart}`);
    assert.deepEqual(out.warnings, []);
  },
);

test(
  'after the GPU is lost the CPU continues at the same position, in a tight budget too',
  { skip: longOnly },
  async () => {
    const times = losses(3);
    const prompt = plain.prompt.slice(0, 3);
    const lose = (options) =>
      inPage(([source, ...more]) => loseGpus(source, ...more), address(plain), prompt, {
        times,
        seed: 13,
        count: 5,
        options: { ...kShort, ...options },
      });
    checkLosses(await lose({ gpuLayers: 2 }), times);
    const least = await inPage(
      ([source, options]) =>
        Engine.inspect(source, { cache: 'none', ...options }).then(({ plan }) => plan.minimum),
      address(plain),
      kShort,
    );
    checkLosses(await lose({ gpuLayers: 1, memoryBudget: least + (1 << 17) }), times);
  },
);

test(
  "memory holds only the CPU's layers, and all of them after the GPU is lost",
  { skip: longOnly },
  async () => {
    const { whole, split, lost, ahead, tokens } = await inPage(
      async ([source, prompt, options]) => {
        await dropGpus(); // a loss affects all of them
        const { plan } = await Engine.inspect(source, { cache: 'none', ...options });
        const memoryBudget = plan.minimum + (1 << 17);
        const tokens = [];
        const reads = async (engine) => {
          await tokensOf(engine, prompt, 2);
          const before = engine.stats();
          tokens.push(await tokensOf(engine, [...prompt, 9], 4));
          const after = engine.stats(); // counts what was read for the CPU
          return after.engine.filledBytes - before.engine.filledBytes;
        };
        const cpu = await loadCpu(source, { ...options, memoryBudget });
        const whole = await reads(cpu);
        await cpu.dispose();
        const gpuEngine = await load(source, { ...options, memoryBudget, gpuLayers: 2 });
        const split = await reads(gpuEngine);
        await loseGpu();
        const lost = await reads(gpuEngine);
        await gpuEngine.dispose();
        return { whole, split, lost, ahead: plan.streamBuffer, tokens };
      },
      address(plain),
      plain.prompt.slice(0, 3),
      kShort,
    );
    assert.deepEqual([tokens.length, tokens[0].length], [3, 4]);
    assert.deepEqual(
      tokens,
      tokens.map(() => tokens[0]),
    );
    assert.ok(split < whole / 2, `${split} bytes read for ${whole}`);
    // Reads run ahead of the counted pass by up to the size of the stream buffer.
    assert.ok(lost < 1.05 * whole + ahead, `${lost} bytes read for ${whole}, and ${ahead} ahead`);
  },
);
