// Parts of bench:gpu that run in Node, for a machine with a GPU: they need dist/ and the package
// `webgpu`, or nothing in a packed kit (pack.mjs). Each runs alone, and the results are written after
// each step, since such a machine may be there for minutes only.
//   npm run bench:gpu -- [--only probe,kernels,models,shapes,shape=NAME] [--tokens 32] [--out FILE.json] [FILE…]
//   probe    adapter, features, limits, copy bandwidth, arithmetic, cost of a dependent dispatch, of
//            encoding it
//   kernels  every kernel against its reference; matrix multiplications
//   models   FILEs, or twelve models of the tests: --tokens on the GPU and on the CPU, and times
//   shapes   models of published shapes with random weights (shape=NAME: one of them): prefill,
//            decode, share of the copy bandwidth, time by kernel
// SLUICE_DAWN has options of Dawn, such as backend=vulkan.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { kitFile } from './bundles.mjs';
import { dawnOptions, findDriver } from './driver.mjs';
import { kMinGap, models } from './models.mjs';
import { allShapes, fileTypes, shapes } from './shapes.mjs';

const kParts = ['probe', 'kernels', 'models', 'shapes'];
const kShape = /^shape=([^:]+)(?::(.+))?$/;

const fixed = (value, digits = 2) => value.toFixed(digits);
const giga = (value) => fixed(value / 1e9, 1);

const kLines = {
  probe: ({
    adapter,
    submitMs,
    copyBytesPerSecond,
    dependentDispatchMs,
    encodeDispatchMs,
    flops,
  }) =>
    `${adapter.vendor} ${adapter.architecture} ${adapter.description}\n` +
    `copy ${giga(copyBytesPerSecond)} GB/s, submit ${fixed(submitMs, 3)} ms, dependent dispatch ` +
    `${fixed(1000 * dependentDispatchMs)} us, encoding it ${fixed(1000 * encodeDispatchMs)} us, ` +
    `f32 ${giga(flops.f32)} GFLOPS` +
    (flops.f16 ? `, f16 ${giga(flops.f16)}` : ''),
  kernels: ({ check, path, failures, product, tokens, ms, int8Ms, weightBytesPerSecond }) =>
    product
      ? `${product}, ${tokens} tokens: ${fixed(ms, 3)} ms, int8 ${int8Ms === null ? '-' : fixed(int8Ms, 3)}, ` +
        `weights ${giga(weightBytesPerSecond)} GB/s`
      : `${check}, ${path}: ${failures.length ? failures.join('; ') : 'right'}`,
  models: ({ model, gpu, cpu, equalTokens, firstDifference, forced }) =>
    `${model}: ${equalTokens} of ${cpu.tokens.length} tokens equal` +
    (firstDifference ? ` (gap ${firstDifference.gap.toExponential(1)})` : '') +
    `, ${forced.equal} of ${forced.of} behind the CPU's` +
    (forced.wrong ? ` (${forced.wrong} with a gap above ${kMinGap})` : '') +
    `, first ${fixed(gpu.loadMs + gpu.firstTokenMs, 0)} ms, ` +
    `then ${fixed(gpu.tokenMs)} ms (CPU ${fixed(cpu.tokenMs)}), ${gpu.dispatches} dispatches`,
  shapes: ({ shape, type, prefill, decode, shareOfCopyBandwidth, overCost }) =>
    `${shape} ${type}: prefill ${fixed(prefill.tokensPerSecond, 0)} tokens/s, decode ` +
    `${fixed(decode.tokensPerSecond, 1)}, ${fixed(100 * shareOfCopyBandwidth, 0)} % of the copy ` +
    `bandwidth, ${fixed(overCost)} of its cost; encoding ${fixed(decode.encodeMs, 3)} ms, ` +
    `${fixed(decode.commandsMs, 3)} of it WebGPU's commands`,
};

/** Choices of all models behind the CPU's tokens, in one line. */
export function totalOf(all) {
  const ran = all.filter(({ error }) => !error);
  const sum = (of) => ran.reduce((total, { forced }) => total + of(forced), 0);
  return (
    `${ran.length} of ${all.length} models: ${sum(({ of }) => of)} choices behind the CPU's tokens, ` +
    `${sum(({ others }) => others.length)} differ, ` +
    `${sum(({ wrong }) => wrong)} with a gap above ${kMinGap}`
  );
}

/** The parts and the shapes that `only` names. */
function parse(only) {
  const parts = new Set();
  const named = [];
  for (const part of only) {
    const [, shape, type] = kShape.exec(part) ?? [];
    if (shape && allShapes.includes(shape) && (!type || fileTypes.includes(type))) {
      parts.add('shapes');
      named.push([shape, type ? [type] : fileTypes]);
    } else if (kParts.includes(part)) parts.add(part);
    else
      throw new Error(
        `unknown part '${part}': ${kParts.join(', ')}, shape=NAME or shape=NAME:TYPE ` +
          `(${allShapes.join(', ')}; ${fileTypes.join(', ')})`,
      );
  }
  return { parts, named: named.length ? named : shapes.map((name) => [name, fileTypes]) };
}

/** Results of one run, written to a file as they come. */
class Results {
  #all = { date: new Date().toISOString(), node: process.version };
  #out;
  constructor(out) {
    this.#out = out;
    if (existsSync(kitFile)) this.#all.kit = JSON.parse(readFileSync(kitFile, 'utf8'));
  }
  set(part, result) {
    this.#all[part] = result;
    mkdirSync(dirname(this.#out), { recursive: true });
    writeFileSync(this.#out, JSON.stringify(this.#all, null, 1));
  }
  /** A function that adds a result of `part`, and prints it. */
  adder(part) {
    const all = [];
    return (result) => {
      all.push(result);
      this.set(part, all);
      const label = result.model ?? `${result.shape} ${result.type}`;
      console.log(result.error ? `${label}: ${result.error}` : kLines[part](result));
    };
  }
}

/** `only`: parts, and shapes as shape=NAME. `sizes`: of the shapes' prompts and generations. */
export async function runKit(only, out, files, sizes = {}) {
  const { parts, named } = parse(only.length ? only : kParts);
  findDriver();
  const results = new Results(out);
  let speeds;
  if (parts.has('probe') || parts.has('shapes')) {
    const { probe } = await import('./probe.mjs');
    speeds = await probe(dawnOptions());
    results.set('probe', speeds);
    console.log(kLines.probe(speeds));
  }
  if (parts.has('kernels')) {
    const { kernels } = await import('./kernels.mjs');
    await kernels(results.adder('kernels'));
  }
  if (parts.has('models')) {
    const [all, add] = [[], results.adder('models')];
    await models(files, (result) => (all.push(result), add(result)), sizes.tokens);
    console.log(totalOf(all));
  }
  if (parts.has('shapes')) {
    const { measureShapes } = await import('./shape-run.mjs');
    const add = results.adder('shapes');
    for (const [name, types] of named)
      await measureShapes([name], speeds, add, { types, ...sizes });
  }
  console.log(`written: ${out}`);
}
