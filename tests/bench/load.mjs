// Load test of `sluice serve`: many clients for some minutes, some of which disconnect during a
// completion and some of which send invalid requests. Fails if the server exits, if a completion
// differs from the same request alone, if a valid request gets an error other than 429, or if
// memory grows. Prints time to first token, time between tokens, and how many requests had each
// outcome.
//   npm run bench:load -- [--minutes 10] [--clients 64] [--parallel 8] [--draft ngram] [--model FILE]
//                         [--threads N] [--program build/native/sluice]
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { inRoot } from '../../web/scripts/lib.mjs';
import { Client, at, listening, told } from './client.mjs';

const { values: options } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    clients: { type: 'string', default: '64' },
    parallel: { type: 'string', default: '8' },
    draft: { type: 'string', default: 'ngram' },
    threads: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
    program: { type: 'string', default: inRoot('build', 'native', 'sluice') },
    model: { type: 'string', default: inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf') },
  },
});
const minutes = Number(options.minutes);
const starts = [
  'Once upon a time',
  'The little fox',
  'One day, Lily',
  'There was a big dog',
  'Tom and Mia',
  'The rain had stopped',
];

/** Seeded random numbers in [0, 1) (mulberry32). */
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const server = spawn(
  options.program,
  [
    'serve',
    options.model,
    '--port',
    '0',
    '--json',
    '--quiet',
    '--ctx',
    '512',
    '--threads',
    options.threads,
    '--parallel',
    options.parallel,
    '--max-queue',
    '256',
    '--draft',
    options.draft,
  ],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
let ended;
server.once('exit', (code, signal) => (ended = code ?? signal));
const client = new Client(await listening(server));

/** Request number n. The same request has one completion, whatever else the server runs. */
function question(n) {
  const chat = n % 3 === 2;
  const base = {
    model: 'any',
    seed: n,
    temperature: n % 2 ? 0.9 : 0,
    max_tokens: 8 + ((n * 7) % 40),
    stream: true,
  };
  const start = starts[n % starts.length];
  return chat
    ? [
        '/v1/chat/completions',
        { ...base, messages: [{ role: 'user', content: `${start} number ${n}` }] },
      ]
    : ['/v1/completions', { ...base, prompt: `${start} number ${n} `.repeat(1 + (n % 3)) }];
}

async function answer(n, times) {
  let text = '';
  let last = performance.now();
  const result = await client.ask(...question(n), (frame) => {
    const piece = told(frame);
    if (piece !== '') {
      const now = performance.now();
      (text === '' ? times?.first : times?.next)?.push(now - last);
      last = now;
    }
    text += piece;
    return true;
  });
  return { ...result, said: text };
}

const nonsense = [
  '{',
  '',
  '[]',
  '"text"',
  'null',
  '{"prompt": 5}',
  '{"prompt": "a", "max_tokens": -7}',
  '{"prompt": "a", "temperature": "hot"}',
  '{"messages": "hello"}',
  '{"messages": [{"role": "king", "content": "x"}]}',
  '{"prompt": "a", "n": 100000}',
  '{"prompt": "a", "no_such_option": 1}',
  `{"prompt": "${'a'.repeat(1 << 16)}"}`,
  `${'['.repeat(5000)}`,
  '{"prompt": "\ud800"}',
  '{"prompt": "a", "logit_bias": {"x": 1}}',
];
const wreckage = [
  'GET / HTTP/9.9\r\n\r\n',
  'POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n',
  '\0\0\0\0\r\n\r\n',
  'POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{',
  `GET /${'x'.repeat(20000)} HTTP/1.1\r\n\r\n`,
  'POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
  'DELETE /v1/models HTTP/1.1\r\nHost: a\r\n\r\n',
];

/** Sends bytes that are not a valid request, and disconnects after `wait` ms. */
function wreck(bytes, wait) {
  return new Promise((resolve) => {
    const socket = connect(client.port, '127.0.0.1', () => socket.write(bytes));
    socket
      .on('data', () => {})
      .on('error', () => {})
      .on('close', resolve);
    setTimeout(() => socket.destroy(), wait).unref();
  });
}

const questions = 96;
const alone = [];
for (let n = 0; n < questions; n++) {
  const { status, said } = await answer(n);
  if (status !== 200) throw new Error(`question ${n} alone: ${status}`);
  alone.push(said);
}

const counts = { answered: 0, left: 0, refused: 0, wrecked: 0, busy: 0 };
const times = { first: [], next: [] };
const faults = [];
const until = performance.now() + minutes * 60_000;

async function live(number) {
  const random = numbers(Number(options.seed) * 1000 + number);
  const pick = (list) => list[Math.floor(random() * list.length)];
  while (performance.now() < until && ended === undefined) {
    const kind = random();
    const n = Math.floor(random() * questions);
    if (kind < 0.7) {
      const { status, said, headers } = await answer(n, times);
      if (status === 429) {
        counts.busy++;
        await sleep(1000 * Number(headers['retry-after'] ?? 1));
      } else if (status !== 200) faults.push(`question ${n}: status ${status}`);
      else if (said !== alone[n])
        faults.push(
          `question ${n}: ${JSON.stringify(said)} instead of ${JSON.stringify(alone[n])}`,
        );
      else counts.answered++;
    } else if (kind < 0.85) {
      let pieces = Math.floor(random() * 6);
      await client.ask(...question(n), () => pieces-- > 0);
      counts.left++;
    } else if (kind < 0.95) {
      const { status } = await client.ask(
        pick(['/v1/completions', '/v1/chat/completions', '/v1/embeddings', '/tokenize']),
        pick(nonsense),
      );
      if (status >= 400 && status < 500) counts.refused++;
      else if (status !== 200) faults.push(`nonsense: status ${status}`);
    } else {
      await wreck(pick(wreckage), random() * 200);
      counts.wrecked++;
    }
  }
}

/** Resident memory of the server in kB. */
const resident = () =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))[1]);
const memory = [];
const clock = setInterval(() => {
  if (ended === undefined) memory.push(resident());
}, 2000);
const failures = (
  await Promise.allSettled(Array.from({ length: Number(options.clients) }, (_, i) => live(i)))
).filter(({ reason }) => reason);
clearInterval(clock);
for (const { reason } of failures) faults.push(`a client: ${reason.message}`);

