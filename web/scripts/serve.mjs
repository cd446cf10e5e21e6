// Static file server for the example page, the demo and the tests: byte ranges, MIME types, and the
// two headers for cross-origin isolation, which threads need. It can limit its rate to simulate a
// network, and disable ranges or isolation for tests.
//   node web/scripts/serve.mjs [--port N] [--rate BYTES/S] [--no-isolation] [--no-ranges]
//                              [--mount /prefix=folder]…      default: / = the repository
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize, resolve, sep } from 'node:path';
import { Transform, pipeline } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parseBytes, root } from './lib.mjs';

const types = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.json': 'application/json',
  '.map': 'application/json',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.txt': 'text/plain; charset=utf-8',
  '.webmanifest': 'application/manifest+json',
};

// Limits all connections of the server together to `clock.rate` bytes per second (0: unlimited).
class Throttle extends Transform {
  constructor(clock) {
    super();
    this.clock = clock;
  }
  _transform(chunk, _encoding, done) {
    const { clock } = this;
    if (clock.rate === 0) return void done(null, chunk);
    const now = Date.now();
    clock.next = Math.max(clock.next, now) + (chunk.length * 1000) / clock.rate;
    setTimeout(() => done(null, chunk), Math.max(0, clock.next - now));
  }
}

// [first, last] of a single range; null: no range requested; undefined: not satisfiable.
function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return null;
  const first = match[1] === '' ? Math.max(0, size - Number(match[2])) : Number(match[1]);
  const last = match[1] === '' || match[2] === '' ? size - 1 : Math.min(Number(match[2]), size - 1);
  return first <= last && first < size ? [first, last] : undefined;
}

function findFile(mounts, path) {
  for (const [prefix, folder] of mounts) {
    if (!path.startsWith(prefix)) continue;
    const file = normalize(join(folder, path.slice(prefix.length)));
    if (file !== folder && !file.startsWith(folder + sep)) continue;
    if (!existsSync(file)) continue;
    if (!statSync(file).isDirectory()) return file;
    if (existsSync(join(file, 'index.html'))) return join(file, 'index.html');
  }
  return null;
}

/**
 * Starts a server. mounts: [[URL prefix ending in '/', directory]…], the first match wins. options:
 * port (0: any free one), rate (bytes/s, 0: unlimited), isolation, ranges, and onRequest(request,
 * response), which returns true if it has handled the request. Resolves to { url, port, counters:
 * { requests, bytes }, rate, close() }. `rate` can be set at any time.
 */
export async function serve(mounts, options = {}) {
  const { port = 0, host = '127.0.0.1', isolation = true, ranges = true, onRequest } = options;
  const folders = mounts.map(([prefix, folder]) => [prefix, resolve(folder)]);
  const counters = { requests: 0, bytes: 0 };
  const clock = { next: 0, rate: options.rate ?? 0 };

  const answer = (request, response) => {
    counters.requests++;
    if (isolation) {
      response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
      response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
      response.setHeader('Cross-Origin-Resource-Policy', 'same-origin');
    }
    response.setHeader('Cache-Control', 'no-cache');
    if (onRequest?.(request, response)) return;
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return void response.writeHead(405).end();
    let path;
    try {
      path = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    } catch {
      return void response.writeHead(400).end();
    }
    const file = findFile(folders, path);
    if (!file && path === '/favicon.ico') return void response.writeHead(204).end();
    if (!file)
      return void response.writeHead(404, { 'Content-Type': 'text/plain' }).end('not found\n');
    const { size, mtimeMs } = statSync(file);
    const headers = {
      'Content-Type': types[extname(file)] ?? 'application/octet-stream',
      ETag: `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}"`,
      ...(ranges ? { 'Accept-Ranges': 'bytes' } : {}),
    };
    const range = ranges ? parseRange(request.headers.range, size) : null;
    if (range === undefined) {
      return void response.writeHead(416, { ...headers, 'Content-Range': `bytes */${size}` }).end();
    }
    const [first, last] = range ?? [0, size - 1];
    if (range) headers['Content-Range'] = `bytes ${first}-${last}/${size}`;
    response.writeHead(range ? 206 : 200, { ...headers, 'Content-Length': last - first + 1 });
    if (request.method === 'HEAD' || size === 0) return void response.end();
    const reading = createReadStream(file, {
      start: first,
      end: last,
      highWaterMark: 1 << (clock.rate ? 16 : 18),
    });
    reading.on('data', (chunk) => (counters.bytes += chunk.length));
    const stages = clock.rate > 0 ? [new Throttle(clock)] : [];
    pipeline([reading, ...stages, response], () => {}); // a client that disconnects is no error
  };

  const server = createServer(answer);
  await new Promise((ok, fail) => server.once('error', fail).listen(port, host, ok));
  const { port: actual } = server.address();
  return {
    url: `http://${host === '127.0.0.1' ? 'localhost' : host}:${actual}`,
    port: actual,
    counters,
    get rate() {
      return clock.rate;
    },
    set rate(rate) {
      clock.rate = rate;
    },
    close: () =>
      new Promise((done) => {
        server.close(done);
        server.closeAllConnections();
      }),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      port: { type: 'string', default: '8080' },
      rate: { type: 'string', default: '0' },
      'no-isolation': { type: 'boolean' },
      'no-ranges': { type: 'boolean' },
      mount: { type: 'string', multiple: true, default: [`/=${root}`] },
    },
  });
  const mounts = values.mount.map((m) => [m.slice(0, m.indexOf('=')), m.slice(m.indexOf('=') + 1)]);
  const server = await serve(mounts, {
    port: Number(values.port),
    rate: parseBytes(values.rate),
    isolation: !values['no-isolation'],
    ranges: !values['no-ranges'],
  });
  console.log(`${server.url}/`);
}
