// Shared by the web tests: bundles of single modules and of the whole package over the fake engine,
// a model file for it, seeded random numbers, and a range server that misbehaves on demand.
import { build } from 'esbuild';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { basename, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { random } from './random.mjs';

export { random };

process.env.SLUICE_CACHE ??= 'none'; // not the user's

export const root = fileURLToPath(new URL('../..', import.meta.url));
// Test files run side by side, and each builds its own.
const out = join(root, 'build', 'web-tests', basename(process.argv[1], '.test.mjs'));

/** Puts chat.wasm beside a bundle, where Node's readFile() finds it. */
function copyChatBinary(folder) {
  mkdirSync(folder, { recursive: true });
  copyFileSync(join(root, 'dist', 'chat.wasm'), join(folder, 'chat.wasm'));
}

/** Where importWeb() puts a module's bundle. */
export const bundleOf = (name) => join(out, `${basename(name)}.mjs`);

/** Bundles and imports one module of web/, named 'directory/module'. */
export async function importWeb(name) {
  const outfile = bundleOf(name);
  await build({
    entryPoints: [join(root, 'web', `${name}.ts`)],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    logLevel: 'warning',
  });
  copyChatBinary(out);
  return import(pathToFileURL(outfile).href);
}

/**
 * A store in Node whose disk is full after `room` chunks. `fail(write, bytes, at)` is what a write
 * then does; without it nothing is written.
 */
export const fullStore = (store, room, fail = () => 0) => ({
  async open(url) {
    const files = await store.open(url);
    let { data } = files;
    const replace = (file) => {
      const write = file.write.bind(file);
      file.write = (bytes, at) => (room-- > 0 ? write(bytes, at) : fail(write, bytes, at));
      data = file;
    };
    Object.defineProperty(files, 'data', { get: () => data, set: replace });
    return files;
  },
});

/** |a - b|^2 / |b|^2 over [from, to). */
export function nmse(ours, reference, from = 0, to = reference.length) {
  let difference = 0;
  let size = 0;
  for (let i = from; i < to; i++) {
    difference += (ours[i] - reference[i]) ** 2;
    size += reference[i] ** 2;
  }
  return difference / size;
}

/** Runs in Node or in the page: loads, resident or at the smallest budget, and computes logits. */
export async function measureLogits({ source, tokens, smallest, options }) {
  const load = { contextLength: 64, ...options };
  if (smallest) {
    const refused = await Engine.load(source, { ...load, memoryBudget: 65536 }).catch((e) => e);
    load.memoryBudget =
      Math.ceil(Number(/smallest that works is (\d+)/.exec(refused.message)[1]) / 65536) * 65536;
  }
  const engine = await Engine.load(source, load);
  try {
    const logits = Array.from(await engine.logits(tokens));
    if (options.cache !== 'none') await engine.downloaded;
    return { logits, resident: engine.memory().resident, fetched: engine.stats().bytesFetched };
  } finally {
    await engine.dispose();
  }
}

export const fakeRuntime = {
  name: 'fake-runtime',
  setup: (b) =>
    b.onResolve({ filter: /\/runtime\.js$/ }, () => ({
      path: join(root, 'tests', 'web', 'fake-runtime.ts'),
    })),
};

const emptyWasm = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);

/** Builds the package with the fake engine inside; returns its directory. */
export async function buildFakePackage({ name = 'fake', external = [] } = {}) {
  const outdir = join(out, name);
  await build({
    entryPoints: ['index', 'worker', 'node', 'worker-node', 'io/hosts'].map((name) => ({
      in: join(root, 'web', `${name}.ts`),
      out: basename(name),
    })),
    banner: { js: 'const importAsset = (url) => import(url);' },
    outdir,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    external: ['node:*', 'webgpu', ...external],
    plugins: [fakeRuntime],
    logLevel: 'warning',
  });
  copyChatBinary(outdir);
  for (const variant of ['simd128', 'relaxed', 'relaxed16'])
    for (const full of ['', '-full'])
      writeFileSync(join(outdir, `engine.${variant}${full}.wasm`), emptyWasm);
  return outdir;
}

