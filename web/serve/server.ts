// The server of `npx sluice-llm serve`: OpenAI's API over HTTP by Node alone, as the native `sluice
// serve` speaks it. What is here is the wire: who may ask, how large and how slow a request may be,
// server-sent events that wait for their reader, clients that leave, and the end. routes.ts has
// what is answered.

import * as http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { createHash, timingSafeEqual } from 'node:crypto';
import { finished } from 'node:stream';

import type { Engine } from '../api/engine.js';
import { SluiceError } from '../protocol/errors.js';
import { errorBody, HttpError, httpError } from './errors.js';
import { Metrics } from './metrics.js';
import { Queue } from './queue.js';
import { routeOf, type Answer, type Record, type Served } from './routes.js';

export interface ServeOptions {
  /** 0: any free one. */
  port: number;
  /** Default 127.0.0.1. */
  host: string;
  /** The model's name in answers. */
  model: string;
  /** Asked of every request but /health; '': none is. */
  apiKey: string;
  /** The origin of pages that may ask; '*': all; '': none. */
  cors: string;
  /** Requests that may wait. */
  queue: number;
  /** Bytes of a body. */
  maxBody: number;
  /** From a request's arrival to its answer's end. */
  requestMs: number;
  /** Called with a line of JSON for each request. */
  log?: (line: string) => void;
}

const kReadMs = 30_000; // for a request's head and body
const kIdleMs = 60_000; // of a connection without a request
const kWriteMs = 10_000; // that a client reads nothing
const kLingerMs = 2_000; // for the rest of a request that was refused
const kMaxHead = 16 << 10;
const kMaxUrl = 8 << 10;
const kMaxConnections = 256;

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

export class Server {
  readonly #http: http.Server;
  readonly #served: Served;
  readonly #options: ServeOptions;
  readonly #answering = new Set<AbortController>();
  #connections = 0;
  #closed = false;

