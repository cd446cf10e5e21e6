// npm run bench:parallel: continuous batching in `sluice serve` against llama.cpp's library behind
// a server (baselines/server.mjs), in turns. Each client sends one request after another. Prints
// time to first token, time between tokens, and total throughput.
//   npm run bench:parallel -- [--model SHAPE:TYPE|FILE] [--threads 2] [--slots 8] [--clients 8] [-p 64] [-n 48]
//                          [--answers 3] [--rounds 2] [--no-build]
// --tab: compares one session with `--slots` sessions in a Chromium tab instead (parallel-tab.mjs).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { Client, at, listening, told } from './client.mjs';
import { measureTab } from './parallel-tab.mjs';
import { installPeer, modelFile, modelLabel, promptWords, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    threads: { type: 'string', default: '2' },
    slots: { type: 'string', default: '8' },
    clients: { type: 'string', default: '8' },
    prompt: { type: 'string', short: 'p', default: '64' },
    generate: { type: 'string', short: 'n', default: '48' },
    answers: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '2' },
    tab: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const [slots, clients, length, most, answers] = [
  'slots',
  'clients',
  'prompt',
  'generate',
  'answers',
].map((name) => Number(values[name]));
setup('bench');
if (!values['no-build']) await build(values.tab ? ['wasm', 'web'] : ['native']);
const file = modelFile(values.model);
if (values.tab) {
  await measureTab({
    file,
    label: modelLabel(file),
    threads: Number(values.threads),
    slots,
    length,
    most,
    rounds: Number(values.rounds),
  });
  process.exit();
}
installPeer('node-llama-cpp');
const context = String(4 * length + most); // a word is a few tokens at most

const sides = [
  [
    'sluice serve',
    () => [
      inRoot('build', 'native', 'sluice'),
      'serve',
      file,
      '--port',
      '0',
      '--json',
      '--quiet',
      '--ctx',
      context,
      '--threads',
      values.threads,
      '--parallel',
      values.slots,
      '--no-structured-output',
    ],
  ],
  [
    'llama.cpp',
    () => [
      process.execPath,
      inRoot('tests', 'bench', 'baselines', 'server.mjs'),
      file,
      values.threads,
      values.slots,
      context,
    ],
  ],
];

// Every prompt starts with another word, so that no two share a prefix.
const prompt = (client, n) =>
  promptWords(length + client * answers + n)
    .slice(client * answers + n)
    .join(' ');

async function measure(command) {
  const server = spawn(command[0], command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'] });
  const client = new Client(await listening(server));
  const times = { first: [], next: [] };
  const one = async (words, n, into) => {
    let last = performance.now();
    let tokens = 0;
    const { status } = await client.ask(
      '/v1/completions',
      { model: 'any', prompt: words, temperature: 0, max_tokens: n, stream: true },
      (frame) => {
        if (told(frame) === '') return true;
        const now = performance.now();
        (tokens++ === 0 ? into.first : into.next).push(now - last);
        last = now;
        return true;
      },
    );
    if (status !== 200) throw new Error(`a client got ${status}`);
    return tokens;
  };
  await one('the mill', 4, { first: [], next: [] }); // warms up
  const start = performance.now();
  const made = await Promise.all(
    Array.from({ length: clients }, async (_, i) => {
      let tokens = 0;
      for (let n = 0; n < answers; n++) tokens += await one(prompt(i, n), most, times);
      return tokens;
    }),
  );
  const seconds = (performance.now() - start) / 1000;
  client.close();
  const ended = once(server, 'exit');
  server.kill('SIGTERM');
  await ended;
  return { rate: made.reduce((a, b) => a + b) / seconds, times };
}

const all = sides.map(() => ({ rate: 0, first: [], next: [] }));
for (let round = 0; round < Number(values.rounds); round++) {
  for (const [i, [, command]] of sides.entries()) {
    const { rate, times } = await measure(command());
    all[i].rate = Math.max(all[i].rate, rate);
    for (const key of ['first', 'next']) all[i][key].push(...times[key]);
  }
}
console.log(
  `\n${modelLabel(file)}, ${values.threads} threads, ${clients} clients, ${slots} sequences, prompts of ${length} words, ${most} tokens each`,
);
console.log(
  table([
    ['', 'tokens/s', 'first: p50 ms', 'p99', 'between: p50 ms', 'p99'],
    ...all.map(({ rate, first, next }, i) => [
      sides[i][0],
      rate,
      at(first, 0.5),
      at(first, 0.99),
      at(next, 0.5),
      at(next, 0.99),
    ]),
  ]),
);
console.log(`${(all[0].rate / all[1].rate).toFixed(2)} times the throughput`);
