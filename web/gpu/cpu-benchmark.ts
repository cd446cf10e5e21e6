// Measures prefill speed of the CPU with a small synthetic model of two layers. Uses the engine's own
// kernels and threads, and weights of a given quantization type that stay in memory.

import { FillServer } from '../io/fill-server.js';
import type { ModelFile } from '../io/model-file.js';
import { FileRequestKind } from '../protocol/file-request.js';

/** A quantization type: ggml's id, and the bytes of a block of `values` values. */
export interface BlockType {
  id: number;
  values: number;
  bytes: number;
}

/** The part of an engine without a model that is used here. */
export interface SampleEngine {
  binding: {
    source(address: string, names: string, described: number): void;
    need(): { want: FileRequestKind; offset: number; length: number } | null;
    opened(bytes: number): boolean;
    reserve(bytes: number): number;
    supply(): boolean;
    open(options: object): boolean;
    error(): { code: string; message: string };
    fillQueue(): number;
    append(tokens: Int32Array): boolean;
    clear(): void;
    step(maxOps: number): number;
    attachGpu?: () => string;
  };
  memory: WebAssembly.Memory;
}

const kEmbedding = 1024;
const kFeedForward = 2816;
const kHeads = 16;
const kLayers = 2;
const kTokens = 64;
const kVocabulary = 3 + 256;
const kTimes = 3;
const kAlign = 32;
// Blocks whose bytes all have this value contain no infinities, in every quantization type.
const kWeightByte = 0x3c;

/** Multiply-accumulates per token. */
const kMacs = kLayers * (4 * kEmbedding * kEmbedding + 3 * kEmbedding * kFeedForward);

