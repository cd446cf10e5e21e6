// npm run demo: builds the example page and serves it with a sample model that writes stories.
//   npm run demo                          builds, serves the page and prints its URL
//   npm run demo -- --headless            runs in headless Chromium and prints the story
//   options: --model FILE|URL  --budget 64M  --prompt TEXT  --max-tokens N  --threads N
//            --temperature T  --seed N  --rate BYTES/S (limits the server)  --port N  --no-build
// The model is loaded with HTTP range requests. The default budget is 80 % of its size.
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildDemo } from './build.mjs';
import { chromiumArgs, headlessPath, inRoot, parseBytes } from './lib.mjs';
import { serve } from './serve.mjs';
import { setup } from './setup.mjs';

const sampleModel = inRoot('examples', 'models', 'sluice-tales-F16.gguf');
const kBudgetShare = 0.8; // default budget as a fraction of the model's size

function readOptions() {
  const { values } = parseArgs({
    options: {
      headless: { type: 'boolean' },
      'no-build': { type: 'boolean' },
      model: { type: 'string', default: sampleModel },
      budget: { type: 'string' },
      prompt: { type: 'string', default: 'Once upon a time' },
      'max-tokens': { type: 'string', default: '200' },
      temperature: { type: 'string', default: '0.7' },
      seed: { type: 'string', default: '7' },
      threads: { type: 'string', default: '0' },
      rate: { type: 'string', default: '0' },
      port: { type: 'string', default: '0' },
    },
  });
  const isUrl = /^https?:/.test(values.model);
  if (!isUrl && !existsSync(values.model)) throw new Error(`${values.model}: no such file`);
  const size = isUrl ? 0 : statSync(values.model).size;
  return {
    ...values,
    isUrl,
    file: isUrl ? null : resolve(values.model),
    budget: values.budget
      ? parseBytes(values.budget)
      : Math.ceil((size * kBudgetShare) / 65536) * 65536,
  };
}

// Runs in the page: loads the model, generates, passes on each token, returns the statistics.
async function tellStory({ url, budget, threads, prompt, maxTokens, temperature, seed }) {
  const { Engine } = await import('/dist/index.js');
  const started = performance.now();
  const engine = await Engine.load(new URL(url, location.href), {
    memoryBudget: budget || undefined,
    threads: threads || undefined,
  });
  const generation = engine.generate(prompt, { maxTokens, temperature, seed });
  for await (const piece of generation) await globalThis.showPiece(piece.text);
  const { finishReason, usage, timings } = await generation.result;
  const figures = {
    finishReason,
    usage,
    timings,
    stats: engine.stats(),
    memory: engine.memory(),
    info: engine.info,
    isolated: crossOriginIsolated,
    totalMs: performance.now() - started,
  };
  await engine.dispose();
  return figures;
}

const mb = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

function figureLines(figures, modelBytes) {
  const { usage, timings, stats, memory } = figures;
  const size = modelBytes || stats.bytesTotal;
  return [
    `prompt    ${usage.promptTokens} tokens, ${timings.promptTokensPerSecond.toFixed(1)} tokens/s`,
    `story     ${usage.completionTokens} tokens, ${timings.tokensPerSecond.toFixed(1)} ` +
      `tokens/s, first after ${timings.timeToFirstTokenMs.toFixed(0)} ms (ended by ` +
      `${figures.finishReason})`,
    `engine    ${stats.kernels}, ${stats.threads} thread(s), ` +
      `${figures.isolated ? 'cross-origin isolated' : 'not isolated'}`,
    `bytes     ${mb(stats.bytesFetched)} over HTTP, ${mb(stats.bytesFromCache)} from the model ` +
      'cache',
    `memory    ${mb(memory.heap)} of a budget of ${mb(memory.budget)}, for a model of ` +
      `${mb(size)}: weights ${mb(memory.weights)}, KV cache ${mb(memory.kv)}, activations ` +
      `${mb(memory.activations)}, tokenizer ${mb(memory.tokenizer)}`,
  ];
}

async function runHeadless(server, options, url) {
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath: headlessPath, args: chromiumArgs });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    page.on('console', (m) => m.type() === 'error' && console.error(`page: ${m.text()}`));
    await page.exposeFunction('showPiece', (text) => void process.stdout.write(text));
    await page.goto(`${server.url}/bare`);
    process.stdout.write(`\n${options.prompt}`);
    const figures = await page.evaluate(tellStory, {
      url,
      budget: options.budget,
      threads: Number(options.threads),
      prompt: options.prompt,
      maxTokens: Number(options['max-tokens']),
      temperature: Number(options.temperature),
      seed: Number(options.seed),
    });
    const size = options.file ? statSync(options.file).size : 0;
    console.log(`\n\n${figureLines(figures, size).join('\n')}`);
    console.log(`server    ${server.counters.requests} requests, ${mb(server.counters.bytes)}`);
    if (figures.usage.completionTokens === 0) throw new Error('the model generated no tokens');
  } finally {
    await browser.close();
  }
}

async function main() {
  const options = readOptions();
  setup('demo');
  // --no-build uses the output of `npm run build`, with all engines.
  const { dist, site } = options['no-build']
    ? { dist: inRoot('dist'), site: inRoot('site') }
    : await buildDemo();
  if (!existsSync(site)) throw new Error('site/ is missing: run npm run build');
  const mounts = [
    ...(options.file ? [['/model/', dirname(options.file)]] : []),
    ['/dist/', dist],
    ['/models/', inRoot('examples', 'models')],
    ['/', site],
  ];
  const server = await serve(mounts, {
    port: Number(options.port),
    rate: parseBytes(options.rate),
    onRequest(request, response) {
      if (request.url !== '/bare') return false;
      response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>Sluice</title>');
      return true;
    },
  });
  const url = options.isUrl
    ? options.model
    : `/model/${encodeURIComponent(basename(options.file))}`;
  const query = new URLSearchParams({
    model: url,
    budget: String(options.budget),
    prompt: options.prompt,
  });
  console.log(`${server.url}/?${query}`);
  if (!options.headless) {
    console.log('Open this URL in a browser and press Load. Ctrl-C stops the server.');
    return;
  }
  try {
    await runHeadless(server, options, url);
  } finally {
    await server.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main().catch((e) => {
    console.error(
      `demo: ${e.message.split('\n')[0].replace(/^page\.evaluate: (\w*Error: )?/, '')}`,
    );
    process.exit(1);
  });
}