const span = (from, to) =>
  at(memory.slice(Math.floor(memory.length * from), Math.ceil(memory.length * to)), 0.5) / 1024;
const [early, late] = [span(0.2, 0.5), span(0.8, 1)];
const fixed = (x) => x.toFixed(1);
console.log(
  `${options.clients} clients, ${options.parallel} sequences, ${minutes} minutes: ${JSON.stringify(counts)}`,
);
console.log(
  `time to first token: p50 ${fixed(at(times.first, 0.5))} ms, p99 ${fixed(at(times.first, 0.99))} ms (of ${times.first.length})`,
);
console.log(
  `time between tokens: p50 ${fixed(at(times.next, 0.5))} ms, p99 ${fixed(at(times.next, 0.99))} ms (of ${times.next.length})`,
);
console.log(
  `memory: ${fixed(early)} MB early, ${fixed(late)} MB at the end, peak ${fixed(Math.max(...memory) / 1024)} MB`,
);
if (late > early * 1.03 + 2) faults.push(`memory grew from ${early} to ${late} MB`);
if (ended !== undefined) faults.push(`the server exited: ${ended}`);
else {
  server.kill('SIGTERM');
  while (ended === undefined) await sleep(50);
  if (ended !== 0) faults.push(`the server exited with ${ended}`);
}
client.close();
for (const fault of faults.slice(0, 20)) console.error(fault);
console.log(`${faults.length} faults`);
process.exitCode = faults.length > 0 ? 1 : 0;