  constructor(engine: Engine, options: ServeOptions) {
    this.#options = options;
    const plan = engine.info.plan;
    const queue = new Queue(options.queue, plan.parallel);
    const metrics = new Metrics(() => ({
      sluice_requests_waiting: queue.queued,
      sluice_requests_running: queue.running,
      sluice_connections: this.#connections,
      sluice_context_tokens: plan.contextLength,
      sluice_memory_budget_bytes: plan.budget,
      sluice_memory_total_bytes: plan.total,
      sluice_sessions: plan.parallel,
    }));
    this.#served = {
      engine,
      model: options.model,
      queue,
      metrics,
      open: () => !this.#closed,
      failure: '',
    };
    this.#http = http.createServer({
      maxHeaderSize: kMaxHead,
      requestTimeout: kReadMs,
      headersTimeout: kReadMs,
      keepAliveTimeout: kIdleMs,
      connectionsCheckingInterval: 1000,
    });
    this.#http.maxConnections = kMaxConnections;
    this.#http.on('request', (request, response) => void this.#request(request, response));
    // Whoever waits for a "100 Continue" is told what is wrong before the body is sent.
    this.#http.on('checkContinue', (request, response) => void this.#request(request, response));
    this.#http.on('clientError', (error, socket) =>
      this.#unreadable(error as NodeJS.ErrnoException, socket as Socket),
    );
    this.#http.on('connection', (socket) => {
      this.#connections++;
      socket.on('close', () => this.#connections--);
    });
  }

  /** Takes the address; its URL. Errors: IO. */
  async listen(): Promise<string> {
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#http.once('error', (error: NodeJS.ErrnoException) => {
        reject(
          new SluiceError(
            'IO',
            `the server cannot listen at ${host}, port ${port}: ${error.code ?? error.message}`,
          ),
        );
      });
      this.#http.listen(port, host, resolve);
    });
    const { port: bound } = this.#http.address() as AddressInfo;
    return `http://${host.includes(':') ? `[${host}]` : host}:${bound}`;
  }

  /**
   * Takes nothing new and resolves when what is being answered has ended; `hurry` ends that as
   * well.
   */
  async close(hurry: AbortSignal): Promise<void> {
    this.#closed = true;
    this.#served.queue.close();
    const ended = new Promise<void>((resolve) => this.#http.close(() => resolve()));
    this.#http.closeIdleConnections();
    const end = (): void =>
      this.#answering.forEach((control) =>
        control.abort(new HttpError(503, 'unavailable', 'The server is shutting down.')),
      );
    if (hurry.aborted) end();
    hurry.addEventListener('abort', end);
    await ended;
  }

  // --- a request ---------------------------------------------------------------------------------

  async #request(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const arrived = performance.now();
    const record: Record = { route: '' };
    const control = new AbortController();
    const timer = setTimeout(
      () => control.abort(new HttpError(503, 'timeout', 'The answer took too long.')),
      this.#options.requestMs,
    );
    response.on('close', () =>
      control.abort(new DOMException('The client has gone.', 'AbortError')),
    );
    response.on('error', () => {}); // 'close' follows
    this.#answering.add(control);
    try {
      const answer = await this.#answer(request, response, control.signal, record);
      if (answer) await send(request, response, answer, control.signal);
    } catch (error) {
      const told = httpError(error);
      if (told.code === 'WORKER_LOST') this.#served.failure = told.message;
      // Whoever has gone, or was told already that this is no HTTP, is told nothing.
      if (!response.destroyed && request.socket.writable) {
        record.error = told.code;
        refuse(request, response, told);
      }
    }
    clearTimeout(timer);
    this.#answering.delete(control);
    if (this.#closed) finished(response, () => request.socket.end());
    this.#log(request, response, record, performance.now() - arrived);
  }

  async #answer(
    request: http.IncomingMessage,
    response: http.ServerResponse,
    signal: AbortSignal,
    record: Record,
  ): Promise<Answer | null> {
    const { method = '', url = '', headers } = request;
    if (url.length > kMaxUrl)
      throw new HttpError(414, 'request_too_large', 'The address is too long.');
    const { cors, apiKey, model } = this.#options;
    if (headers.origin !== undefined) {
      if (cors !== '*' && cors !== headers.origin)
        throw new HttpError(
          403,
          'origin_not_allowed',
          'Pages of this origin may not use this server (--cors-origin).',
        );
      for (const [name, value] of [
        ['Access-Control-Allow-Origin', cors],
        ['Access-Control-Expose-Headers', 'Retry-After'],
        ['Vary', 'Origin'],
      ])
        response.setHeader(name!, value!);
    }
    if (method === 'OPTIONS' && cors) {
      response
        .writeHead(204, {
          'Access-Control-Allow-Methods': 'GET, POST',
          'Access-Control-Allow-Headers': '*, Authorization, Content-Type',
          'Access-Control-Max-Age': '86400',
        })
        .end();
      return null;
    }
    const { name, route } = routeOf(method, url.split('?')[0]!, model);
    record.route = name;
    if (
      apiKey &&
      name !== '/health' &&
      !timingSafeEqual(digest(headers.authorization ?? ''), digest(`Bearer ${apiKey}`))
    ) {
      throw new HttpError(401, 'invalid_api_key', 'The API key is missing, or is another one.', {
        headers: { 'www-authenticate': 'Bearer' },
      });
    }
    if (route.method === 'GET') return route.answer(this.#served, {}, signal, record);
    if (this.#closed) throw new HttpError(503, 'unavailable', 'The server is shutting down.');
    return route.answer(this.#served, await this.#body(request, response), signal, record);
  }

  async #body(
    request: http.IncomingMessage,
    response: http.ServerResponse,
  ): Promise<{ [name: string]: unknown }> {
    const { headers } = request;
    const { maxBody } = this.#options;
    const tooLarge = new HttpError(
      413,
      'request_too_large',
      `The body has more than ${maxBody} bytes.`,
    );
    if (
      headers['content-encoding'] !== undefined ||
      /^multipart\//i.test(headers['content-type'] ?? '')
    ) {
      throw new HttpError(
        415,
        'unsupported_media_type',
        'The body must be JSON, without an encoding.',
      );
    }
    if (Number(headers['content-length'] ?? 0) > maxBody) throw tooLarge;
    if (headers.expect !== undefined) response.writeContinue();
    const parts: Buffer[] = [];
    let size = 0;
    for await (const part of request.iterator({
      destroyOnReturn: false,
    }) as AsyncIterable<Buffer>) {
      if ((size += part.length) > maxBody) throw tooLarge;
      parts.push(part);
    }
    let body: unknown;
    try {
      body = JSON.parse(Buffer.concat(parts).toString('utf8'));
    } catch (error) {
      throw new HttpError(
        400,
        'INVALID_ARGUMENT',
        `The body is not JSON: ${(error as Error).message}.`,
      );
    }
    if (typeof body !== 'object' || body === null || Array.isArray(body))
      throw new HttpError(400, 'INVALID_ARGUMENT', 'The body must be a JSON object.');
    return body as { [name: string]: unknown };
  }

  /** What is no HTTP, or came too slowly. */
  #unreadable(error: NodeJS.ErrnoException, socket: Socket): void {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const told =
      error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new HttpError(408, 'timeout', 'The request did not come in time.')
        : error.code === 'HPE_HEADER_OVERFLOW'
          ? new HttpError(431, 'request_too_large', 'The request is too large.')
          : new HttpError(400, 'bad_request', 'The request is not HTTP as this server reads it.');
    const body = errorBody(told);
    const head =
      `HTTP/1.1 ${told.status} ${http.STATUS_CODES[told.status]}\r\nContent-Type: ` +
      `application/json\r\nConnection: close\r\nContent-Length: ` +
      `${Buffer.byteLength(body)}\r\n\r\n`;
    socket.end(head + body);
    this.#served.metrics.add('sluice_requests_total', 1, `path="other",status="${told.status}"`);
  }

  #log(
    request: http.IncomingMessage,
    response: http.ServerResponse,
    record: Record,
    ms: number,
  ): void {
    const { route, ...more } = record;
    const status = response.headersSent ? response.statusCode : 499;
    this.#served.metrics.add(
      'sluice_requests_total',
      1,
      `path="${route || 'other'}",status="${status}"`,
    );
    const { method, socket } = request;
    this.#options.log?.(
      JSON.stringify({
        time: new Date().toISOString(),
        remote: socket.remoteAddress,
        method,
        path: route || '-',
        status,
        ms: Math.round(ms * 10) / 10,
        ...more,
      }),
    );
  }
}

