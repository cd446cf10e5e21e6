// SIGTERM: connections that are idle, half open or have sent a part of a request end at once,
// running requests within the shutdown timeout, and nothing that a client does or omits keeps the
// process alive. Also the time limits for clients that are slow or do not read.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { longOnly } from '../extent.mjs';
import { context, first, inNode, program, request, Server } from './server.mjs';

after(() => {
  for (const child of Server.running) child.kill('SIGKILL'); // left by failed tests
});

const head = 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
/** What a client may have sent of a request. */
const parts = {
  nothing: '',
  'half of the first line': 'POST /v1/comp',
  'half of the headers': `${head}Content-Len`,
  'headers without the body': `${head}Content-Length: 1000\r\n\r\n`,
  'half of the body': `${head}Content-Length: 1000\r\n\r\n{"prompt":`,
  'half of a chunked body': `${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"pro\r\n`,
  'a question for 100 Continue': `${head}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n`,
};
const health = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n';

/** Logit biases that prevent the end of a completion. */
async function endless(server) {
  const { tokens } = await server.json('/tokenize', {
    content: '<|endoftext|><|end|>',
    add_special: false,
  });
  return Object.fromEntries(tokens.map((token) => [token, -100]));
}

/** The request of a stream of 8 MB, which fills every buffer of a client that does not read. */
const flood = async (server, stream = true) =>
  request('/v1/chat/completions', {
    messages: [{ role: 'user', content: 'a' }],
    max_tokens: 480,
    n: 10,
    temperature: 0,
    logprobs: true,
    top_logprobs: 20,
    stream,
    logit_bias: await endless(server),
  });

/** Waits until the server does nothing: its streams wait for their readers. */
async function stalled(server) {
  const ticks = () => {
    const fields = readFileSync(`/proc/${server.child.pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return Number(fields[11]) + Number(fields[12]);
  };
  await server.until('sluice_requests_running', (n) => n > 0);
  for (let before = -9; ticks() - before > 2; await sleep(200)) before = ticks();
}

/** Half-open connections of every kind, and one that is idle after a request. */
async function halfOpen(server) {
  const sockets = [];
  for (const bytes of Object.values(parts)) sockets.push(await server.open(bytes));
  const idle = await server.open(health);
  await once(idle, 'data');
  sockets.push(idle);
  await server.until('sluice_connections', (n) => n > sockets.length);
  return sockets;
}

/** Resolves when the server has ended the connection, or reset it. */
const ended = (socket) =>
  new Promise((resolve) => socket.on('end', resolve).on('close', resolve).resume());

/** All that a connection still receives. */
async function rest(socket) {
  let text = '';
  socket.setEncoding('utf8').on('data', (more) => (text += more));
  await ended(socket);
  return text;
}

// One choice at a time: the server computes hardly more than fills the buffers.
const alone = ['--ctx', `${context}`, '--parallel', '1'];
const untimed = [...alone, '--shutdown-timeout', '3600'];

test('idle and half-open connections end at SIGTERM', { timeout: 60_000 }, async () => {
  const server = await Server.start(...untimed);
  const sockets = await halfOpen(server);
  assert.equal(await server.stop(), 0);
  for (const socket of sockets) socket.destroy();
});

test('an incomplete request ends while a complete one runs on', { timeout: 120_000 }, async () => {
  const server = await Server.start(...untimed);
  const reader = await server.open(await flood(server));
  await stalled(server);
  const sockets = await halfOpen(server);
  const ends = sockets.map(ended);
  server.child.kill('SIGTERM');
  await Promise.all(ends);
  // Nobody else can connect.
  for (;;) {
    const socket = connect(server.port, '127.0.0.1');
    const [error] = await Promise.race([once(socket, 'connect'), once(socket, 'error')]).catch(
      (refused) => [refused],
    );
    socket.destroy();
    if (error?.code === 'ECONNREFUSED') break;
  }
  const text = await rest(reader);
  assert.match(text, /data: \[DONE\]\n\n/);
  assert.equal(text.split('"finish_reason":"length"').length - 1, 10);
  assert.equal(await server.exit, 0); // although the reader has not closed its side
  for (const socket of [reader, ...sockets]) socket.destroy();
});

test('the shutdown timeout ends clients that read nothing', { timeout: 120_000 }, async () => {
  const server = await Server.start(...alone, '--shutdown-timeout', '1');
  const deaf = await server.open(await flood(server));
  await stalled(server);
  assert.equal(await server.stop(), 0);
  deaf.destroy();
});

// For Node serve-node.test.mjs has it, too.
const twice = { skip: inNode && longOnly, timeout: 120_000 };
test('a second signal ends everything', twice, async () => {
  const server = await Server.start(...untimed);
  const deaf = await server.open(await flood(server));
  await stalled(server);
  const whole = await flood(server, false);
  const waiting = await Promise.all(Array.from({ length: 3 }, () => server.open(whole)));
  await server.until('sluice_requests_waiting', (n) => n === 3);
  const sockets = await halfOpen(server);
  server.child.kill('SIGTERM');
  // The first signal has arrived when idle connections end.
  await ended(sockets.at(-1));
  server.child.kill('SIGINT');
  const texts = await Promise.all(waiting.map(rest));
  for (const text of texts) assert.match(text, /^HTTP\/1.1 503 /);
  assert.equal(await server.exit, 0);
  for (const socket of [deaf, ...waiting, ...sockets]) socket.destroy();
});

test('a signal while the model loads ends the program with 130', async () => {
  for (const [command, signal] of [
    [['serve', '--port', '0'], 'SIGTERM'],
    [['run', '-p', 'a'], 'SIGINT'],
  ]) {
    const silent = createServer().listen(0, '127.0.0.1'); // a source that never answers
    await once(silent, 'listening');
    const url = `http://127.0.0.1:${silent.address().port}/model.gguf`;
    const child = spawn(program, [...first, ...command, url], { stdio: 'ignore' });
    const [connection] = await once(silent, 'connection');
    child.kill(signal);
    assert.deepEqual(await once(child, 'exit'), [130, null], command[0]);
    connection.destroy();
    silent.close();
  }
});

