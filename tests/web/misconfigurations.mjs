// Ways to host the package wrongly, and the errors of Engine.load. misconfigurations.test.mjs tries
// them in every browser, and docs/recipes.md has them as a table for users.
//   page     headers of the page     files    what is served instead: path → [status, headers, body]
//   options  of Engine.load          chat     whether the error appears only when a chat begins
//   code, says   of the error; … stands for the browser's own words. null: it works
const script = { 'Content-Type': 'text/javascript' };
const copyWorker = "copy the package's worker.js there, or give its address as workerUrl.";
const copyWasm =
  "copy the package's engine.*.wasm beside worker.js, or give an address as wasmUrl.";
const worker = (path, why) => `The engine's worker cannot be started from ${path}: ${why}`;
const wasm = (path, why) => `The engine's wasm cannot be loaded from ${path}: ${why}`;
const csp = (text) => ({ 'Content-Security-Policy': text });

/**
 * ORIGIN is the page's origin, OTHER another one with CORS headers, STRICT another one without, and
 * NOWHERE one that is down.
 */
export const misconfigurations = [
  {
    wrong: 'The worker script is missing at `workerUrl`',
    options: { workerUrl: '/lost/worker.js?key=secret' },
    code: 'WORKER_LOAD',
    says: worker('ORIGIN/lost/worker.js', `it answered 404; ${copyWorker}`),
  },
  {
    wrong: 'The worker script is missing next to `index.js`',
    files: { '/dist/worker.js': [404, {}, ''] },
    code: 'WORKER_LOAD',
    says: worker('ORIGIN/dist/worker.js', `it answered 404; ${copyWorker}`),
  },
  {
    wrong: 'The host answers the worker script with an HTML page',
    files: { '/dist/worker.js': [200, { 'Content-Type': 'text/html' }, '<p>Not found'] },
    code: 'WORKER_LOAD',
    says: worker(
      'ORIGIN/dist/worker.js',
      `its type is text/html, not text/javascript; ${copyWorker}`,
    ),
  },
  {
    wrong: 'The host of `workerUrl` is down',
    options: { workerUrl: 'NOWHERE/worker.js' },
    code: 'WORKER_LOAD',
    says: worker(
      'NOWHERE/worker.js',
      'it cannot be fetched (…); from another origin it needs Access-Control-Allow-Origin.',
    ),
  },
  {
    wrong: '`workerUrl` names a script that sends no message',
    options: { workerUrl: '/mute.js', tuning: { greetMs: 400 } },
    files: { '/mute.js': [200, script, 'self.onmessage = () => {};'] },
    code: 'WORKER_LOAD',
    says: worker(
      'ORIGIN/mute.js',
      `it sent nothing for … s, unlike this package's worker; ${copyWorker}`,
    ),
  },
  {
    wrong: '`workerUrl` names a script that sends other messages',
    options: { workerUrl: '/chatty.js' },
    files: { '/chatty.js': [200, script, 'postMessage({ ready: true });'] },
    code: 'WORKER_LOAD',
    says: worker('ORIGIN/chatty.js', `it is not this package's worker; ${copyWorker}`),
  },
  {
    wrong: '`workerUrl` names a script that throws',
    options: { workerUrl: '/broken.js' },
    files: { '/broken.js': [200, script, 'throw new Error("boom");'] },
    code: 'WORKER_LOAD',
    says: worker('ORIGIN/broken.js', `…boom; ${copyWorker}`),
  },
  {
    wrong: '`workerUrl` is on another origin, with CORS headers',
    options: { workerUrl: 'OTHER/dist/worker.js' },
    code: null,
  },
  {
    wrong: '`workerUrl` is on another origin, without CORS headers',
    options: { workerUrl: 'STRICT/dist/worker.js' },
    code: 'WORKER_LOAD',
    says: worker(
      'STRICT/dist/worker.js',
      'it cannot be fetched (…); from another origin it needs Access-Control-Allow-Origin.',
    ),
  },
  {
    wrong: 'The Content-Security-Policy allows no worker',
    page: csp("worker-src 'none'"),
    code: 'WORKER_LOAD',
    says: worker(
      'ORIGIN/dist/worker.js',
      'the Content-Security-Policy forbids it; allow it in worker-src.',
    ),
  },
  {
    wrong: 'The Content-Security-Policy allows no `blob:` worker, which another origin needs',
    page: csp("worker-src 'self'"),
    options: { workerUrl: 'OTHER/dist/worker.js' },
    code: 'WORKER_LOAD',
    says: worker(
      'OTHER/dist/worker.js',
      'the Content-Security-Policy forbids it; allow it in worker-src, with blob:.',
    ),
  },
  {
    wrong: 'The page requires trusted types',
    page: csp("require-trusted-types-for 'script'"),
    code: null,
  },
  {
    wrong: 'The page requires trusted types and allows no policy',
    page: csp("require-trusted-types-for 'script'; trusted-types 'none'"),
    code: 'WORKER_LOAD',
    says: worker(
      'ORIGIN/dist/worker.js',
      'trusted types forbid it; add sluice-llm to the trusted-types of the Content-Security-Policy.',
    ),
  },
  {
    wrong: 'The page is cross-origin isolated, the worker script is not',
    isolation: true,
    files: {
      '/dist/worker.js': [
        200,
        { ...script, 'Cross-Origin-Embedder-Policy': 'unsafe-none' },
        'postMessage({ event: "hello" });',
      ],
    },
    code: 'WORKER_LOAD',
    says: worker(
      'ORIGIN/dist/worker.js',
      'the page is cross-origin isolated and the script is not; send Cross-Origin-Embedder-Policy with it.',
    ),
  },
  {
    wrong: 'The WebAssembly binary is missing at `wasmUrl`',
    options: { wasmUrl: '/lost/engine.wasm' },
    code: 'WASM_LOAD',
    says: wasm('ORIGIN/lost/engine.wasm', `it answered 404; ${copyWasm}`),
  },
  {
    wrong: 'The host answers `wasmUrl` with an HTML page',
    options: { wasmUrl: '/page' },
    files: { '/page': [200, { 'Content-Type': 'text/html' }, '<p>Not found'] },
    code: 'WASM_LOAD',
    says: wasm('ORIGIN/page', `it is text/html, not wasm; ${copyWasm}`),
  },
  {
    wrong: 'The WebAssembly binary has another content type',
    files: { '/odd.wasm': [200, { 'Content-Type': 'text/plain' }, 'WASM'] },
    options: { wasmUrl: '/odd.wasm' },
    code: null,
  },
  {
    wrong: 'The host of `wasmUrl` is down',
    options: { wasmUrl: 'NOWHERE/engine.wasm' },
    code: 'WASM_LOAD',
    says: wasm('NOWHERE/engine.wasm', `…; ${copyWasm}`),
  },
  {
    wrong: 'The Content-Security-Policy allows no WebAssembly',
    page: csp("script-src 'self'"),
    code: 'WASM_LOAD',
    says: wasm(
      'ORIGIN/dist/engine.….wasm',
      "…; allow 'wasm-unsafe-eval' in script-src of the worker's Content-Security-Policy.",
    ),
  },
  {
    wrong: '`templates.js` is missing',
    files: { '/dist/templates.js': [404, {}, ''] },
    chat: true,
    code: 'MODULE_LOAD',
    says: "The package's templates.js cannot be loaded: copy it beside its other files (…).",
  },
  {
    wrong: '`chat.wasm` is missing',
    files: { '/dist/chat.wasm': [404, {}, ''] },
    chat: true,
    code: 'MODULE_LOAD',
    says: 'chat.wasm cannot be loaded: it answered 404; copy it beside templates.js.',
  },
  {
    wrong: 'The model address is a `file:` URL',
    source: 'file:///models/story.gguf',
    code: 'INVALID_ARGUMENT',
    says: "'file:///models/story.gguf' cannot be read: give an http(s) address or a File.",
  },
  {
    wrong: 'The model address is an `ftp:` URL',
    source: 'ftp://me:secret@host/story.gguf',
    code: 'INVALID_ARGUMENT',
    says: "'ftp://host/story.gguf' cannot be read: give an http(s) address or a File.",
  },
];

/** The table of docs/recipes.md. */
export function markdown() {
  const cell = (text) =>
    `\`${text.replace(/ORIGIN|OTHER|STRICT|NOWHERE/g, 'https://…').replace(/\|/g, '\\|')}\``;
  const rows = misconfigurations.map(({ wrong, code, says }) =>
    code ? `| ${wrong} | ${cell(code)} | ${cell(says)} |` : `| ${wrong} | none: it works | |`,
  );
  return ['| Problem | Code | Message of `Engine.load` |', '|---|---|---|', ...rows].join('\n');
}
