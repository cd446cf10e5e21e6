// Models of published shapes with random weights, on the GPU, in Node: prefill, decode, bytes and
// dispatches of a token, time spent encoding, submitting and waiting, and time by kernel. A token is
// compared with what its bytes cost at the copy bandwidth and its dispatches one behind another.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { syntheticPackage } from './bundles.mjs';
import { exactTimestamps } from './driver.mjs';
import { generateOn } from './models.mjs';
import { fileTypes, shapeFile } from './shapes.mjs';
import { serveVirtual } from './virtual-file.mjs';

const kRounds = 2;
const kAnswerMs = 60_000;
/** Of the GPU's memory, beside the weights: KV cache, activations, staging buffers. */
const kBesides = 1 << 30;

/** Sizes of a measurement; tests take smaller ones. */
const kSizes = { prefill: 512, decode: 97, traced: 17, contextLength: 1024 };

/** Starts and ends measurements in the engine's worker (trace.ts). */
class Tracer {
  #channel = new BroadcastChannel('bench-gpu');
  #answer() {
    return new Promise((heard, fail) => {
      const timer = setTimeout(() => fail(new Error('the worker does not answer')), kAnswerMs);
      this.#channel.onmessage = ({ data }) => {
        clearTimeout(timer);
        heard(data);
      };
    });
  }
  async start(start) {
    const answer = this.#answer();
    this.#channel.postMessage({ start });
    await answer;
  }
  async stop() {
    const answer = this.#answer();
    this.#channel.postMessage({ stop: true });
    return (await answer).trace;
  }
  close() {
    this.#channel.close();
  }
}

async function measure(engine, sizes, speeds) {
  const prompt = Array.from({ length: sizes.prefill }, (_, i) => 1 + ((7 * i) % 200));
  await generateOn(engine, prompt, 2); // compiles
  const tracer = new Tracer();
  try {
    const runs = [];
    for (let round = 0; round < kRounds; round++) {
      const { firstTokenMs } = await generateOn(engine, prompt, 1);
      await tracer.start('host');
      const { tokens, ...decode } = await generateOn(engine, [1], sizes.decode);
      const { encodeMs, submitMs, waitMs } = await tracer.stop();
      const each = (ms) => ms / tokens.length;
      const host = { encodeMs: each(encodeMs), submitMs: each(submitMs), waitMs: each(waitMs) };
      runs.push({ prefillMs: firstTokenMs, ...decode, ...host });
    }
    const prefillMs = Math.min(...runs.map((run) => run.prefillMs));
    const best = runs.reduce((a, b) => (b.tokenMs < a.tokenMs ? b : a));
    await tracer.start('kernels');
    await generateOn(engine, [1], sizes.traced);
    const { kernels } = await tracer.stop();
    return { ...rates(best, sizes, speeds), prefill: rate(sizes.prefill, prefillMs), kernels };
  } finally {
    tracer.close();
  }
}

const rate = (tokens, ms) => ({ tokens, ms, tokensPerSecond: (1000 * tokens) / ms });

function rates(best, sizes, { copyBytesPerSecond, dependentDispatchMs, encodeDispatchMs }) {
  const { tokenMs, weightBytes, dispatches } = best;
  const atCopySpeed = (1000 * weightBytes) / copyBytesPerSecond;
  return {
    decode: {
      ...rate(1, tokenMs),
      ...best,
      // What WebGPU's commands take of encodeMs.
      commandsMs: dispatches * encodeDispatchMs,
      tokens: sizes.decode,
    },
    shareOfCopyBandwidth: atCopySpeed / tokenMs,
    // The cost of the bytes and of the dispatches, of which a token is to take at most 1.6.
    overCost: tokenMs / (atCopySpeed + dispatches * dependentDispatchMs),
  };
}

async function runShape(Engine, server, { name, type, size }, speeds, sizes) {
  const began = performance.now();
  const engine = await Engine.load(`${server.url}/${name}-${type}.gguf`, {
    device: 'webgpu',
    contextLength: sizes.contextLength,
    cache: 'none',
    gpuBudget: size + kBesides,
  });
  try {
    const loadMs = performance.now() - began;
    return { loadMs, ...(await measure(engine, sizes, speeds)), gpuBytes: engine.memory().gpu };
  } finally {
    await engine.dispose();
  }
}

/**
 * `speeds`: of the probe. `done` gets the result of each shape and file type. `sizes`: tokens of
 * prompts and generations.
 */
export async function measureShapes(names, speeds, done, { types = fileTypes, ...sizes } = {}) {
  exactTimestamps();
  const folder = await syntheticPackage();
  const { Engine } = await import(pathToFileURL(join(folder, 'node.js')).href);
  for (const name of names)
    for (const type of types) {
      const file = shapeFile(name, type);
      const server = await serveVirtual({ [`${name}-${type}.gguf`]: file });
      const result = { shape: name, type, fileBytes: file.size };
      try {
        const given = { name, type, size: file.size };
        Object.assign(
          result,
          await runShape(Engine, server, given, speeds, { ...kSizes, ...sizes }),
        );
      } catch (error) {
        result.error = `${error.message} [${error.code}]`;
      } finally {
        await server.close();
      }
      done(result);
    }
}
