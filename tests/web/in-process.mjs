// The package over the fake engine with its workers in this thread: each is an instance of the
// worker script of its own, behind a message channel. A real worker takes 50 ms to start, and a
// change of the budget starts another one. Random tests that load many engines use this; what only
// real threads show needs buildFakePackage().
import { build } from 'esbuild';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import vm from 'node:vm';
import { buildFakePackage, fakeRuntime, root } from './helpers.mjs';

const require = createRequire(import.meta.url);

/** The worker script as a function of its `require` and its own address. */
async function workerScript(directory) {
  const { outputFiles } = await build({
    entryPoints: [join(root, 'web', 'worker-node.ts')],
    write: false,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    external: ['webgpu'],
    target: 'node20',
    define: { 'import.meta.url': 'scriptUrl' },
    plugins: [fakeRuntime],
    logLevel: 'warning',
  });
  const filename = join(directory, 'worker-node.js');
  const source = `(function (require, scriptUrl, module, exports) {${outputFiles[0].text}\n})`;
  const script = new vm.Script(source, { filename });
  const run = script.runInThisContext();
  return (parentPort) => {
    const module = { exports: {} };
    const own = (name) =>
      name === 'node:worker_threads' ? { ...require(name), parentPort } : require(name);
    run(own, pathToFileURL(filename).href, module, module.exports);
  };
}

/** Engine of the package, with workers in this thread. */
export async function inProcessEngine() {
  const directory = await buildFakePackage({ name: 'in-process' });
  const begin = await workerScript(directory);
  await build({
    stdin: {
      contents: `
        export * from './node.ts';
        import { platform, setPlatform } from './api/platform.ts';
        export const replaceWorkers = (startWorker) =>
          setPlatform({ ...platform(), startWorker });`,
      resolveDir: join(root, 'web'),
      loader: 'ts',
    },
    outfile: join(directory, 'node-in-process.js'),
    ignoreAnnotations: true, // the platform is set by importing a file, of which nothing else is used
    bundle: true,
    format: 'esm',
    platform: 'node',
    external: ['webgpu'],
    target: 'node20',
    logLevel: 'warning',
  });
  const { Engine, replaceWorkers } = await import(
    pathToFileURL(join(directory, 'node-in-process.js')).href
  );
  replaceWorkers(() => {
    const { port1, port2 } = new MessageChannel();
    const port = {
      onmessage: null,
      onerror: null,
      onmessageerror: null,
      postMessage: (message, transfer) => port1.postMessage(message, transfer),
      terminate: () => port1.close(),
    };
    port1.onmessage = ({ data }) => port.onmessage?.({ data });
    begin(port2);
    return port;
  });
  return Engine;
}
