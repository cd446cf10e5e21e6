// Random clients against a server: whole and streamed requests, some of which disconnect, send only
// a part, send slowly, read nothing or send garbage; and signals in the middle of all that. Every
// complete answer equals the one that a client gets alone, and nothing is left behind.
//   SLUICE_RANDOM_SEED=n SLUICE_RANDOM_OPERATIONS=n node --test tests/serve/random.test.mjs
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { after, before, test } from 'node:test';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

import { extent } from '../extent.mjs';
import { random } from '../web/random.mjs';
import { context, inNode, prompts, request, Server } from './server.mjs';

const seed = Number(process.env.SLUICE_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 31));
const clients = Number(process.env.SLUICE_RANDOM_OPERATIONS ?? extent(192, 6000));
const perRound = 24;

after(() => {
  for (const child of Server.running) child.kill('SIGKILL'); // left by failed tests
});

/** A request on a connection of its own. `complete`: the whole response has arrived. */
function ask(server, path, body, { onData = () => {}, dropAfter = Infinity } = {}) {
  return new Promise((resolve) => {
    const answer = { status: 0, text: '', complete: false };
    let events = 0;
    const call = httpRequest(
      `${server.url}${path}`,
      {
        agent: false,
        method: body ? 'POST' : 'GET',
        headers: { 'content-type': 'application/json' },
      },
      (response) => {
        answer.status = response.statusCode;
        response.setEncoding('utf8').on('data', (more) => {
          answer.text += more;
          onData();
          if (++events >= dropAfter) response.destroy();
        });
        response
          .on('error', () => {})
          .on('close', () => {
            answer.complete = response.complete && events < dropAfter;
            resolve(answer);
          });
      },
    );
    call.on('error', () => resolve(answer)).end(body && JSON.stringify(body));
  });
}

const kinds = {
  /** Each of these answers has a right value, which `wanted` holds. */
  whole: (pick) => ({ path: '/v1/completions', body: completion(pick) }),
  streamed: (pick) => ({ path: '/v1/completions', body: { ...completion(pick), stream: true } }),
  chat: (pick) => ({ path: '/v1/chat/completions', body: chat(pick) }),
  embeddings: (pick) => ({ path: '/v1/embeddings', body: { input: pick(prompts) } }),
  tokens: (pick) => ({ path: '/tokenize', body: { content: pick(prompts) } }),
};
const completion = (pick) => ({
  prompt: pick(prompts),
  max_tokens: pick([1, 8, 24]),
  temperature: 0,
  n: pick([1, 1, 2]),
});
const chat = (pick) => ({
  messages: [{ role: 'user', content: pick(prompts) }],
  max_tokens: pick([4, 16]),
  temperature: 0,
  stream: pick([true, false]),
});

/** What is the same in every answer to a request; null: an error. */
function essence({ status, text }) {
  if (status !== 200) return null;
  if (!text.startsWith('data: ')) {
    const { choices, data, tokens } = JSON.parse(text);
    return JSON.stringify({ choices, data, tokens });
  }
  const frames = text.split('\n\n').filter(Boolean);
  if (frames.pop() !== 'data: [DONE]') return null; // an error inside the stream
  const texts = [];
  for (const frame of frames) {
    for (const { index, text: part, delta, finish_reason: reason } of JSON.parse(frame.slice(6))
      .choices) {
      const piece = part ?? delta.content ?? '';
      texts[index] = (texts[index] ?? '') + piece + (reason ? `<${reason}>` : '');
    }
  }
  return JSON.stringify(texts);
}

/** The answers that a client gets alone, by path and body. */
const quiet = new Map();
async function wanted(server, { path, body }) {
  const key = path + JSON.stringify(body);
  if (!quiet.has(key)) quiet.set(key, essence(await ask(server, path, body)));
  assert.notEqual(quiet.get(key), null, key);
  return quiet.get(key);
}