test('a connection ends after an invalid request, although the client stays', async () => {
  const server = await Server.start('--ctx', `${context}`);
  const sockets = await Promise.all(
    Array.from({ length: 20 }, () => server.open('nonsense\r\n\r\n')),
  );
  for (const text of await Promise.all(sockets.map(rest))) assert.match(text, /^HTTP\/1.1 400 /);
  await server.until('sluice_connections', (n) => n < 20);
  for (const socket of sockets) socket.destroy();
  assert.equal(await server.stop(), 0);
});

test('requests on a connection that breaks are cancelled, also pipelined ones', async () => {
  const server = await Server.start('--ctx', `${context}`, '--parallel', '2');
  const bytes = await flood(server);
  const socket = await server.open(bytes + bytes);
  await once(socket, 'data');
  socket.destroy();
  await server.until('sluice_requests_running', (n) => n === 0);
  await server.until('sluice_requests_waiting', (n) => n === 0);
  assert.equal(await server.stop(), 0);
  assert.doesNotMatch(server.log, /"finish":"(length|stop)"/);
});

test(
  'clients that send too slowly get 408, those that read nothing are disconnected',
  { skip: longOnly, timeout: 180_000 },
  async () => {
    const server = await Server.start('--ctx', `${context}`);
    const deaf = await server.open(await flood(server));
    const slow = Object.entries(parts).filter(([kind]) => kind !== 'nothing' || inNode);
    const sockets = await Promise.all(slow.map(([, bytes]) => server.open(bytes)));
    const dripped = await server.open();
    sockets.push(dripped);
    const bytes = `${head}Content-Length: 99\r\n\r\n${' '.repeat(99)}`;
    let sent = 0;
    const drip = setInterval(() => dripped.write(bytes[sent++]), 500);
    const texts = await Promise.all(sockets.map(rest));
    clearInterval(drip);
    assert.ok(sent < bytes.length);
    for (const [i, text] of texts.entries()) {
      // The native server answers only what has a first line.
      if (!inNode && slow[i]?.[0] === 'half of the first line') assert.equal(text, '');
      else assert.match(text, /HTTP\/1.1 408 [^]*"timeout"/, slow[i]?.[0]);
    }
    await server.until('sluice_requests_running', (n) => n === 0);
    await server.until('sluice_connections', (n) => n <= 2);
    assert.equal(await server.stop(), 0);
    for (const socket of [deaf, ...sockets]) socket.destroy();
  },
);