// --- what is sent --------------------------------------------------------------------------------

function refuse(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  error: HttpError,
): void {
  if (response.headersSent) return void response.end(`data: ${errorBody(error)}\n\n`);
  const body = errorBody(error);
  const head = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...error.more.headers,
  };
  if (request.complete) return void response.writeHead(error.status, head).end(body);
  // What is left of the request cannot be told from the next one. It is read for a while: a
  // connection that is closed before takes the answer with it.
  response.writeHead(error.status, { ...head, Connection: 'close' }).write(body);
  const timer = setTimeout(() => response.end(), kLingerMs);
  finished(request.resume(), () => {
    clearTimeout(timer);
    response.end();
  });
}

async function send(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  answer: Answer,
  signal: AbortSignal,
): Promise<void> {
  if ('chunks' in answer) return stream(response, answer.chunks, signal);
  const [text, type] =
    'body' in answer
      ? [JSON.stringify(answer.body), 'application/json']
      : [answer.text, answer.type];
  response.writeHead(('status' in answer && answer.status) || 200, {
    'Content-Type': type,
    'Content-Length': Buffer.byteLength(text),
  });
  response.end(request.method === 'HEAD' ? undefined : text);
}

/** Server-sent events; the next one is taken when the client has room for it. */
async function stream(
  response: http.ServerResponse,
  chunks: AsyncIterable<unknown>,
  signal: AbortSignal,
): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
  for await (const chunk of chunks) {
    if (!response.write(`data: ${JSON.stringify(chunk)}\n\n`)) await room(response, signal);
  }
  response.end('data: [DONE]\n\n');
}

/** Until what was written has been taken; a client that takes nothing is left. */
function room(response: http.ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => response.destroy(), kWriteMs);
    const done = (): void => {
      clearTimeout(timer);
      response.off('drain', done);
      signal.removeEventListener('abort', done);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    response.on('drain', done);
    signal.addEventListener('abort', done);
    if (signal.aborted) done();
  });
}