/** Writes a GGUF header. */
class Header {
  readonly #bytes: number[] = [];
  readonly #text = new TextEncoder();
  number(value: number, bytes: number): this {
    for (let i = 0; i < bytes; i++) this.#bytes.push(Math.floor(value / 256 ** i) % 256);
    return this;
  }
  float(value: number): this {
    this.#bytes.push(...new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }
  text(value: string): this {
    const bytes = this.#text.encode(value);
    this.number(bytes.length, 8);
    this.#bytes.push(...bytes);
    return this;
  }
  key(name: string, kind: number): this {
    return this.text(name).number(kind, 4);
  }
  list(name: string, kind: number, length: number): this {
    return this.key(name, Kind.List).number(kind, 4).number(length, 8);
  }
  padded(to: number): Uint8Array {
    while (this.#bytes.length % to) this.#bytes.push(0);
    return Uint8Array.from(this.#bytes);
  }
}

const enum Kind {
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Text = 8,
  List = 9,
}

/** The synthetic GGUF file: its header, and its size with weights of `type`. */
export function sampleModel(type: BlockType): { header: Uint8Array; bytes: number } {
  const f32 = { id: 0, values: 1, bytes: 4 };
  const tensors: [name: string, cols: number, rows: number, type: BlockType][] = [
    ['token_embd.weight', kEmbedding, kVocabulary, type],
    ['output_norm.weight', kEmbedding, 0, f32],
  ];
  for (let i = 0; i < kLayers; i++) {
    const add = (name: string, cols: number, rows: number): unknown =>
      tensors.push([`blk.${i}.${name}.weight`, cols, rows, rows ? type : f32]);
    for (const name of ['attn_norm', 'ffn_norm']) add(name, kEmbedding, 0);
    for (const name of ['attn_q', 'attn_k', 'attn_v', 'attn_output'])
      add(name, kEmbedding, kEmbedding);
    for (const name of ['ffn_gate', 'ffn_up']) add(name, kEmbedding, kFeedForward);
    add('ffn_down', kFeedForward, kEmbedding);
  }
  const sizes: [string, number][] = [
    ['block_count', kLayers],
    ['context_length', 2 * kTokens],
    ['embedding_length', kEmbedding],
    ['feed_forward_length', kFeedForward],
    ['attention.head_count', kHeads],
    ['attention.head_count_kv', kHeads],
  ];
  const header = new Header()
    .number(0x46554747, 4)
    .number(3, 4)
    .number(tensors.length, 8)
    .number(sizes.length + 6, 8);
  header.key('general.architecture', Kind.Text).text('llama');
  for (const [name, value] of sizes) header.key(`llama.${name}`, Kind.U32).number(value, 4);
  header.key('llama.attention.layer_norm_rms_epsilon', Kind.F32).float(1e-5);
  header.key('tokenizer.ggml.model', Kind.Text).text('llama');
  header.list('tokenizer.ggml.tokens', Kind.Text, kVocabulary);
  const hex = (i: number): string => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`;
  for (let i = 0; i < kVocabulary; i++) header.text(['<unk>', '<s>', '</s>'][i] ?? hex(i - 3));
  header.list('tokenizer.ggml.scores', Kind.F32, kVocabulary);
  for (let i = 0; i < kVocabulary; i++) header.float(0);
  header.list('tokenizer.ggml.token_type', Kind.I32, kVocabulary);
  for (let i = 0; i < kVocabulary; i++) header.number([2, 3, 3][i] ?? 6, 4);
  let at = 0;
  for (const [name, cols, rows, of] of tensors) {
    const shape = rows ? [cols, rows] : [cols];
    header.text(name).number(shape.length, 4);
    for (const length of shape) header.number(length, 8);
    const { id, values, bytes } = of;
    header.number(id, 4).number(at, 8);
    at += Math.ceil(((cols / values) * bytes * (rows || 1)) / kAlign) * kAlign;
  }
  const padded = header.padded(kAlign);
  return { header: padded, bytes: padded.length + at };
}

/** Milliseconds per multiply-accumulate in prefill; the best of a few runs. */
export async function timePrompt(
  { binding, memory }: SampleEngine,
  type: BlockType,
  options: object,
): Promise<number> {
  const { header, bytes } = sampleModel(type);
  const check = (ok: unknown): void => {
    if (!ok) throw new Error(binding.error().message);
  };
  const read = (offset: number, into: Uint8Array): true => {
    into.fill(kWeightByte).set(header.subarray(offset, offset + into.length));
    return true;
  };
  binding.source('sample.gguf', '', 0);
  for (;;) {
    const need = binding.need();
    check(need);
    const { want, offset, length } = need!;
    if (want === FileRequestKind.Done) break;
    if (want === FileRequestKind.File) {
      check(binding.opened(bytes));
      continue;
    }
    const address = binding.reserve(length);
    check(address);
    read(offset, new Uint8Array(memory.buffer, address, length));
    check(binding.supply());
  }
  check(
    binding.open({
      ...options,
      memoryBudget: 0,
      contextLength: 2 * kTokens,
      kvType: 'f16',
      kvPolicy: undefined,
      skipLayersRatio: 0,
      structuredOutput: false,
      draft: false,
      parallel: 1,
      held: 0,
      directReads: false,
    }),
  );
  let failed: unknown;
  const server = new FillServer(memory, binding.fillQueue(), {
    file: () => ({ read }) as unknown as ModelFile,
    onFilled: () => {},
    onError: (error) => (failed = error),
  });
  const tokens = new Int32Array(kTokens).fill(5);
  let best = Infinity;
  for (let i = 0; i < kTimes; i++) {
    binding.clear();
    const began = performance.now();
    check(binding.append(tokens));
    for (let step = 0; step !== Step.Done;) {
      step = binding.step(1 << 12);
      check(step !== Step.Failed);
      if (step === Step.Blocked) await server.serve(true);
      if (failed) throw failed;
    }
    best = Math.min(best, performance.now() - began);
  }
  server.stop();
  return best / (kTokens * kMacs);
}

/** Results of step(), as in worker/binding.ts. */
const enum Step {
  Blocked,
  Progress,
  Done,
  Failed,
}
