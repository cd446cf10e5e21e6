// Whole models on the GPU in Firefox. Its WebGPU implementation differs from Chromium's and runs
// here on Mesa's lavapipe: no subgroups, another WGSL compiler, a tenth of a second per submit. A
// few models show that everything works there; gpu.test.mjs has the rest.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { serve } from '../../web/scripts/serve.mjs';
import { longOnly } from '../extent.mjs';
import { crossOrigin, servePages } from './chromium.mjs';
import { launchFirefoxGpu, noFirefoxGpu } from './gpu-drivers.mjs';
import {
  addressOf,
  checkLogits,
  checkLosses,
  checkQuarter,
  kCodes,
  kFewTokens,
  kNmse,
  kPlain,
  kPositions,
  loads,
  losses,
  models,
  mountsOf,
  pageSetup,
} from './gpu-page.mjs';
import { root } from './helpers.mjs';

const limits = { timeout: 300_000 };
const long = { ...limits, skip: longOnly };
const forever = { timeout: 3_600_000, skip: longOnly }; // may be repeated many times
const named = (folder, ...names) => models(folder).filter(({ name }) => names.includes(name));
const plain = named('arch', 'llama-gqa', 'qwen3', 'gemma2', 'gpt2');
const [llama] = plain;
const [lfm2] = named('families', 'lfm2');
const [mixture] = named('families', 'qwen3moe');
const [quantized] = named('quant', 'Q4_K');
/**
 * Approximate error of a logit with int8 activations. Compared with the gap between the first token
 * of the output and the next best one.
 */
const kCodesError = 0.05;
const gapOf = ({ reference, n_vocab }) => {
  const [first, second] = reference.slice(-n_vocab).sort().reverse();
  return first - second;
};
const rare = models('quant-iq');
const vision = join(root, '..', 'shared', 'fixtures', 'vision');
const noVision = existsSync(vision) ? false : `no ${vision}`;
const coded = named('quant', 'Q4_0', 'Q8_0', 'Q6_K', 'IQ4_NL');