/** One client, as a function that resolves when it has ended; and its description. */
function client(next, held) {
  const below = (n) => Math.floor(next() * n);
  const pick = (list) => list[below(list.length)];
  const wish = kinds[pick(Object.keys(kinds))](pick);
  const bytes = request(wish.path, wish.body, 'Connection: close\r\n');
  const how = pick(['reads', 'reads', 'reads', 'drops', 'part', 'slow', 'deaf', 'garbage']);
  const cut = below(bytes.length);
  const stays = pick(['destroys', 'ends', 'stays']);
  const dropAfter = 1 + below(4);
  const size = 1 + below(40);
  const odd = Array.from({ length: 4 }, () => [below(bytes.length), below(256)]);
  const leave = (socket) => {
    if (stays === 'destroys') socket.destroy();
    else if (stays === 'ends') socket.end();
    held.push(socket);
  };
  const run = {
    async reads(server, onData) {
      return ask(server, wish.path, wish.body, { onData });
    },
    async drops(server, onData) {
      await ask(server, wish.path, wish.body, { onData, dropAfter });
    },
    async part(server) {
      leave(await server.open(bytes.slice(0, cut)));
    },
    async slow(server, onData) {
      const socket = await server.open();
      held.push(socket);
      const ended = new Promise((resolve) => socket.on('end', resolve).on('close', resolve));
      for (let at = 0; at < bytes.length && socket.writable; at += size) {
        await Promise.race([
          ended,
          new Promise((sent) => socket.write(bytes.slice(at, at + size), sent)),
        ]);
        await turn();
      }
      let text = '';
      socket.setEncoding('utf8').on('data', (more) => {
        text += more;
        onData();
      });
      await ended;
      const body = text.slice(text.indexOf('\r\n\r\n') + 4);
      const length = Number(/^content-length: (\d+)/im.exec(text)?.[1]);
      const complete = length === Buffer.byteLength(body); // streams are checked elsewhere
      return { status: Number(text.slice(9, 12)), text: body, complete };
    },
    async deaf(server) {
      held.push((await server.open(bytes)).pause());
    },
    async garbage(server) {
      const damaged = Buffer.from(bytes);
      for (const [at, value] of odd) damaged[at] = value;
      leave(await server.open(damaged.subarray(0, Math.max(cut, 20))));
    },
  };
  return { wish, how: `${how} ${stays} ${JSON.stringify(wish)}`, start: run[how] };
}

const descriptors = (server) => readdirSync(`/proc/${server.child.pid}/fd`).length;
const memory = (server) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]);

/** Waits until the server has nothing left of earlier clients. */
async function settled(server, base) {
  const left = async () => {
    const { text } = await ask(server, '/metrics');
    const value = (name) => Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)[1]);
    return [
      value('sluice_requests_running'),
      value('sluice_requests_waiting'),
      value('sluice_connections') - 1,
      Math.max(0, descriptors(server) - base),
    ];
  };
  let now;
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(20)) {
    now = await left();
    if (now.every((n) => n === 0)) return;
  }
  assert.fail(`left: ${now.join(', ')} (running, waiting, connections, descriptors)`);
}

let server;
const options = ['--parallel', '3', '--ctx', `${context}`, '--shutdown-timeout', '3600'];
before(async () => (server = await Server.start(...options)));

test(
  `random clients, SLUICE_RANDOM_SEED=${seed}`,
  { timeout: extent(300, 3600) * 1000 },
  async () => {
    const next = random(seed);
    await ask(
      server,
      '/v1/completions',
      completion((list) => list.at(-1)),
    );
    const base = descriptors(server);
    let first;
    let answered = 0;
    for (let begun = 0; begun < clients; begun += perRound) {
      const held = [];
      const round = Array.from({ length: Math.min(perRound, clients - begun) }, () =>
        client(next, held),
      );
      const right = [];
      for (const { wish } of round) right.push(await wanted(server, wish));
      const answers = await Promise.all(round.map(({ start }) => start(server, () => {})));
      for (const [i, answer] of answers.entries()) {
        if (!answer?.complete) continue;
        assert.equal(essence(answer), right[i], `SLUICE_RANDOM_SEED=${seed}: ${round[i].how}`);
        answered++;
      }
      for (const [i, { how }] of round.entries())
        if (how.startsWith('reads')) assert.ok(answers[i].complete, how);
      for (const socket of held) socket.destroy();
      await settled(server, base);
      first ??= memory(server);
    }
    assert.ok(answered > clients / 4, `${answered}`);
    const more = memory(server) - first;
    assert.ok(more < (inNode ? 96 : 16) << 10, `${more} kB more`);
    assert.equal(await server.stop(), 0, server.log);
  },
);

const signals = extent(6, 60);
test(
  `signals at random moments, SLUICE_RANDOM_SEED=${seed}`,
  { timeout: extent(300, 3600) * 1000 },
  async () => {
    const next = random(seed + 1);
    for (let round = 0; round < signals; round++) {
      const one = await Server.start(...options);
      const held = [];
      const list = Array.from({ length: 12 }, () => client(next, held));
      const right = [];
      for (const { wish } of list) right.push(await wanted(one, wish));
      const moments = [Math.floor(next() * 30)];
      if (next() < 0.5) moments.push(moments[0] + Math.floor(next() * 10));
      const label = `SLUICE_RANDOM_SEED=${seed}, round ${round}, signals at ${moments.join(' and ')}`;
      let seen = 0;
      let sent = 0;
      const onData = () => {
        for (; moments[sent] <= seen; sent++) one.child.kill('SIGTERM');
        seen++;
      };
      const ends = list.map(({ start }) => start(one, onData).catch(() => undefined));
      if (moments[0] === 0) onData();
      const answers = await Promise.all(ends);
      if (sent === 0) one.child.kill('SIGTERM');
      assert.equal(await one.exit, 0, `${label}\n${one.log}`);
      for (const [i, answer] of answers.entries()) {
        if (!answer?.complete || answer.status === 503) continue;
        const got = essence(answer);
        if (got === null && answer.text.includes('shutting down')) continue; // inside a stream
        assert.equal(got, right[i], `${label}: ${list[i].how}`);
      }
      for (const socket of held) socket.destroy();
    }
  },
);
