// Parts of bench:gpu that need only Node, dist/ and the package `webgpu`, for a machine with a GPU.
// Each part runs alone, and its JSON is written as soon as it is done.
//   npm run bench:gpu -- --only probe,models [--out build/bench-gpu.json] [FILE…]
//   probe    adapter, features, limits, copy bandwidth, cost of a dependent dispatch
//   models   greedy tokens on the GPU and on the CPU, time to the first token, ms per token,
//            dispatches and bytes of weights per token; of FILEs, or of the models of the tests
// SLUICE_DAWN has options of Dawn, such as backend=vulkan.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { inRoot } from '../../../web/scripts/lib.mjs';

const kTokens = 32;
const kFamilies = ['llama-gqa', 'qwen3', 'gemma3', 'gpt2', 'phi3-swa'];

function testModels() {
  const of = (name) => {
    const folder = inRoot('tests', 'data', name);
    const all = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
    return all.map((model) => ({ name: model.name, file: join(folder, model.file) }));
  };
  const families = of('arch').filter(({ name }) => kFamilies.includes(name));
  return [...families, ...of('quant').slice(0, 7)].map(({ file }) => file);
}

/** Tokens, milliseconds until the first one and per further one, and counters of the GPU. */
async function run(Engine, file, device) {
  const began = performance.now();
  const engine = await Engine.load(file, { device, contextLength: 128, cache: 'none' });
  const options = { maxTokens: kTokens, temperature: 0, ignoreEos: true };
  const tokens = [];
  let first;
  let before;
  for await (const { token } of engine.generate([1, 2, 3, 4], options)) {
    first ??= performance.now();
    before ??= engine.stats().engine;
    if (token >= 0) tokens.push(token);
  }
  const after = engine.stats().engine;
  const out = {
    tokens,
    firstTokenMs: first - began,
    tokenMs: (performance.now() - first) / (tokens.length - 1),
  };
  if (device === 'webgpu') {
    const passes = after.gpuPasses - before.gpuPasses;
    for (const name of ['dispatches', 'submits', 'weightBytes'])
      out[name] = (after[name] - before[name]) / passes;
    out.kernels = engine.stats().gpuKernels;
  }
  await engine.dispose();
  return out;
}

async function models(files, done) {
  const { Engine } = await import(inRoot('dist', 'node.js'));
  for (const file of files.length ? files : testModels()) {
    const result = { model: basename(file) };
    try {
      const [gpu, cpu] = [await run(Engine, file, 'webgpu'), await run(Engine, file, 'wasm')];
      const differs = cpu.tokens.findIndex((token, i) => token !== gpu.tokens[i]);
      Object.assign(result, { gpu, cpu, equalTokens: differs < 0 ? kTokens : differs });
    } catch (error) {
      result.error = `${error.message} [${error.code}]`;
    }
    done(result);
  }
}

/** `parts`: probe, models. */
export async function runKit(parts, out, files) {
  const unknown = parts.find((part) => !['probe', 'models'].includes(part));
  if (unknown) throw new Error(`unknown part '${unknown}': probe, models`);
  const results = { date: new Date().toISOString() };
  const write = () => {
    mkdirSync(dirname(out), { recursive: true });
    writeFileSync(out, JSON.stringify(results, null, 1));
  };
  if (parts.includes('probe')) {
    const { probe } = await import('./probe.mjs');
    results.probe = await probe(process.env.SLUICE_DAWN?.split(';').filter(Boolean));
    write();
    const { adapter, submitMs, copyBytesPerSecond, dependentDispatchMs } = results.probe;
    console.log(`${adapter.vendor} ${adapter.architecture} ${adapter.description}`);
    console.log(
      `copy ${(copyBytesPerSecond / 1e9).toFixed(1)} GB/s, submit ${submitMs.toFixed(3)} ms, ` +
        `dependent dispatch ${(1000 * dependentDispatchMs).toFixed(2)} us`,
    );
  }
  if (parts.includes('models')) {
    results.models = [];
    await models(files, (result) => {
      results.models.push(result);
      write();
      const { model, error, gpu, cpu, equalTokens } = result;
      console.log(
        error
          ? `${model}: ${error}`
          : `${model}: ${equalTokens} of ${kTokens} tokens equal, first ${gpu.firstTokenMs.toFixed(0)} ms, ` +
              `then ${gpu.tokenMs.toFixed(2)} ms (CPU ${cpu.tokenMs.toFixed(2)}), ${gpu.dispatches} dispatches`,
      );
    });
  }
  console.log(`written: ${out}`);
}
