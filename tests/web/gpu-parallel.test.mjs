// Several sequences on the GPU, in Node on a software adapter: sessions that join and leave a batch, with
// prompts of several lengths, give what the CPU gives for each alone. So do models whose sequences are
// computed in turns. Forks, saved states, cancelled generations and a lost GPU affect no other sequence.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { extent, longOnly } from '../extent.mjs';
import { noSoftwareAdapter, openNode, useSoftwareAdapter } from './gpu-node.mjs';
import { checkTwins, models, setup } from './gpu-page.mjs';
import { root } from './helpers.mjs';

/** Tokens whose log-probabilities are closer may swap. With q4_0, the CPU also rounds queries. */
const kGap = 0.02;
const kGapQ4 = 0.2;
const kParallel = 3;
/** Tokens of a sequence that is computed beside all others. */
const kWatched = extent(20, 40);

/** [model, options, all sequences in one pass, test in the long suite alone] */
const cases = [
  ['llama-gqa', {}, true, false],
  ['gemma4', {}, true, longOnly], // its last layers process only the rows with logits
  ['lfm2', {}, false, false], // recurrent states
  ['llama-gqa', { kvType: 'q8_0' }, true, longOnly],
  ['llama-gqa', { kvType: 'q4_0' }, true, longOnly],
  ['llama-gqa', { kvPolicy: 'window', kvCapacity: 128, contextLength: 1000 }, false, longOnly],
  [
    'llama-gqa',
    { kvPolicy: 'heavy-hitter', kvCapacity: 128, contextLength: 1000 },
    false,
    longOnly,
  ],
  ['llama-gqa', { gpuLayers: 1 }, false, longOnly],
  ['llama-gqa', { draft: 'ngram' }, true, longOnly],
  ['phi3-swa', {}, true, longOnly],
  ['qwen3', {}, true, longOnly],
  ['mixtral', {}, true, longOnly],
];
const all = [...models('arch'), ...models('families')];
const named = (name) => all.find((model) => model.name === name);
const fileOf = ({ folder, file }) => join(folder, file);

/** `until`: tokens behind which the generation is cancelled. */
async function tell(teller, prompt, maxTokens, until = maxTokens) {
  const out = [];
  const how = { maxTokens, temperature: 0, ignoreEos: true, logprobs: 2 };
  for await (const { token, topLogprobs } of teller.generate(prompt, how)) {
    if (topLogprobs) out.push([token, topLogprobs[0].logprob - topLogprobs[1].logprob]);
    if (until < maxTokens && out.length >= until) break;
  }
  return out;
}

/** How many tokens are equal; the first other one must be a near tie. */
function agree(found, expected, gap, what) {
  const at = expected.findIndex(([token], i) => token !== found[i]?.[0]);
  if (at < 0) return expected.length;
  assert.ok(expected[at][1] < gap, `${what}: token ${at} differs, gap ${expected[at][1]}`);
  return at;
}

/** Prompts of several lengths. `times`: where a KV cache evicts, most are longer than it. */
const promptOf = (i, times = 1) => {
  const words = ['mill', ' river', ' and', ' fox', ' 42'];
  const length = times * [2, 14, 30, 6, 20][i];
  return Array.from({ length }, (_, k) => words[(i + k * k) % 5]).join('');
};

