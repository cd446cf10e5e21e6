// Starts a server for the tests of this directory: the native program's, or that of `npx sluice-llm
// serve` if SLUICE_SERVE is 'node'. Each test file runs against both: FILE-node.test.mjs sets the
// variable and imports FILE.test.mjs.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { inRoot } from '../../web/scripts/lib.mjs';

process.env.SLUICE_CACHE ??= 'none'; // not the user's
export const inNode = process.env.SLUICE_SERVE === 'node';
const nodeProgram = [process.execPath, inRoot('dist', 'cli.js')];
export const [program, ...first] = inNode ? nodeProgram : [inRoot('build', 'native', 'sluice')];
export const model = inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf');
export const prompts = [
  'Once upon a time',
  'The little fox',
  'One day, Lily',
  'There was a big dog',
];
export const context = 512;

const completions = new Map();

/** The greedy completion of a prompt, without a server. */
export function alone(prompt, tokens) {
  const key = `${tokens} ${prompt}`;
  if (!completions.has(key))
    completions.set(key, inNode ? generated(prompt, tokens) : complete(prompt, tokens));
  return completions.get(key);
}

let engine;

/** In Node by one engine: its `run` takes half a second to start (entries.test.mjs compares them). */
async function generated(prompt, maxTokens) {
  engine ??= import('../../dist/node.js').then(({ Engine }) => Engine.load(model, { threads: 1 }));
  return (await engine).generate(prompt, { maxTokens, temperature: 0 }).text();
}

/** Ends what alone() has started. */
export const closeAlone = async () => (await engine)?.dispose();

async function complete(prompt, tokens) {
  const args = ['run', '--raw', model, '-p', prompt, '-n', `${tokens}`, '--temp', '0', '--json'];
  const { stdout } = spawnSync(program, [...first, ...args, '--threads', '1'], {
    encoding: 'utf8',
  });
  return JSON.parse(stdout).text;
}

export class Server {
  static running = new Set();
  log = '';

  static start(...options) {
    return Server.#start([program, ...first], options);
  }

  /** A server of another model. */
  static startWith(file, ...options) {
    return Server.#start([program, ...first], options, file);
  }

  /** A server of a model with these bytes. Its file is deleted when the server ends. */
  static async startWithBytes(bytes, ...options) {
    const directory = mkdtempSync(join(tmpdir(), 'sluice-serve-'));
    const file = join(directory, 'model.gguf');
    const remove = () => rmSync(directory, { recursive: true });
    writeFileSync(file, bytes);
    const server = await Server.startWith(file, ...options).catch((error) => {
      remove();
      throw error;
    });
    server.exit = server.exit.finally(remove);
    return server;
  }

  /** The server in Node, whatever the variable says. */
  static startInNode(...options) {
    return Server.#start(nodeProgram, options);
  }

  static async #start([command, ...args], options, file = model) {
    const server = new Server();
    server.child = spawn(
      command,
      [...args, 'serve', file, '--port', '0', '--threads', '1', '--json', ...options],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    Server.running.add(server.child);
    server.exit = new Promise((resolve) =>
      server.child.once('exit', (code, signal) => {
        Server.running.delete(server.child);
        resolve(code ?? signal);
      }),
    );
    server.child.stderr.setEncoding('utf8').on('data', (text) => (server.log += text));
    const line = await new Promise((resolve, reject) => {
      server.child.stdout.setEncoding('utf8').once('data', resolve);
      server.child.once('exit', () => reject(new Error(`no server: ${server.log}`)));
    });
    Object.assign(server, JSON.parse(line));
    server.port = Number(new URL(server.url).port);
    return server;
  }

  async stop(signal = 'SIGTERM') {
    this.child.kill(signal);
    return this.exit;
  }

  post(path, body, { headers, ...options } = {}) {
    return fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...options,
    });
  }

  async json(path, body, options) {
    const response = await this.post(path, body, options);
    return { status: response.status, headers: response.headers, ...(await response.json()) };
  }

  /** The value of a metric. 0 if nothing has been counted yet, but its name must be declared. */
  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    assert.ok(text.includes(`# TYPE ${name.replace(/\{.*/, '')} `), `no metric ${name}`);
    const line = text.split('\n').find((l) => l.startsWith(`${name} `));
    return line ? Number(line.slice(name.length + 1)) : 0;
  }

  /** Waits until `wanted(value)` of a metric is true, at most 60 s. */
  async until(name, wanted) {
    for (const end = Date.now() + 60_000; Date.now() < end;) {
      if (wanted(await this.metric(name))) return;
      await sleep(10);
    }
    assert.fail(`${name} is ${await this.metric(name)}`);
  }

  /**
   * A connection that has sent `bytes`. Its own side stays open, whatever the server does. It reads
   * nothing until a caller does.
   */
  async open(bytes = '') {
    const socket = connect({ port: this.port, host: '127.0.0.1', allowHalfOpen: true });
    await once(socket, 'connect');
    socket.on('error', () => {});
    if (bytes) socket.write(bytes);
    return socket;
  }

  /**
   * Sends raw bytes and returns the response; stops when the server closes or `enough(text)` is
   * true.
   */
  raw(bytes, { enough = () => false, close = false } = {}) {
    return new Promise((resolve, reject) => {
      let text = '';
      const socket = connect(this.port, '127.0.0.1', () => {
        socket.write(bytes);
        if (close) socket.end();
      });
      socket.setTimeout(20_000, () => reject(new Error(`no end: ${text}`)));
      socket.setEncoding('latin1').on('data', (more) => {
        text += more;
        if (enough(text)) socket.destroy();
      });
      socket.on('close', () => resolve(text)).on('error', () => {});
    });
  }
}

/** The bytes of a POST request. */
export function request(path, body, headers = '') {
  const text = JSON.stringify(body);
  return (
    `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n${headers}` +
    `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
  );
}

/** The events of a server-sent event stream that ends with [DONE]. */
export async function events(response) {
  const frames = (await response.text())
    .split('\n\n')
    .filter(Boolean)
    .map((frame) => frame.replace(/^data: /, ''));
  assert.equal(frames.pop(), '[DONE]');
  return frames.map((frame) => JSON.parse(frame));
}

/** The data of a stream's named events. */
export async function namedEvents(response) {
  assert.match(response.headers.get('content-type'), /^text\/event-stream/);
  const frames = (await response.text()).split('\n\n').filter(Boolean);
  return frames.map((frame) => {
    const [, name, data] = /^event: (\S+)\ndata: ([^\n]*)$/.exec(frame) ?? assert.fail(frame);
    const event = JSON.parse(data);
    assert.equal(event.type, name);
    return event;
  });
}
