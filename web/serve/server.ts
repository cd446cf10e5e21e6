// HTTP server of `npx sluice-llm serve`: an OpenAI-compatible API on node:http, equal to the native
// `sluice serve`. This file handles the protocol: authorization, limits on size and time,
// server-sent events with back-pressure, disconnected clients and shutdown. routes.ts has the
// endpoints.

import * as http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { finished } from 'node:stream';

import type { Engine } from '../api/engine.js';
import { SluiceError } from '../protocol/errors.js';
import { moduleLoader } from '../protocol/wasm-module.js';
import type { FetchPicture } from '../chat/engine.js';
import type { DescribedError } from '../chat/exchange.js';
import { HttpError, httpError } from './errors.js';
import { Metrics } from './metrics.js';
import { Queue } from './queue.js';
import { answer, routeOf, type Answer, type Record, type Served } from './routes.js';

export interface ServeOptions {
  /** 0: any free port. */
  port: number;
  /** Address to listen on. */
  host: string;
  /** Name of the model in responses. */
  model: string;
  /** Required in every request but /health; '': no key. */
  apiKey: string;
  /** Origin whose pages may use the server; '*': all; '': none. */
  cors: string;
  /** Maximum number of waiting requests. */
  queue: number;
  /** Maximum size of a request body, in bytes. */
  maxBody: number;
  /** Time limit from the arrival of a request to the end of its response. */
  requestMs: number;
  /** Gets pictures that requests name by a URL; without it, only data: URLs are taken. */
  fetchPicture?: FetchPicture;
  /** Called with one line of JSON per request. */
  log?: (line: string) => void;
}

const kReadMs = 30_000; // to receive headers and body of a request
const kIdleMs = 60_000; // for a connection without a request
const kWriteMs = 10_000; // without the client reading anything
const kLingerMs = 2_000; // to read the rest of a rejected request; to abort requests
const kMaxHead = 16 << 10;
const kMaxUrl = 8 << 10;
const kMaxConnections = 256;
const kPreflightVary =
  'Origin, Access-Control-Request-Headers, Access-Control-Request-Private-Network';

/** A request that is being answered. */
interface Running {
  request: http.IncomingMessage;
  response: http.ServerResponse;
  control: AbortController;
  /** It has arrived completely, so that the server lets it finish when it is closed. */
  complete: boolean;
}

const kReasons: { [code: string]: string } = {
  EADDRINUSE: 'Address already in use',
  EACCES: 'Permission denied',
  ENOTFOUND: 'no such address',
};
const reasonOf = (error: NodeJS.ErrnoException): string =>
  kReasons[error.code ?? ''] ?? error.code ?? error.message;

const compiled = moduleLoader('chat-server.wasm', 'cli.js');
const endpointsModule = (): Promise<WebAssembly.Module> =>
  compiled(() => readFile(new URL('./chat-server.wasm', import.meta.url)));

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

export class Server {
  readonly #http: http.Server;
  readonly #served: Served;
  readonly #options: ServeOptions;
  readonly #sockets = new Set<Socket>();
  readonly #running = new Set<Running>();
  readonly #handlers = new Set<Promise<void>>();
  #closed = false;

