// The GPU in Node, by the package `webgpu` on a software adapter, with the interface of a tab of
// openPage(): what the tests of gpu-page.mjs run in a page runs in this process. Chromium's SwiftShader
// compiles all shaders in each process. Mesa's lavapipe takes longer for a shader, but keeps it, so it is
// the adapter where shaders outlast a run. Clearing workgroup memory is off, since SwiftShader unrolls it:
// without that a pipeline compiles in a tenth of the time. So are bounds checks for whole models, a seventh
// of the processor time. The kernels' cases have them; Chromium has both (gpu-chromium.test.mjs).
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';
import { dawnEnvironment, noKeptShaders } from './lavapipe.mjs';
import './gpu/polling.mjs'; // for withDawn(): the package's workers have their own

const swiftshader = process.env.SWIFTSHADER ?? '/usr/lib/chromium/vk_swiftshader_icd.json';

/** What Dawn needs for SwiftShader and this machine lacks, or false. */
export const noSwiftShader = existsSync(swiftshader) ? false : 'no SwiftShader of Chromium';

/** The same for either adapter. */
export const noSoftwareAdapter = noKeptShaders && noSwiftShader;

function use(environment, boundsChecks) {
  const off = ['disable_workgroup_init', ...(boundsChecks ? [] : ['disable_robustness'])];
  const SLUICE_DAWN = `enable-dawn-features=${off.join(',')}`;
  Object.assign(process.env, environment, { SLUICE_DAWN });
}

export function useSwiftShader({ boundsChecks = false } = {}) {
  use({ VK_ICD_FILENAMES: swiftshader }, boundsChecks);
}

export function useSoftwareAdapter({ boundsChecks = false } = {}) {
  if (noKeptShaders) useSwiftShader({ boundsChecks });
  else use(dawnEnvironment(), boundsChecks);
}

/**
 * Defines navigator.gpu in this process, after `useAdapter`: useSoftwareAdapter() or useSwiftShader().
 * Resolves to a function that ends it.
 */
export async function withDawn(useAdapter = useSoftwareAdapter) {
  useAdapter({ boundsChecks: true });
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  const navigator = { gpu: create([process.env.SLUICE_DAWN]) };
  Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
  return () => {
    navigator.gpu = null; // Dawn would keep the process alive
    delete globalThis.navigator;
    if (before) Object.defineProperty(globalThis, 'navigator', before);
  };
}

// What scripts for workers use: WebGPU's classes, and messages as in a browser.
const kBefore = `
import { parentPort } from 'node:worker_threads';
import { globals } from ${JSON.stringify(import.meta.resolve('webgpu'))};
Object.assign(globalThis, globals);
globalThis.addEventListener = (_, listen) => parentPort.on('message', (data) => listen({ data }));
`;

/** `setup`: the text of a function that defines globals. */
export async function openNode(setup) {
  useSoftwareAdapter();
  mkdirSync(join(root, 'build', 'web-tests'), { recursive: true });
  const folder = mkdtempSync(join(root, 'build', 'web-tests', 'gpu-node-'));
  const dist = pathToFileURL(join(root, 'dist')).href;
  let scripts = 0;
  const write = (text) => {
    const file = join(folder, `${scripts++}.mjs`);
    writeFileSync(file, text);
    return pathToFileURL(file).href;
  };
  Object.assign(globalThis, await import(`${dist}/node.js`), { window: globalThis });
  await (0, eval)(`(${setup})`)(`${dist}/node.js`);
  globalThis.workerAfter = (script) => {
    const before = write(kBefore);
    return write(`import '${before}'; import '${write(script)}'; import '${dist}/worker-node.js';`);
  };
  globalThis.openWorkers();
  return {
    page: {
      evaluate: async (work, args) =>
        structuredClone(typeof work === 'string' ? (0, eval)(work) : await work(args)),
    },
    close: async () => {
      await globalThis.dropGpus();
      rmSync(folder, { recursive: true });
    },
  };
}
