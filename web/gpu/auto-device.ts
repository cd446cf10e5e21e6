// Entry of gpu-auto.js: implements device 'auto'. Requests a GPU, checks whether it can run the model,
// and measures GPU and CPU. device-selection.ts then makes the choice. What gpu.js has too comes from
// there (auto-tools.ts).

import type { LoadSpec } from '../protocol/messages.js';
import type { DeviceSelection, ModelInfo } from '../protocol/types.js';
import { adapterFor, adapterName, deviceOf, isSoftware, kernelsOf } from './adapter.js';
import type { AutoTools } from './auto-tools.js';
import { timePrompt, type SampleEngine } from './cpu-benchmark.js';
import { choose, onlyCpu } from './device-selection.js';
import { timeGpu } from './gpu-benchmark.js';
import { layersOf, tokenBytes } from './layer-split.js';
import { kMaxBytes } from './plan.js';
import type { Program } from './program.js';

/** Starts an engine without a model, from the binary that has these kernels. */
export type StartEngine = (kernels: string) => Promise<SampleEngine>;

/** Reads the model's header into an engine. */
export interface HeaderReader {
  read(engine: SampleEngine): Promise<void>;
}

const kTimedBytes = 64 << 20;
const kBatch = 64;
const kBlock = 256;

/** Selects the device. `options`: those that the engine would be opened with. */
export async function advise(
  tools: AutoTools,
  spec: LoadSpec,
  info: ModelInfo,
  options: object,
  header: HeaderReader,
  start: StartEngine,
): Promise<DeviceSelection> {
  const adapter = await adapterFor(spec.powerPreference);
  if (!adapter) return onlyCpu('No WebGPU adapter is available.');
  const name = adapterName(adapter);
  if (spec.device === 'auto' && isSoftware(adapter))
    return {
      ...onlyCpu("The GPU is a software adapter, which is slower than the engine's CPU kernels."),
      gpuName: name,
    };
  try {
    const engine = await start('gpu'); // that of the load
    const { binding } = engine;
    await header.read(engine);
    if (!binding.open(options)) throw new Error(binding.error().message);
    if (!binding.attachGpu)
      return {
        ...onlyCpu('The wasm binary that was passed does not support GPUs.'),
        gpuName: name,
      };
    const program = JSON.parse(binding.attachGpu()) as Program;
    const device = await deviceOf(adapter);
    try {
      return { ...(await measured(tools, device, spec, info, program, start)), gpuName: name };
    } finally {
      device.destroy();
    }
  } catch (error) {
    return {
      ...onlyCpu(`The GPU could not be measured: ${(error as Error).message}`),
      gpuName: name,
    };
  }
}

async function measured(
  tools: AutoTools,
  device: GPUDevice,
  spec: LoadSpec,
  info: ModelInfo,
  program: Program,
  start: StartEngine,
): Promise<DeviceSelection> {
  const { Kernels, loadTypes, partFor, timeCoded, types } = tools;
  const typeIds = Object.fromEntries([...types].map(([id, { name }]) => [name, id]));
  const { speed = {}, plan } = info;
  const { gpuLayers, gpuBudget } = spec;
  const budget = gpuBudget || kMaxBytes;
  partFor(program, gpuLayers, Infinity, false, Infinity); // throws if the GPU cannot run it
  const most = Object.entries(info.types)
    .filter(([name]) => name in typeIds)
    .sort((a, b) => b[1] - a[1])[0];
  const type = typeIds[most?.[0] ?? 'F16']!;
  await loadTypes([type]);
  const cols = Math.max(kBlock, Math.floor(info.embeddingLength / kBlock) * kBlock);
  const bytes = Math.min(kTimedBytes, (spec.gpuBudget || Infinity) / 4);
  const kernels = await Kernels.create(device);
  kernels.coded = await timeCoded(device, kernels, type, spec.gpuBudget || Infinity);
  const { bandwidth: gpuBytesPerSecond, ...gpu } = await timeGpu(tools.Bench, device, kernels, {
    type,
    cols,
    bytes,
  });
  const { computeTokensPerSecond: compute, tokensPerSecond = compute } = speed;
  if (!compute) throw new Error('the speed of the CPU was not measured');
  const weights = { id: type, ...types.get(type)! };
  const sample = await timePrompt(await start(spec.engine.kernels), weights, {
    threads: plan.threads,
    kernels: spec.engine.kernels,
  });
  const decode = 1000 / tokensPerSecond!;
  // Time that a decode step waits for weights. A prefill batch divides it among its tokens.
  const waits = Math.max(0, decode - 1000 / compute);
  const prefill = info.macsPerToken * sample + waits / kBatch;
  const streamed = Math.max(0, info.bytesPerToken + plan.kv + plan.kvOnGpu - budget);
  const stored = speed.cacheBytesPerSecond ? 1000 / speed.cacheBytesPerSecond : 0;
  const { maxStorageBufferBindingSize, maxBufferSize } = device.limits;
  const part = attempt(gpuLayers === undefined, () =>
    partFor(
      program,
      gpuLayers ?? Infinity,
      budget,
      kernels.features.dots,
      Math.min(maxStorageBufferBindingSize, maxBufferSize),
    ),
  );
  const split = part?.cut
    ? { layers: layersOf(part), share: tokenBytes(part) / tokenBytes(program) }
    : undefined;
  const work = {
    bytes: info.bytesPerToken,
    macs: info.macsPerToken,
    layers: info.layers,
    batch: kBatch,
    streamed,
    split,
    only: split !== undefined && gpuLayers !== undefined,
  };
  return {
    ...choose(work, {
      cpu: { decode, prefill },
      gpu: { ...gpu, upload: Math.max(gpu.upload, stored) },
    }),
    gpuBytesPerSecond: gpuBytesPerSecond,
    gpuKernels: kernelsOf(kernels.features, kernels.coded),
  };
}

/** Result of `work`. If it throws: undefined if `may`, otherwise the error. */
function attempt<T>(may: boolean, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (may) return undefined;
    throw error;
  }
}