/** A model file of the fake engine. */
export function fakeModel({ units = 12, unitBytes = 96 * 1024, header = 40000, seed = 1 } = {}) {
  const bytes = Buffer.alloc(header + units * unitBytes);
  const next = random(seed);
  for (let i = 0; i + 4 <= bytes.length; i += 4)
    bytes.writeUInt32LE((next() * 4294967296) >>> 0, i);
  bytes.write('FAKE', 0);
  [1, header, units, unitBytes].forEach((value, i) => bytes.writeUInt32LE(value, 4 + 4 * i));
  return bytes;
}

const faults = new Set(
  (
    '200 no-content-range 404 429 500 503 cut stall short long wrong-range gzip reset redirect ' +
    'expired 416 slow'
  ).split(' '),
);

/**
 * Serves `file.bytes` at every path. `fault(request, n)` may name what goes wrong with request n:
 * '200', 'no-content-range', '404', '429', '500', '503', 'cut', 'stall', 'short', 'long',
 * 'wrong-range', 'gzip', 'reset', 'redirect', 'expired', '416', 'slow'. file.bytes and file.etag
 * may be replaced at any time.
 */
export async function faultyServer(file, fault = () => null) {
  const state = { requests: 0, bytes: 0, log: [], ranges: [] };
  const server = createServer((request, response) => {
    const n = state.requests++;
    const kind = fault(request, n);
    if (kind && !faults.has(kind)) throw new Error(`no such fault: ${kind}`);
    state.log.push(kind);
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    answer(request, response, kind, file, state);
  });
  await new Promise((ok) => server.listen(0, '127.0.0.1', ok));
  return {
    url: `http://127.0.0.1:${server.address().port}/model.gguf`,
    state,
    close: () =>
      new Promise((ok) => {
        server.close(ok);
        server.closeAllConnections();
      }),
  };
}

function answer(request, response, kind, file, state) {
  const { bytes } = file;
  const url = new URL(request.url, 'http://x');
  if (kind === '404' || kind === '429' || kind === '503' || kind === '500') {
    return response.writeHead(Number(kind), kind === '503' ? { 'Retry-After': '0' } : {}).end();
  }
  if (kind === 'reset') return request.socket.destroy();
  if (kind === 'redirect' && !url.searchParams.has('signed')) {
    return response.writeHead(302, { Location: '/elsewhere?signed=1' }).end();
  }
  if (kind === 'expired') {
    if (url.searchParams.has('signed')) return response.writeHead(403).end();
    return response.writeHead(302, { Location: '/elsewhere?signed=0' }).end();
  }
  if (kind === '416') {
    return response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
  }
  const headers = {
    'Content-Type': 'application/octet-stream',
    ...(file.etag ? { ETag: file.etag } : {}),
  };
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  if (kind === 'gzip') {
    const packed = gzipSync(bytes);
    response.writeHead(200, {
      ...headers,
      'Content-Encoding': 'gzip',
      'Content-Length': packed.length,
    });
    return response.end(packed);
  }
  if (!match || kind === '200') {
    response.writeHead(200, { ...headers, 'Content-Length': bytes.length });
    if (request.method === 'HEAD') return response.end();
    return send(response, bytes, null, state);
  }
  let first = Number(match[1]);
  const last = Math.min(Number(match[2] || Infinity), bytes.length - 1);
  if (first > last)
    return response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
  state.ranges.push([first, last]);
  if (kind === 'wrong-range') first = Math.max(0, first - 100);
  let body = bytes.subarray(first, last + 1);
  if (kind === 'short') body = body.subarray(0, Math.ceil(body.length / 2));
  const range = `bytes ${first}-${first + body.length - 1}/${bytes.length}`;
  if (kind !== 'no-content-range') headers['Content-Range'] = range;
  if (kind === 'long') body = bytes.subarray(first, last + 5000);
  response.writeHead(206, { ...headers, 'Content-Length': body.length });
  send(response, body, kind, state);
}

function send(response, body, kind, state) {
  if (kind === 'cut' || kind === 'stall') {
    const part = body.subarray(0, Math.floor(body.length / 3));
    state.bytes += part.length;
    response.write(part, () => {
      if (kind === 'cut') setTimeout(() => response.destroy(), 5);
    });
    return;
  }
  if (kind === 'slow') {
    let at = 0;
    const step = () => {
      if (response.destroyed) return;
      if (at >= body.length) return response.end();
      const part = body.subarray(at, (at += 16384));
      state.bytes += part.length;
      response.write(part);
      setTimeout(step, 10);
    };
    return step();
  }
  state.bytes += body.length;
  response.end(body);
}