  constructor(engine: Engine, options: ServeOptions) {
    this.#options = options;
    const plan = engine.info.plan;
    const queue = new Queue(options.queue, plan.parallel);
    const metrics = new Metrics(() => ({
      sluice_requests_waiting: queue.queued,
      sluice_requests_running: queue.running,
      sluice_connections: this.#sockets.size,
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
      reading: Promise.resolve(),
      routes: new Map(),
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
    const listener: http.RequestListener = (request, response) => {
      const handler = this.#request(request, response).finally(() =>
        this.#handlers.delete(handler),
      );
      this.#handlers.add(handler);
    };
    this.#http.on('request', listener);
    this.#http.on('checkContinue', listener); // an error is sent before the client sends the body
    this.#http.on(
      'clientError',
      (error, socket) => void this.#unreadable(error as NodeJS.ErrnoException, socket as Socket),
    );
    this.#http.on('connection', (socket) => {
      if (this.#closed) return void socket.destroy();
      this.#sockets.add(socket);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        // Of several requests on a connection, Node closes only the response that is being sent.
        for (const running of this.#running) {
          if (running.request.socket !== socket) continue;
          this.#running.delete(running);
          running.control.abort(disconnected());
        }
      });
    });
  }

  /** Starts listening and returns the URL. Errors: IO, MODULE_LOAD. */
  async listen(): Promise<string> {
    const prompts = await this.#served.engine.prompts();
    const { fetchPicture } = this.#options;
    prompts.serve(
      endpointsModule,
      fetchPicture &&
        ((url) =>
          fetchPicture(url).catch((error: SluiceError) => {
            // The client's picture, not the server.
            throw new HttpError(400, error.code, error.message);
          })),
    );
    this.#served.routes = await prompts.routes();
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#http.once('error', (error: NodeJS.ErrnoException) => {
        reject(
          new SluiceError(
            'IO',
            `the server cannot listen at ${host}, port ${port}: ${reasonOf(error)}`,
          ),
        );
      });
      this.#http.listen(port, host, resolve);
    });
    const { port: bound } = this.#http.address() as AddressInfo;
    return `http://${host.includes(':') ? `[${host}]` : host}:${bound}`;
  }

  /**
   * Stops listening, and closes connections that are idle or have not sent a complete request.
   * Resolves when the other requests have ended and all connections are closed. `hurry` aborts the
   * requests, and closes connections whose clients do not read.
   */
  async close(hurry: AbortSignal): Promise<void> {
    this.#closed = true;
    this.#served.queue.close();
    const ended = new Promise<void>((resolve) => this.#http.close(() => resolve()));
    for (const { response } of this.#running) response.shouldKeepAlive = false;
    this.#closeIdle();
    const abort = (): void => void this.#abort();
    if (hurry.aborted) abort();
    hurry.addEventListener('abort', abort);
    await ended;
  }

  /** Closes the connections on which no complete request is being answered. */
  #closeIdle(): void {
    const busy = new Set(
      [...this.#running].flatMap(({ request, complete }) => (complete ? [request.socket] : [])),
    );
    for (const socket of this.#sockets) if (!busy.has(socket)) socket.destroy();
  }

  async #abort(): Promise<void> {
    const reason = new HttpError(503, 'unavailable', 'The server is shutting down.');
    for (const { control } of this.#running) control.abort(reason);
    const late = new Promise((resolve) => setTimeout(resolve, kLingerMs).unref());
    await Promise.race([Promise.all(this.#handlers), late]);
    await new Promise((resolve) => setImmediate(resolve)); // errors are sent to clients that read
    for (const socket of this.#sockets) socket.destroy();
  }

  // --- a request ---------------------------------------------------------------------------------

  async #request(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const arrived = performance.now();
    const record: Record = { route: '' };
    const control = new AbortController();
    const running: Running = { request, response, control, complete: false };
    const timer = setTimeout(
      () => control.abort(new HttpError(503, 'timeout', 'The request took too long.')),
      this.#options.requestMs,
    );
    response.on('close', () => control.abort(disconnected()));
    response.on('error', () => {}); // 'close' follows
    this.#running.add(running);
    const closing: (() => void)[] = [];
    let begun: Answer | null = null;
    finished(response, () => {
      this.#running.delete(running);
      if (this.#closed) this.#closeIdle();
    });
    try {
      begun = await this.#answer(running, record, closing);
      if (begun) await send(request, response, begun, control.signal);
    } catch (error) {
      const failure = httpError(error);
      if (failure.code === 'WORKER_LOST') this.#served.failure = failure.message;
      // No response if the client has disconnected, or has already got an error.
      if (!response.destroyed && request.socket.writable) {
        const described = await this.#describe(pathOf(request.url ?? ''), failure);
        record.error = described.code;
        if (response.headersSent)
          end(response, begun && 'failed' in begun ? begun.failed(described) : '');
        else refuse(request, response, described, failure.more.headers);
      }
    }
    for (const close of closing.reverse()) close();
    clearTimeout(timer);
    this.#log(request, response, record, performance.now() - arrived);
  }

  async #describe(
    path: string,
    { status, code, message, more }: HttpError,
  ): Promise<DescribedError> {
    const prompts = await this.#served.engine.prompts();
    return prompts.describe(path, { status, code, message, param: more.param });
  }

  async #answer(running: Running, record: Record, closing: (() => void)[]): Promise<Answer | null> {
    const { request, response, control } = running;
    const { method = '', url = '', headers } = request;
    if (url.length > kMaxUrl)
      throw new HttpError(414, 'request_too_large', 'The address is too long.');
    const { cors, apiKey } = this.#options;
    if (headers.origin !== undefined) {
      if (cors !== '*' && cors !== headers.origin)
        throw new HttpError(
          403,
          'origin_not_allowed',
          'Pages of this origin must not use this server (--cors-origin).',
        );
      for (const [name, value] of [
        ['Access-Control-Allow-Origin', cors],
        ['Access-Control-Expose-Headers', 'Retry-After'],
        ['Vary', method === 'OPTIONS' ? kPreflightVary : 'Origin'],
      ])
        response.setHeader(name!, value!);
    }
    if (method === 'OPTIONS' && cors) {
      const asked = headers['access-control-request-headers'] ?? '';
      response
        .writeHead(204, {
          'Access-Control-Allow-Methods': 'GET, POST, DELETE',
          // SDKs have many headers, and a "*" does not cover all of them in every browser.
          'Access-Control-Allow-Headers': /^[\w, -]+$/.test(asked)
            ? asked
            : '*, Authorization, Content-Type',
          'Access-Control-Max-Age': '86400',
          ...('access-control-request-private-network' in headers && {
            'Access-Control-Allow-Private-Network': 'true',
          }),
        })
        .end();
      return null;
    }
    const route = routeOf(method, pathOf(url), this.#served);
    record.route = route.name;
    if (
      apiKey &&
      route.name !== '/health' &&
      !timingSafeEqual(digest(apiKeyOf(headers)), digest(apiKey))
    ) {
      throw new HttpError(401, 'invalid_api_key', 'The API key is missing or wrong.', {
        headers: { 'www-authenticate': 'Bearer' },
      });
    }
    const body = route.method === 'GET' ? new Uint8Array() : await this.#body(request, response);
    running.complete = true;
    return answer(this.#served, route, body, control.signal, record, closing);
  }

  async #body(request: http.IncomingMessage, response: http.ServerResponse): Promise<Uint8Array> {
    if (this.#closed) throw new HttpError(503, 'unavailable', 'The server is shutting down.');
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
        'The body must be JSON without a content encoding.',
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
    return Buffer.concat(parts);
  }

  /** Responds to requests that are not valid HTTP, or arrived too slowly. */
  async #unreadable(error: NodeJS.ErrnoException, socket: Socket): Promise<void> {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const failure =
      error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new HttpError(408, 'timeout', 'The request did not arrive in time.')
        : error.code === 'HPE_HEADER_OVERFLOW'
          ? new HttpError(431, 'request_too_large', 'The request is too large.')
          : new HttpError(400, 'bad_request', 'The request is not valid HTTP.');
    const { body } = await this.#describe('', failure);
    const head =
      `HTTP/1.1 ${failure.status} ${http.STATUS_CODES[failure.status]}\r\nContent-Type: ` +
      `application/json\r\nConnection: close\r\nContent-Length: ` +
      `${Buffer.byteLength(body)}\r\n\r\n`;
    // The client may still be sending. Closing at once would discard the response, and waiting for
    // the client would keep the connection as long as it likes.
    socket.end(head + body);
    const timer = setTimeout(() => socket.destroy(), kLingerMs);
    socket.on('close', () => clearTimeout(timer));
    this.#served.metrics.add('sluice_requests_total', 1, `path="other",status="${failure.status}"`);
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

/** The key of "Authorization: Bearer KEY", or of "X-Api-Key: KEY" as Anthropic's clients send it. */
function apiKeyOf({ authorization, 'x-api-key': other }: http.IncomingHttpHeaders): string {
  return /^Bearer +(.*)$/i.exec(authorization ?? '')?.[1] ?? `${other ?? ''}`;
}

/** The path of an address, decoded where it can be. */
function pathOf(url: string): string {
  const [path] = url.split('?');
  try {
    return decodeURIComponent(path!);
  } catch {
    return path!;
  }
}

const disconnected = (): DOMException =>
  new DOMException('The client has disconnected.', 'AbortError');

// --- responses -----------------------------------------------------------------------------------

function refuse(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { status, body }: DescribedError,
  headers: http.OutgoingHttpHeaders | undefined,
): void {
  const head = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...headers,
  };
  if (request.complete) return end(response.writeHead(status, head), body);
  // The rest of this request would be taken for the next one, so the connection must be closed. The
  // rest is read for a while first: closing earlier would discard the response.
  response.writeHead(status, { ...head, Connection: 'close' }).write(body);
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
  if ('parts' in answer) return stream(response, answer, signal);
  const { text, type, status = 200 } = answer;
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) });
  end(response, request.method === 'HEAD' ? '' : text);
}

/** Sends the last part of a response. Disconnects a client that does not read it. */
function end(response: http.ServerResponse, text: string): void {
  response.setTimeout(kWriteMs);
  response.end(text);
}

/** Sends a stream. Waits before the next part if the client does not read fast enough. */
async function stream(
  response: http.ServerResponse,
  { parts, type }: Extract<Answer, { parts: unknown }>,
  signal: AbortSignal,
): Promise<void> {
  response.writeHead(200, { 'Content-Type': type, 'Cache-Control': 'no-cache' });
  for await (const part of parts) {
    if (part && !response.write(part)) await room(response, signal);
  }
  end(response, '');
}

/** Waits until buffered data has been sent. Disconnects a client that reads nothing. */
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