describe('models on the GPU in Firefox', { skip: noFirefoxGpu }, () => {
  let browser, pages, files, page;
  before(async () => {
    browser = await launchFirefoxGpu();
    pages = await servePages(join(root, 'dist'));
    files = await serve(
      [
        ...mountsOf([...plain, lfm2, mixture, quantized, ...rare, ...coded]),
        ...(noVision ? [] : [['/vision/', vision]]),
      ],
      crossOrigin,
    );
    page = await browser.open(`${pages.url}/`);
    await page.evaluate(pageSetup);
  }, limits);
  after(async () => {
    const complaints = await page?.evaluate(() => complaints);
    await pages?.close();
    await files?.close();
    await browser?.close();
    assert.deepEqual(complaints, [], 'WebGPU validation errors');
  }, limits);

  const measured = (model, more) =>
    page.evaluate((args) => measure(args), {
      source: addressOf(files, model),
      prompt: model.prompt,
      positions: kPositions,
      count: kFewTokens,
      options: {},
      ...more,
    });

  const kept = {};
  for (const model of [...plain, lfm2, mixture, quantized]) {
    test(`the GPU computes ${model.name}`, model === llama ? limits : long, async () => {
      const result = (kept[model.name] = await measured(model, {
        count: model.greedy.length && kFewTokens,
      }));
      assert.equal(result.device, 'webgpu');
      assert.ok(result.counts.gpuPasses > 0);
      checkLogits(
        result,
        model,
        Math.max(kNmse, 10 * (model.llama_cpp_f16_nmse ?? 0)) +
          10 * (model === quantized ? model.llama_cpp_nmse : 0),
      );
      assert.deepEqual(result.tokens, model.greedy.slice(0, result.tokens.length));
    });
  }

  // In the short suite gpu-kernels.test.mjs multiplies by every type here.
  for (const model of rare) {
    test(`weights of ${model.name}`, long, async () => {
      const result = await measured(model, { count: kFewTokens });
      assert.equal(result.device, 'webgpu');
      checkLogits(result, model, kNmse);
      assert.deepEqual(result.tokens, model.greedy.slice(0, kFewTokens));
    });
  }

  for (const model of [quantized, ...rare, ...coded]) {
    test(`int8 activations, ${model.name}`, long, async () => {
      const result = await measured(model, { kernels: kCodes, positions: model.prompt.length });
      assert.deepEqual(result.gpuKernels, { ...kCodes, subgroups: false });
      checkLogits(result, model, kNmse + 10 * model.llama_cpp_nmse);
      // A near tie may go either way.
      if ((model.greedy_min_gap ?? gapOf(model)) > 10 * kCodesError)
        assert.deepEqual(result.tokens, model.greedy.slice(0, kFewTokens));
    });
  }

  test('streaming with int8 activations is bit-identical', long, async () => {
    const ways = (options) => measured(quantized, { options, kernels: kCodes });
    await checkQuarter(ways, await ways({}), 2);
  });

  test('the GPU encodes a picture', { ...limits, skip: longOnly || noVision }, async () => {
    const manifest = JSON.parse(readFileSync(join(vision, 'manifest.json'), 'utf8'));
    const { model, mmproj, cases } = manifest.find(({ name }) => name === 'qwen2.5vl');
    const { prompt, media, greedy } = cases.find(({ name }) => name === 'one');
    const told = await page.evaluate(
      async ([source, projector, prompt, picture, count]) => {
        const engine = await gpuOf(source, { projector });
        const images = [Uint8Array.from(picture)];
        const tokens = await tokensOf(engine, prompt, count, { images });
        return { tokens, device: engine.stats().visionDevice, warnings: engine.warnings };
      },
      [
        ...[model, mmproj].map((file) => `${files.url}/vision/${file}`),
        prompt,
        [...readFileSync(join(vision, media[0]))],
        kFewTokens,
      ],
    );
    assert.deepEqual(told, {
      tokens: greedy.slice(0, kFewTokens),
      device: 'webgpu',
      warnings: [],
    });
  });

  test('without shader-f16 the results are nearly the same', long, async () => {
    const result = await measured(llama, { kernels: { ...kPlain, f16: false } });
    assert.deepEqual(result.gpuKernels, { ...kPlain, subgroups: false, f16: false });
    assert.deepEqual(kept[llama.name].gpuKernels, { ...kPlain, subgroups: false });
    checkLogits(result, llama, kNmse);
    assert.deepEqual(result.tokens, kept[llama.name].tokens);
  });

  test(
    'the engine measures whether int8 activations are faster, and reports it',
    long,
    async () => {
      const result = await measured(quantized, { kernels: 'measured' });
      assert.deepEqual(
        Object.values(result.gpuKernels.int8).map((pays) => typeof pays),
        ['boolean', 'boolean'],
      );
      checkLogits(result, quantized, kNmse + 10 * quantized.llama_cpp_nmse);
      const little = await measured(quantized, {
        kernels: 'measured',
        options: { gpuBudget: 4 << 20 },
      });
      assert.deepEqual(little.gpuKernels.int8, kPlain.int8, 'no memory to measure');
    },
  );

  for (const model of [lfm2]) {
    test(`${model.name} within a quarter of its GPU memory is bit-identical`, long, () =>
      checkQuarter((options) => measured(model, { options }), kept[model.name], 2),
    );
  }

  for (const model of [lfm2]) {
    test(`the first layers of ${model.name} on the GPU, the others on the CPU`, long, async () => {
      const result = await measured(model, { options: { gpuLayers: 2 } });
      assert.deepEqual([result.device, result.gpuLayers], ['webgpu', 2]);
      assert.ok(result.counts.gpuPasses > 0);
      assert.ok(
        result.gpu < kept[model.name].gpu,
        `${result.gpu} bytes of ${kept[model.name].gpu}`,
      );
      checkLogits(result, model, kNmse);
      assert.deepEqual(result.tokens, model.greedy.slice(0, kFewTokens));
    });

    test(
      `as many layers of ${model.name} as fit in a quarter of its GPU memory, the others streaming on the CPU`,
      long,
      async () => {
        const least = await page.evaluate(
          (source) =>
            Engine.inspect(source, { cache: 'none', contextLength: 256 }).then(
              ({ plan }) => plan.minimum,
            ),
          addressOf(files, model),
        );
        const measuredWith = (options) =>
          measured(model, { options: { memoryBudget: least + (1 << 14), ...options } });
        const room = async (gpuLayers) =>
          Number(
            /they need (\d+) bytes/.exec(
              await measuredWith({ gpuLayers, gpuBudget: 1 << 16 }).catch((error) => error.message),
            )[1],
          );
        const [one, all] = [await room(1), await room(3)];
        const gpuBudget = Math.floor(one + (all - one) / 4);
        const result = await measuredWith({ gpuLayers: 'auto', gpuBudget });
        assert.deepEqual([result.device, result.gpuLayers], ['webgpu', 1]);
        assert.ok(result.counts.bytesPerPass > 0, 'the CPU streams its layers in each pass');
        assert.ok(result.gpu <= gpuBudget, `${result.gpu} bytes of ${gpuBudget}`);
        checkLogits(result, model, kNmse);
        assert.deepEqual(result.tokens, model.greedy.slice(0, kFewTokens));
      },
    );
  }

  test('abort, fork, moving a session to the CPU and back, and dispose', long, async () => {
    const told = await page.evaluate(
      async ([source, prompt, expected]) => {
        const gpuEngine = await gpuOf(source);
        const control = new AbortController();
        let aborted;
        try {
          const long = gpuEngine.generate(prompt, {
            maxTokens: 60,
            temperature: 0,
            ignoreEos: true,
            cachePrompt: false,
            signal: control.signal,
          });
          for await (const { token } of long) if (token >= 0) control.abort();
        } catch (error) {
          aborted = error.name;
        }
        const after = await tokensOf(gpuEngine, prompt, expected.length);
        const session = gpuEngine.session();
        await tokensOf(session, ' river and', 3);
        const fork = await session.fork();
        const both = [await tokensOf(session, ' mill', 3), await tokensOf(fork, ' mill', 3)];
        const cpu = await loadCpu(source);
        const moved = cpu.session();
        await moved.restore(await fork.save());
        await session.restore(await moved.save());
        const third = [
          await tokensOf(fork, ' 42', 3),
          await tokensOf(session, ' 42', 3),
          await tokensOf(moved, ' 42', 3),
        ];
        await cpu.dispose();
        const { gpu } = gpuEngine.memory();
        await gpuEngine.dispose();
        const gone = await gpuEngine.generate('x').result.catch(({ code }) => code);
        return {
          aborted,
          right: `${after}` === `${expected}`,
          same: both[0].length > 0 && `${both[0]}` === `${both[1]}`,
          third,
          held: gpu > 0,
          gone,
        };
      },
      [addressOf(files, lfm2), lfm2.prompt, lfm2.greedy.slice(0, 4)],
    );
    const { third, ...rest } = told;
    assert.deepEqual(rest, {
      aborted: 'AbortError',
      right: true,
      same: true,
      held: true,
      gone: 'DISPOSED',
    });
    assert.ok(
      third[0].length > 0 && third.every((tokens) => `${tokens}` === `${third[0]}`),
      JSON.stringify(third),
    );
  });

  test('the CPU computes all layers after the GPU of a split is lost', long, async () => {
    checkLosses(
      await page.evaluate(
        (args) => loseGpus(...args),
        [
          addressOf(files, llama),
          llama.prompt,
          { times: 3, seed: 9, count: 6, options: { gpuLayers: 2 } },
        ],
      ),
      3,
    );
  });

  test('the CPU takes over when the GPU is lost at any moment', forever, async () => {
    const times = losses(5);
    checkLosses(
      await page.evaluate(
        (args) => loseGpus(...args),
        [addressOf(files, llama), llama.prompt, { times, seed: 5, count: 12 }],
      ),
      times,
    );
  });

  test('loads and disposals at any moment leave nothing behind', forever, async () => {
    const results = await page.evaluate(
      (args) => disposals(...args),
      [addressOf(files, llama), llama.prompt, { times: loads(4), seed: 3, count: 20 }],
    );
    assert.equal(results.length, 1, results.join('\n'));
  });
});
