// npm run bench:budget: checks that the memory budget is a hard limit. A model of 4 GB generates
// under budgets far below its size, natively and in a Chromium tab. Prints peak memory and fails
// when
//   - the wasm memory exceeds the budget,
//   - the renderer's resident memory exceeds the budget + 150 MB (VmHWM of /proc: its peak, the
//     browser's own code included), or the native program's the budget + 20 MB,
//   - a token differs from those of a run with the whole model in memory.
// The prompt fills the context except for the generated tokens, so the whole KV cache is in use. In
// the tab seven short generations follow.
// Then one tab repeats the same operation, to show that the bound lasts: twenty generations, thirty
// loads and disposals, ten changes of the budget. The worst figure counts. After a change to a
// lower budget, the renderer must be within that budget's bound after one second.
//   npm run bench:budget -- [--model SHAPE:TYPE|FILE] [--cases 256M:128,512M:512] [-n 4]
//                           [--long SHAPE:TYPE|FILE] [--native] [--web] [--lasting] [--short] [--no-build]
import { spawn } from 'node:child_process';
import { statSync, writeFileSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { capture, inRoot, parseBytes } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { Bench, processMemory, scratchFolder } from './browser.mjs';
import { modelFile, modelLabel, promptWords, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'llama-2-7b:q4_0' },
    cases: { type: 'string', default: '256M:128,512M:512' },
    generate: { type: 'string', short: 'n', default: '4' },
    long: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    lasting: { type: 'boolean' },
    native: { type: 'boolean' },
    web: { type: 'boolean' },
    short: { type: 'boolean' }, // a prompt of 16 tokens, for a quick check
    'no-build': { type: 'boolean' },
  },
});
const all = !values.native && !values.web && !values.lasting;
const MB = 2 ** 20;
const kNativeRoom = 20 * MB;
const kRendererRoom = 150 * MB;
const kMore = 7; // short generations in the tab after the first
const n = Number(values.generate);

const cases = values.cases.split(',').map((text) => {
  const [budget, context] = text.split(':');
  return { budget: parseBytes(budget), context: Number(context) };
});

