// Bytes of weights that a matrix multiplication reads. Runs its kernels with reads of weights that
// also mark the word and count: what a GPU has to fetch is every word that is marked.
import { Usage } from '../../../web/gpu/buffers.js';
import { Recorder } from '../../../web/gpu/kernels.js';
import type { CodebookBuffers } from '../../../web/gpu/kernels/codebooks.js';
import type { Pipelines } from '../../../web/gpu/kernels/pipelines.js';
import * as rareTypes from '../../../web/gpu/kernels/rare-types.js';
import {
  fieldsOf,
  sourceOf,
  writeFields,
  type Features,
  type Values,
  type Variant,
} from '../../../web/gpu/kernels/shaders.js';
import { rowBytes, types, useRareTypes } from '../../../web/gpu/kernels/types.js';

useRareTypes(rareTypes);

export interface Shape {
  type: number;
  rows: number;
  cols: number;
  tokens: number;
  codes: boolean;
}

export interface Reads {
  /** Bytes of the weights in the file. */
  file: number;
  /** Of the bindings. */
  bound: number;
  /** Of the words that are read at all. */
  fetched: number;
  /** Of all reads, which caches answer in part. */
  requested: number;
  /** How many times the weights are read, once for each tile of tokens. */
  tiles: number;
  dispatches: number;
}

interface Call {
  variant: Variant;
  values: Values;
  size: readonly number[];
  buffers: GPUBufferBinding[];
}

/** Keeps the calls that bind `weights`. */
class Kept extends Recorder {
  readonly kept: Call[] = [];
  constructor(
    device: GPUDevice,
    features: Features,
    private readonly weights: GPUBuffer,
    codebook: GPUBuffer,
    acts: GPUBuffer,
  ) {
    const codebooks = { get: () => codebook } as unknown as CodebookBuffers;
    const memory = { arena: weights, vectors: weights, acts };
    const pipelines = { features, codebooks } as Pipelines;
    super(pipelines, device.limits, null, memory, { gemv: features.dots, gemm: features.dots });
  }
  override run(
    variant: Variant,
    values: Values,
    size: readonly number[],
    buffers: GPUBufferBinding[] = [],
  ): void {
    if (buffers.some(({ buffer }) => buffer === this.weights))
      this.kept.push({ variant, values, size, buffers });
  }
}

const kUniform = 0x40; // GPUBufferUsage
const kSeen = 15; // binding
/** Makes reads of a shader's weights mark the word in `seen`, whose last word counts them. */
const counted = (source: string, words: number) =>
  source.replace(/\bweights(\d)\[([^\]]*)\]/g, 'counted$1($2)') +
  `@group(0) @binding(${kSeen}) var<storage, read_write> seen: array<atomic<u32>>;\n` +
  [...new Set([...source.matchAll(/var<storage, ?read> ?weights(\d)/g)].map(([, i]) => i))]
    .map(
      (i) => `fn counted${i}(i: u32) -> u32 {
        atomicOr(&seen[i >> 5u], 1u << (i & 31u));
        atomicAdd(&seen[${words}u], 1u);
        return weights${i}[i];
      }\n`,
    )
    .join('');

const bits = (word: number): number => {
  let count = 0;
  for (; word !== 0; word &= word - 1) count++;
  return count;
};

async function dispatch(
  device: GPUDevice,
  features: Features,
  { variant, values, size, buffers }: Call,
): Promise<{ fetched: number; requested: number }> {
  const make = (bytes: number, usage: number) =>
    device.createBuffer({ size: Math.ceil(bytes / 16) * 16, usage });
  const words = Math.ceil(buffers[0]!.size! / 128);
  const fields = fieldsOf(variant);
  const data = new ArrayBuffer(512);
  writeFields(fields, values, new Uint32Array(data), new Float32Array(data), 0);
  const parameters = make(512, kUniform | Usage.CopyTarget);
  device.queue.writeBuffer(parameters, 0, data);
  const arena = make(1 << 20, Usage.Storage);
  const vectors = make(16, Usage.Storage);
  const seen = make(4 * (words + 1), Usage.Storage | Usage.CopySource);
  const all = [{ buffer: parameters }, { buffer: arena }, { buffer: vectors }, ...buffers];
  const kinds: GPUBufferBindingType[] = ['uniform', 'storage', 'read-only-storage'];
  const layout = device.createBindGroupLayout({
    entries: [
      ...all.map((_, binding) => ({
        binding,
        visibility: 4, // compute
        buffer: { type: kinds[binding] ?? 'read-only-storage' },
      })),
      { binding: kSeen, visibility: 4, buffer: { type: 'storage' } },
    ],
  });
  const code = counted(sourceOf(variant, features), words);
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module: device.createShaderModule({ code }), entryPoint: 'main' },
  });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(
    0,
    device.createBindGroup({
      layout,
      entries: [
        ...all.map((resource, binding) => ({ binding, resource })),
        { binding: kSeen, resource: { buffer: seen } },
      ],
    }),
  );
  pass.dispatchWorkgroups(size[0]!, size[1] ?? 1, size[2] ?? 1);
  pass.end();
  const copy = make(seen.size, Usage.MapRead | Usage.CopyTarget);
  encoder.copyBufferToBuffer(seen, 0, copy, 0, seen.size);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(1);
  const result = new Uint32Array(copy.getMappedRange().slice(0));
  for (const buffer of [parameters, arena, vectors, seen, copy]) buffer.destroy();
  const marked = result.subarray(0, words).reduce((sum, word) => sum + bits(word), 0);
  return { fetched: 4 * marked, requested: 4 * result[words]! };
}

let device: Promise<GPUDevice> | undefined;
async function open(): Promise<GPUDevice> {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error('no adapter');
  return adapter.requestDevice();
}

export const everyType = [...types].map(([type, { name, coded }]) => ({ type, name, coded }));

/** Reads of one multiplication. Its weights begin at an offset that bindings cannot have. */
export async function reads({ type, rows, cols, tokens, codes }: Shape): Promise<Reads> {
  const opened = await (device ??= open());
  const features = { subgroups: false, f16: false, dots: codes };
  const file = rows * rowBytes(type, cols);
  const offset = 132;
  const storage = (bytes: number) =>
    opened.createBuffer({ size: Math.ceil(bytes / 16) * 16, usage: Usage.Storage });
  const [weights, codebook, acts] = [storage(offset + file), storage(1 << 16), storage(1 << 20)];
  const recorder = new Kept(opened, features, weights, codebook, acts);
  recorder.matmul({
    parts: [{ weights: { type, buffer: weights, offset }, rows, column: 0 }],
    cols,
    x: { at: 0, ld: cols },
    out: { at: tokens * cols, ld: rows },
    tokens,
  });
  const out = { file, bound: 0, fetched: 0, requested: 0, tiles: 0, dispatches: 0 };
  for (const call of recorder.kept) {
    const { fetched, requested } = await dispatch(opened, features, call);
    out.bound += call.buffers[0]!.size!;
    out.fetched += fetched;
    out.requested += requested;
    out.tiles = Math.max(out.tiles, call.size[2] ?? 1);
    out.dispatches++;
  }
  for (const buffer of [weights, codebook, acts]) buffer.destroy();
  return out;
}
