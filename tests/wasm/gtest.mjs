// Builds and runs a GoogleTest program compiled to WebAssembly, in Node or in a browser. A variant
// is the linked build/wasm/tests/<name>.{js,wasm} after the relaxed functions are merged in.
// 'relaxed' runs in Chromium and Firefox only: Node 20 can enable relaxed SIMD, but its dot product
// drops the accumulator, and Debian's WebKit lacks it. 'strict' has the same tables with functions
// of plain SIMD and signed dot products, and runs anywhere.
//   node tests/wasm/gtest.mjs PROGRAM VARIANT...      builds these
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { concurrently, inRoot, jobs } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { cmakeBuild, mergeBinary } from '../../web/scripts/wasm.mjs';

const folder = inRoot('build', 'wasm', 'tests');
const linked = (name, variant) => (variant === 'simd128' ? name : `${name}_relaxed`);

/**
 * Builds these variants of the program; the finished binaries go beside the linked ones. `finish`:
 * mergeBinary() or finishBinary().
 */
export async function buildProgram(
  name,
  chosen,
  { below = '', variables = [], finish = mergeBinary } = {},
) {
  const targets = [...new Set(chosen.map((variant) => linked(name, variant)))];
  cmakeBuild('wasm', { targets, variables: ['-DSLUICE_TESTS=ON', ...variables], quiet: true });
  await concurrently(
    chosen.map((variant) => () => {
      const program = `${folder}/${below}${linked(name, variant)}`;
      return finish(`${program}.wasm`, variant === 'relaxed', `${program}.${variant}.wasm`);
    }),
    jobs,
  );
}

// Starts the program in Node or, sent as text, in a browser.
async function start(createProgram, wasmModule, args, print) {
  const memory = new WebAssembly.Memory({ initial: 1024, maximum: 16384, shared: true });
  const program = await createProgram({
    wasmMemory: memory,
    print,
    printErr: print,
    instantiateWasm(imports, receive) {
      WebAssembly.instantiate(wasmModule, imports).then((i) => receive(i, wasmModule));
      return {};
    },
  });
  try {
    return program.callMain(args);
  } catch (e) {
    if (typeof e?.status === 'number') return e.status;
    print(String(e?.stack ?? e));
    return 1;
  }
}

export async function runInNode(name, variant, args = []) {
  const base = `${folder}/${linked(name, variant)}`;
  globalThis.self ??= { location: { href: '' } };
  const createProgram = new Function(
    `${readFileSync(`${base}.js`, 'utf8')};return createProgram`,
  )();
  const lines = [];
  const wasmModule = new WebAssembly.Module(readFileSync(`${base}.${variant}.wasm`));
  const code = await start(createProgram, wasmModule, args, (line) => lines.push(line));
  return { code, output: lines.join('\n') };
}

/** `launch` is one of the functions of tests/web/drivers.mjs. */
export async function runInBrowser(launch, name, variant, args = []) {
  const program = linked(name, variant);
  const worker = `${start}
    importScripts('/${program}.js');
    onmessage = async ({ data }) => {
      const lines = [];
      let code;
      try {
        const wasmModule = await WebAssembly.compileStreaming(fetch('/${program}.${variant}.wasm'));
        code = await start(createProgram, wasmModule, data, (line) => lines.push(line));
      } catch (e) {
        code = 1;
        lines.push(String(e?.stack ?? e));
      }
      postMessage({ code, output: lines.join('\\n') });
    };`;
  const server = await serve([['/', folder]], {
    onRequest(request, response) {
      if (request.url === '/')
        response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
      else if (request.url === '/run.js')
        response.setHeader('Content-Type', 'text/javascript').end(worker);
      else return false;
      return true;
    },
  });
  const browser = await launch();
  try {
    const page = await browser.open(server.url);
    return await page.evaluate(
      (programArgs) =>
        new Promise((resolve) => {
          const w = new Worker('/run.js');
          w.onmessage = ({ data }) => resolve(data);
          w.onerror = (e) => resolve({ code: 1, output: `worker: ${e.message}` });
          w.postMessage(programArgs);
        }),
      args,
    );
  } finally {
    await browser.close();
    await server.close();
  }
}

/** Counts the lines that GoogleTest prints for each test. */
export function countLines({ code, output }) {
  const count = (mark) =>
    output.split('\n').filter((l) => l.startsWith(mark) && l.endsWith(')')).length;
  const result = {
    passed: count('[       OK ]'),
    failed: count('[  FAILED  ]'),
    skipped: count('[  SKIPPED ]'),
  };
  const none = result.passed + result.failed + result.skipped === 0;
  if ((code !== 0 && result.failed === 0) || none) result.failed = 1;
  if (result.failed) result.details = output.split('\n').slice(-60).join('\n');
  return result;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  await buildProgram(process.argv[2], process.argv.slice(3));