/** Runs the program to its end and samples its memory every 5 ms. */
function native(args) {
  return new Promise((done, fail) => {
    const child = spawn(inRoot('build', 'native', 'sluice'), args, {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    let peak = 0;
    child.stdout.setEncoding('utf8').on('data', (text) => (output += text));
    const look = setInterval(() => {
      try {
        peak = Math.max(peak, processMemory(child.pid).peak);
      } catch {
        /* The process has just exited. */
      }
    }, 5);
    child.on('close', (code) => {
      clearInterval(look);
      if (code === 0) done({ ...JSON.parse(output), peak });
      else fail(new Error(`sluice exited with status ${code}`));
    });
  });
}

/** Words of a prompt that fills the context except for the generated tokens. */
async function promptFor(file, context) {
  const length = values.short ? 16 : context - n;
  const words = promptWords(length);
  const folder = scratchFolder();
  let low = 1;
  let high = words.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    writeFileSync(`${folder}/text`, words.slice(0, middle).join(' '));
    const { output } = await capture(inRoot('build', 'native', 'sluice'), [
      'tokenize',
      file,
      '--file',
      `${folder}/text`,
    ]);
    if (JSON.parse(output).length <= length) low = middle;
    else high = middle - 1;
  }
  return words.slice(0, low).join(' ');
}

async function checkNative(file) {
  const rows = [];
  for (const { budget, context } of cases) {
    const prompt = await promptFor(file, context);
    const args = [
      'run',
      '--raw',
      file,
      '-p',
      prompt,
      '-n',
      String(n),
      '--temp',
      '0',
      '--ignore-eos',
      '--json',
      '--ctx',
      String(context),
    ];
    const bounded = await native([...args, '--memory-budget', String(budget)]);
    const whole = await native(args);
    rows.push({
      side: 'native',
      budget,
      context,
      tokens: bounded.promptTokens + n,
      held: bounded.peak,
      room: kNativeRoom,
      heap: bounded.memory.total,
      rate: ((n - 1) * 1000) / bounded.generateMs,
      same: bounded.text === whole.text && bounded.text !== '',
    });
  }
  return rows;
}

// In the page: one generation and `more` short ones.
async function generateThere({ url, budget, context, prompt, n, more = 0 }) {
  const { Engine } = await import('/dist/index.js');
  const engine = await Engine.load(new URL(url, location.href), {
    memoryBudget: budget,
    contextLength: context,
  });
  await engine.downloaded;
  const generation = engine.generate(prompt, { maxTokens: n, temperature: 0, ignoreEos: true });
  const tokens = [];
  for await (const piece of generation) tokens.push(piece.token);
  const { usage, timings } = await generation.result;
  for (let i = 0; i < more; i++)
    await engine.generate('the mill', {
      maxTokens: n,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
    }).result;
  const out = {
    tokens,
    usage,
    rate: timings.tokensPerSecond,
    heap: engine.memory().heap,
    limit: engine.memory().budget,
    resident: engine.info.plan.resident,
  };
  await engine.dispose();
  return out;
}

async function checkWeb(file) {
  const bench = await Bench.open([['/model/', dirname(resolve(file))]]);
  const rows = [];
  try {
    for (const { budget, context } of cases) {
      const prompt = await promptFor(file, context);
      const work = { url: `/model/${basename(file)}`, budget, context, prompt, n };
      const { result, memory } = await bench.run(generateThere, { ...work, more: kMore });
      const whole = (await bench.run(generateThere, { ...work, budget: 4 * 2 ** 30 - 65536 }))
        .result;
      if (!whole.resident) throw new Error('the model does not fit in the largest wasm memory');
      rows.push({
        side: 'Chromium',
        budget,
        context,
        tokens: result.usage.totalTokens,
        held: memory.peak,
        room: kRendererRoom,
        heap: result.heap,
        rate: result.rate,
        same:
          result.tokens.length === n &&
          result.tokens.every((token, i) => token === whole.tokens[i]),
      });
    }
  } finally {
    await bench.close();
  }
  return rows;
}

// In the page: repeats one operation and records the renderer's memory after each.
async function lastThere({ url, what, budget, low, times }) {
  const { Engine } = await import('/dist/index.js');
  const pause = () => new Promise((done) => setTimeout(done, 1000));
  const memory = async () => (await fetch('/memory')).json();
  const load = () =>
    Engine.load(new URL(url, location.href), { memoryBudget: budget, contextLength: 256 });
  const answer = (engine, maxTokens) =>
    engine.generate('the mill', { maxTokens, temperature: 0, ignoreEos: true, cachePrompt: false })
      .result;
  const held = [];
  let engine = await load();
  await engine.downloaded;
  for (let i = 0; i < times; i++) {
    if (what === 'generations') await answer(engine, 16);
    if (what === 'loads') {
      await engine.dispose();
      engine = await load();
      await answer(engine, 1);
    }
    if (what === 'moves') {
      await engine.setMemoryBudget(budget);
      await answer(engine, 4);
      await engine.setMemoryBudget(low);
      await pause();
    }
    held.push((await memory()).rss);
  }
  await engine.dispose();
  await pause();
  return { held, after: (await memory()).rss };
}

async function checkLasting(file) {
  const bench = await Bench.open([['/model/', dirname(resolve(file))]]);
  const rows = [];
  try {
    for (const [what, times, budget, low] of [
      ['generations', 20, 64 * MB],
      ['loads', 30, 64 * MB],
      ['moves', 10, 500 * MB, 100 * MB],
    ]) {
      const { result, memory } = await bench.run(lastThere, {
        url: `/model/${basename(file)}`,
        what,
        times,
        budget,
        low,
      });
      console.log(
        `${what}: ${result.held.map(mb).join(', ')}; after dispose() ${mb(result.after)}`,
      );
      rows.push({
        what: `${times} ${what}`,
        budget,
        low,
        first: result.held[0],
        worst: Math.max(...result.held),
        last: result.held.at(-1),
        after: result.after,
        peak: memory.peak,
      });
    }
  } finally {
    await bench.close();
  }
  return rows;
}

function reportLasting(file, rows) {
  console.log(
    `\n${modelLabel(file)}, in one tab: resident memory of the renderer (VmRSS; peak: VmHWM)`,
  );
  console.log(
    table([
      [
        '',
        'budget',
        'after the first',
        'after the last',
        'worst',
        'allowed',
        'peak',
        'allowed',
        'after dispose()',
      ],
      ...rows.map((r) => [
        r.what,
        r.low ? `${mb(r.budget)} to ${mb(r.low)}` : mb(r.budget),
        mb(r.first),
        mb(r.last),
        mb(r.worst),
        mb((r.low ?? r.budget) + kRendererRoom),
        mb(r.peak),
        mb(r.budget + kRendererRoom),
        mb(r.after),
      ]),
    ]),
  );
  return rows.filter(
    (r) => r.worst > (r.low ?? r.budget) + kRendererRoom || r.peak > r.budget + kRendererRoom,
  );
}

setup('bench');
if (!values['no-build']) await build([]);
const mb = (bytes) => `${(bytes / MB).toFixed(0)} MB`;
const rows = [];
if (all || values.native || values.web) {
  const file = modelFile(values.model);
  if (statSync(file).size < cases[0].budget * 2)
    console.log('The model is smaller than twice the budget: this run shows little.');
  if (all || values.native) rows.push(...(await checkNative(file)));
  if (all || values.web) rows.push(...(await checkWeb(file)));
  console.log(`\n${modelLabel(file)}; resident memory is the peak that /proc reports (VmHWM)`);
  console.log(
    table([
      [
        '',
        'budget',
        'context',
        'tokens',
        'engine',
        'resident',
        'allowed',
        'decode tok/s',
        'same as resident',
      ],
      ...rows.map((r) => [
        r.side,
        mb(r.budget),
        String(r.context),
        String(r.tokens),
        mb(r.heap),
        mb(r.held),
        mb(r.budget + r.room),
        r.rate,
        r.same ? 'same tokens' : 'DIFFERENT TOKENS',
      ]),
    ]),
  );
}
const broken = rows
  .filter((r) => !r.same || r.heap > r.budget || r.held > r.budget + r.room)
  .map((r) => `${r.side}, ${mb(r.budget)}`);
if (all || values.lasting) {
  const file = modelFile(values.long);
  broken.push(...reportLasting(file, await checkLasting(file)).map((r) => r.what));
}
for (const what of broken) console.error(`${what}: memory bound exceeded, or different tokens`);
if (broken.length) process.exitCode = 1;