describe('several sequences on the GPU', { skip: noSoftwareAdapter, timeout: 900_000 }, () => {
  let tab;
  before(async () => (tab = await openNode(setup)));
  after(async () => {
    const complaints = globalThis.complaints;
    await tab.close();
    assert.deepEqual(complaints, [], 'errors of the device');
  });

  for (const [name, options, together, skip] of cases)
    test(`${name} ${JSON.stringify(options)}`, { skip: skip || !named(name) }, async () => {
      const model = named(name);
      const times = options.kvPolicy ? 8 : 1;
      const gap = options.kvType === 'q4_0' ? kGapQ4 : kGap;
      const cpu = await globalThis.loadCpu(fileOf(model), options);
      const gpu = await globalThis.load(fileOf(model), { ...options, parallel: kParallel });
      assert.equal(gpu.stats().device, 'webgpu');
      let same = 0;
      const runs = await Promise.all(
        Array.from({ length: 5 }, async (_, i) => {
          const session = gpu.session();
          const first = await tell(session, promptOf(i, times), 4 + extent(1, 2) * i);
          return { i, tokens: session.tokens, first };
        }),
      );
      const { gpuPasses } = gpu.stats().engine;
      const steps = runs.reduce((sum, { first }) => sum + first.length, 0);
      assert.ok(gpuPasses > 0);
      assert.equal(gpuPasses < steps, together, `${gpuPasses} passes, ${steps} tokens`);
      for (const { i, first } of runs)
        same += agree(
          first,
          await tell(cpu.session(), promptOf(i, times), first.length),
          gap,
          `${i}`,
        );
      assert.ok(same > steps / 2, `${same} of ${steps} tokens`);
      await Promise.all([cpu.dispose(), gpu.dispose()]);
    });

  test('forks, saved states and cancelled generations beside others', async () => {
    const model = named('llama-gqa');
    const cpu = await globalThis.loadCpu(fileOf(model));
    const gpu = await globalThis.load(fileOf(model), { parallel: kParallel });
    const [watched, kept, cut] = [gpu.session(), gpu.session(), gpu.session()];
    const watching = tell(watched, promptOf(1), kWatched);
    await tell(kept, promptOf(2), 6);
    let n = 0;
    for await (const _ of cut.generate(promptOf(0), { maxTokens: 200, ignoreEos: true }))
      if (++n === 3) break;
    const fork = await kept.fork();
    const [ours, theirs] = await Promise.all(
      [kept, fork].map((session) => tell(session, ' mill river', 6)),
    );
    assert.deepEqual(
      ours.map(([token]) => token),
      theirs.map(([token]) => token),
    );
    const saved = await kept.save();
    const other = cpu.session();
    await other.restore(saved);
    agree(await tell(kept, ' and', 6), await tell(other, ' and', 6), kGap, 'a saved session');
    agree(await watching, await tell(cpu.session(), promptOf(1), kWatched), kGap, 'watched');
    // The session that was cancelled goes on with what it has.
    const again = cpu.session();
    await again.restore(await cut.save());
    agree(await tell(cut, ' fox', 4), await tell(again, ' fox', 4), kGap, 'a cancelled session');
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });

  /** Rounds of concurrent generations, some of them cancelled, on sessions that have twins on the CPU. */
  test('random rounds', { skip: longOnly }, async () => {
    const model = named('llama-gqa');
    const cpu = await globalThis.loadCpu(fileOf(model), { contextLength: 2000 });
    const gpu = await globalThis.load(fileOf(model), {
      parallel: kParallel,
      contextLength: 2000,
    });
    const random = globalThis.seeded(45);
    const below = (n) => Math.floor(random() * n);
    const twins = Array.from({ length: 5 }, () => [gpu.session(), cpu.session()]);
    let [tokens, cancelled] = [0, 0];
    for (let round = 0; round < 20; round++) {
      const chosen = twins.filter(() => random() < 0.7);
      const calls = chosen.map(([ours, theirs]) => {
        const text = ` ${promptOf(below(5))}`;
        const most = 2 + below(10);
        const until = random() < 0.3 ? below(most) : most;
        return { ours, theirs, text, most, until };
      });
      const told = await Promise.all(
        calls.map(({ ours, text, most, until }) => tell(ours, text, most, until)),
      );
      for (const [i, { ours, theirs, text, most, until }] of calls.entries()) {
        cancelled += until < most;
        const expected = await tell(theirs, text, Math.max(told[i].length, 1));
        tokens += agree(told[i], expected.slice(0, told[i].length), kGap, `round ${round}, ${i}`);
        await theirs.restore(await ours.save());
      }
    }
    assert.ok(tokens > 10 && cancelled > 0, `${tokens} tokens, ${cancelled} cancelled`);
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });

  test('random operations on twins', { skip: longOnly }, async () => {
    const model = named('llama-gqa');
    checkTwins(
      await globalThis.twinSessions(fileOf(model), model.prompt, {
        seed: 7,
        operations: 40,
        options: { parallel: kParallel },
      }),
    );
  });

  test('gpuBudget holds all KV caches', async () => {
    const file = fileOf(named('llama-gqa'));
    const used = async (how) => {
      const engine = await globalThis.load(file, how);
      await tell(engine, 'a fox', 2);
      const { gpu } = engine.memory();
      await engine.dispose();
      return gpu;
    };
    const [one, three] = [await used({}), await used({ parallel: kParallel })];
    const { plan } = await globalThis.Engine.inspect(file, { contextLength: 256 });
    assert.ok(three - one >= 2 * plan.kv, `${one}, ${three} bytes; a KV cache has ${plan.kv}`);
    await assert.rejects(globalThis.load(file, { parallel: kParallel, gpuBudget: 1 << 16 }), {
      code: 'BUDGET_TOO_SMALL',
    });
  });

  test('the CPU goes on with all sequences when the GPU is lost', async () => {
    const model = named('llama-gqa');
    const warnings = [];
    const gpu = await globalThis.load(fileOf(model), {
      parallel: kParallel,
      onProgress: ({ phase, code }) => phase === 'warning' && warnings.push(code),
    });
    const cpu = await globalThis.loadCpu(fileOf(model));
    const sessions = Array.from({ length: 4 }, () => gpu.session());
    const telling = Promise.all(sessions.map((session, i) => tell(session, promptOf(i), 24)));
    for await (const _ of gpu.session().generate('a fox', { maxTokens: 2, ignoreEos: true }));
    await globalThis.loseGpu();
    for (const [i, found] of (await telling).entries())
      agree(found, await tell(cpu.session(), promptOf(i), 24), kGap, `sequence ${i}`);
    assert.deepEqual(
      warnings.filter((code) => code === 'DEVICE_LOST'),
      ['DEVICE_LOST'],
    );
    assert.equal(gpu.stats().device, 'wasm');
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });
});

test('serve --device webgpu --parallel 2', { skip: noSoftwareAdapter || longOnly }, async () => {
  useSoftwareAdapter();
  const model = join(root, 'examples', 'models', 'sluice-tales-Q8_0.gguf');
  const args = ['serve', model, '--port', '0', '--json', '--quiet', '--ctx', '128'];
  const child = spawn(process.execPath, [
    join(root, 'dist', 'cli.js'),
    ...args,
    ...['--device', 'webgpu', '--parallel', '2'],
  ]);
  try {
    const url = await new Promise((resolve, reject) => {
      child.stdout.once('data', (line) => resolve(JSON.parse(line).url));
      child.once('exit', (code) => reject(new Error(`exit code ${code}`)));
    });
    const ask = async (prompt) => {
      const body = JSON.stringify({ prompt, max_tokens: 8, temperature: 0 });
      const response = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      assert.equal(response.status, 200);
      return (await response.json()).choices[0].text;
    };
    const prompts = ['Once upon a time', 'The mill by the river'];
    const together = await Promise.all(prompts.map(ask));
    assert.ok(together.every((text) => text.length > 4));
    for (const [i, prompt] of prompts.entries()) assert.equal(await ask(prompt), together[i]);
  } finally {
    child.kill('SIGINT');
  }
});
