// A stand-in for the wasm engine that implements web/worker/binding.ts in JavaScript, so that the
// I/O can be tested without building the engine. It pins some units, streams the others through a
// ring, requests bytes through the real fill queue in real shared memory, and derives every token
// from a hash of all bytes of a pass. A wrong, missing or late byte therefore changes the text. So
// does every adapter (any bytes; a first byte of 0 is refused), and every sampling option.
//
// Its model file: "FAKE", u32 version, u32 header bytes, u32 units, u32 bytes per unit, padding up
// to the end of the header, then the units.

import {
  Step,
  type Answer,
  type AnswerOptions,
  type EmbedOptions,
  type EngineBinding,
  type EngineModule,
  type FileRequest,
  type OpenOptions,
} from '../../web/worker/binding.js';
import type { RuntimeOptions } from '../../web/worker/runtime.js';
import { FakePictures, kMediaToken, type FakeText } from './fake-pictures.js';
import type {
  GeneratedToken,
  MemoryPlan,
  MemoryReport,
  ModelInfo,
} from '../../web/protocol/types.js';
import { FileRequestKind } from '../../web/protocol/file-request.js';
import type { Port } from '../../web/protocol/messages.js';

export const initialMemory = 1 << 18;
const kQueue = 65536;
const kCapacity = 64;
const kDone = 2;
const kLocal = 3;
const kSlots = 1 << 17;
const kEnd = 2; // sampling this token ends the generation
const kStateMagic = 0x46534b56;
const kStateHead = 32;
const kStateToken = 64;
const kCrash = 666; // a prompt with this token crashes the worker

/**
 * Set by tests that start the worker through their own script: counts computed units, and slows
 * each down by msPerToken.
 */
const probe = (globalThis as { sluiceProbe?: { units: Int32Array; msPerToken: number } })
  .sluiceProbe;

/** A hash of numbers; 0 for none. */
const hashOf = (numbers: Iterable<number>, start = 0): number => {
  let h = start;
  for (const number of numbers) h = Math.imul(h ^ (number + 1), 0x01000193) ^ 0x811c9dc5;
  return h;
};

interface Unit {
  offset: number;
  slot: number; // address, 0 when not in memory
  pinned: boolean;
  state: number; // as in unitStates()
  request: number;
}

class FakeEngine implements EngineBinding, FakeText {
  sees = false;
  private problem = { code: 'INTERNAL', message: 'no error' };
  private header: Uint8Array | null = null;
  private address = '';
  private have = 0; // header bytes that have arrived
  private wanted = 0;
  private fileSize = -1;
  private unitBytes = 0;
  private units: Unit[] = [];
  private ring: number[] = [];
  private next = 0; // next unit to compute in the pass
  private ahead = 0; // streamed units requested so far, over all passes
  private streamed: Unit[] = [];
  private held: number[] = [];
  private pending: number[] = [];
  private hash = 0;
  private asked: AnswerOptions | null = null; // options of the current generation
  private state!: Answer;
  private started = 0;
  private text = '';
  private pieces: GeneratedToken[] = []; // held back for stop strings
  private ready: GeneratedToken[] = [];
  private entering = new Uint8Array(0);
  private leaving = new Uint8Array(0);
  private entered = 0;
  private budget = 0;
  private context = 64;
  private skipping = false; // running an aborted pass to its end
  private staged: number[] = []; // bytes and scales of adapters
  private adapters = 0; // hash of the adapters in use
  private flavor = 0; // hash of the generation's other options
  private embedding: { tokens: Int32Array; ends: Int32Array; options: EmbedOptions } | null = null;

  constructor(
    private readonly wasmMemory: WebAssembly.Memory,
    private readonly options: RuntimeOptions,
  ) {}

  fail(code: string, message: string): false {
    this.problem = { code, message };
    return false;
  }
  private get words(): Int32Array {
    return new Int32Array(this.wasmMemory.buffer, kQueue);
  }
  private room(end: number): boolean {
    const missing = end - this.wasmMemory.buffer.byteLength;
    if (missing <= 0) return true;
    try {
      this.wasmMemory.grow(Math.ceil(missing / 65536));
      return true;
    } catch {
      return false;
    }
  }

  draft(): never {
    throw new Error('the fake engine has no draft model');
  }
  drafting(): boolean {
    return false;
  }

  source(address: string): void {
    this.address = address;
  }
  need(): FileRequest | null {
    const rest = this.wanted - this.have;
    const want = this.header
      ? FileRequestKind.Done
      : this.fileSize < 0
        ? FileRequestKind.File
        : FileRequestKind.Bytes;
    if (want === FileRequestKind.Bytes && rest <= 0) return null;
    return { want, file: 0, name: this.address, choice: 0, offset: this.have, length: rest };
  }
  opened(bytes: number): boolean {
    this.fileSize = bytes;
    return this.more(20);
  }
  private more(bytes: number): boolean {
    if (bytes <= this.fileSize) this.wanted = bytes;
    else this.fail('TRUNCATED', 'The file ends inside its header.');
    return true;
  }
  reserve(bytes: number): number {
    if (this.room(kSlots + this.have + bytes)) return kSlots + this.have;
    this.fail('OUT_OF_MEMORY', 'Not enough memory for the header.');
    return 0;
  }
  supply(): boolean {
    this.have = this.wanted;
    const view = new DataView(this.wasmMemory.buffer, kSlots, this.have);
    if (view.getUint32(0, false) !== 0x46414b45)
      return this.fail('NOT_GGUF', 'This is not a model file.');
    const length = view.getUint32(8, true);
    if (this.have < length) return this.more(length);
    this.header = new Uint8Array(this.wasmMemory.buffer.slice(kSlots, kSlots + length));
    this.unitBytes = view.getUint32(16, true);
    const count = view.getUint32(12, true);
    this.units = Array.from({ length: count }, (_, i) => ({
      offset: length + i * this.unitBytes,
      slot: 0,
      pinned: false,
      state: 0,
      request: -1,
    }));
    return true;
  }
  adapter(bytes: Uint8Array, scale: number): boolean {
    if (bytes[0] === 0) return this.fail('UNSUPPORTED_ARCHITECTURE', 'It is of another model.');
    this.staged.push(...bytes, Math.round(scale * 1000));
    return true;
  }
  reserveStructuredOutput(): boolean {
    return true;
  }
  setAdapters(): boolean {
    this.adapters = hashOf(this.staged);
    return true;
  }
  forgetAdapters(): void {
    this.staged = [];
  }
  inspect(options: OpenOptions): string {
    const bytes = this.units.length * this.unitBytes;
    const minimum = kSlots + 2 * this.unitBytes;
    if (options.memoryBudget < minimum) {
      const message = `too small a budget: the smallest that works is ${minimum} bytes`;
      return JSON.stringify({ error: { code: 'BUDGET_TOO_SMALL', message } });
    }
    return JSON.stringify({
      architecture: 'fake',
      name: 'A fake',
      parameters: bytes / 4,
      bytes,
      types: { F32: bytes },
      layers: this.units.length,
      vocabSize: 1000,
      trainContextLength: 4096,
      macsPerToken: bytes / 4,
      kernels: 'fake',
      plan: {
        budget: options.memoryBudget,
        minimum,
        contextLength: options.contextLength || 64,
        threads: 1,
        parallel: 1,
        units: this.units.length,
        pinned: bytes,
        bytesPerPass: 0,
        resident: true,
      },
      speed:
        options.storeBandwidth === undefined
          ? undefined
          : { cacheBytesPerSecond: options.storeBandwidth || undefined },
    } satisfies Partial<Omit<ModelInfo, 'plan'>> & { plan: Partial<MemoryPlan> });
  }

  open(options: OpenOptions): boolean {
    this.setAdapters();
    this.budget = options.memoryBudget - (options.memoryBudget % 65536);
    this.context = options.contextLength || 64;
    const end = this.units.at(-1)!.offset + this.unitBytes;
    if (this.fileSize < end)
      return this.fail('TRUNCATED', 'The file is shorter than its header says.');
    const slots = Math.floor((this.budget - kSlots) / this.unitBytes);
    if (slots < 2) {
      const least = kSlots + 2 * this.unitBytes;
      return this.fail('BUDGET_TOO_SMALL', `The smallest budget is ${least} bytes.`);
    }
    const all = slots >= this.units.length;
    const pinned = all ? this.units.length : Math.max(0, slots - 2);
    if (!this.room(kSlots + Math.min(slots, this.units.length) * this.unitBytes)) {
      return this.fail('OUT_OF_MEMORY', 'Not enough memory for the slots.');
    }
    this.units.forEach((unit, i) => {
      unit.pinned = i < pinned;
      if (unit.pinned) unit.slot = kSlots + i * this.unitBytes;
      if (unit.pinned) unit.state = 4;
    });
    this.streamed = this.units.slice(pinned);
    this.ring = all ? [] : [0, 1].map((i) => kSlots + (pinned + i) * this.unitBytes);
    this.words[2] = kCapacity;
    for (const unit of this.units) if (unit.pinned && !this.request(unit)) break;
    this.poll();
    return true;
  }
  error() {
    return this.problem;
  }

  fillQueue(): number {
    return kQueue;
  }
  private request(unit: Unit): boolean {
    const pushed = this.words[0]!;
    const slot = kQueue + 16 + (pushed % kCapacity) * 32;
    const view = new DataView(this.wasmMemory.buffer, slot, 32);
    if (view.getUint32(28, true) !== 0) return false;
    view.setBigUint64(0, BigInt(unit.offset), true);
    view.setBigUint64(8, BigInt(unit.slot), true);
    view.setUint32(16, this.unitBytes, true);
    view.setUint32(20, 0, true);
    view.setUint32(24, this.units.indexOf(unit), true);
    view.setUint32(28, 1, true);
    unit.request = pushed;
    unit.state = 1;
    Atomics.add(this.words, 0, 1);
    return true;
  }
  /**
   * Compares a unit that was marked local with the bytes of the threads' own file, unless a test has
   * cut it since.
   */
  private compareWithFile(unit: Unit): void {
    const file = this.options.files?.[0];
    if (!file) return;
    const there = new Uint8Array(this.unitBytes);
    const read = file.read(there, { at: unit.offset });
    const here = new Uint8Array(this.wasmMemory.buffer, unit.slot, this.unitBytes);
    if (read !== there.length) return;
    // In a loop, which is ten times as fast as every().
    for (let i = 0; i < read; i++)
      if (there[i] !== here[i]) throw new Error('the unit differs from the file');
  }
  poll(): void {
    for (const unit of this.units) {
      if (unit.request < 0) continue;
      const slot = kQueue + 16 + (unit.request % kCapacity) * 32;
      const view = new DataView(this.wasmMemory.buffer, slot, 32);
      const state = view.getUint32(28, true);
      if (state !== kDone && state !== kLocal) continue;
      if (state === kLocal) this.compareWithFile(unit);
      view.setUint32(28, 0, true);
      unit.request = -1;
      unit.state = unit.pinned ? 3 : 2;
    }
    for (const unit of this.units) if (unit.state === 4 && !this.request(unit)) break;
    while (this.ring.length > 0 && this.streamed.length > 0) {
      const unit = this.streamed[this.ahead % this.streamed.length]!;
      if (unit.state !== 0) break;
      unit.slot = this.ring[0]!;
      if (!this.request(unit)) break;
      this.ring.shift();
      this.ahead++;
    }
  }

  tokenize(text: Uint8Array, how: number): Int32Array {
    const codes = [...text].map((byte) => byte + 3);
    return Int32Array.from(how & 1 ? [1, ...codes] : codes);
  }
  controlTokens(): string {
    return '[1, "<|im_start|>", 2, "<|im_end|>"]';
  }
  tokenBytes(token: number): Uint8Array {
    return Uint8Array.from(token >= 3 ? [token - 3] : []);
  }
  detokenize(tokens: Int32Array): string {
    const bytes = [...tokens].flatMap((token) => [...this.tokenBytes(token)]);
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }
  position(): number {
    return this.held.length;
  }
  tokens(): Int32Array {
    return Int32Array.from(this.held);
  }
  clear(): void {
    this.rewind(0);
    this.asked = null;
  }
  private rewind(n: number): void {
    this.pending = [];
    this.held.length = Math.min(n, this.held.length);
    // The ring keeps its position, because a pass always starts at the first unit.
    if (this.next !== 0) this.skipping = true;
  }

  embedInfo(): string {
    return JSON.stringify({
      pooling: 3,
      dimensions: 8,
      scores: 1,
      contextLength: this.context,
      causal: true,
    });
  }
  pairTokens(query: Uint8Array, document: Uint8Array): Int32Array {
    return Int32Array.of(...this.tokenize(query, 1), kEnd, ...this.tokenize(document, 0));
  }
  embed(tokens: Int32Array, ends: Int32Array, options: EmbedOptions): boolean {
    this.embedding = { tokens, ends, options };
    return true;
  }
  embedNext(): number {
    const { embedding } = this;
    if (!embedding || this.held.length > 0) return 0;
    return this.append(embedding.tokens) ? 1 : -1;
  }
  embedResults(): Float32Array {
    const { tokens, ends, options } = this.embedding!;
    const width = options.pooling === 4 ? 1 : Math.min(options.dimensions || 8, 8);
    const starts = options.pooling === 0 ? tokens.keys() : [0, ...ends.subarray(0, -1)];
    const inputs = [...starts].map((from, i) =>
      tokens.subarray(from, options.pooling === 0 ? from + 1 : ends[i]),
    );
    const how = [this.adapters, options.pooling, +options.normalize];
    return Float32Array.from(
      inputs.flatMap((input) =>
        Array.from({ length: width }, (_, i) => hashOf([...how, i, ...input]) >>> 8),
      ),
    );
  }
  appendWhole(): never {
    throw new Error('the fake engine has only causal attention');
  }

  append(tokens: Int32Array): boolean {
    if (this.pending.length > 0) return this.fail('INVALID_ARGUMENT', 'A pass is under way.');
    if (tokens.length === 0) return this.fail('PROMPT_EMPTY', 'The prompt is empty.');
    if (this.held.length + tokens.length > this.context) {
      return this.fail('PROMPT_TOO_LONG', `The context holds ${this.context} tokens.`);
    }
    if (!this.sees && tokens.some((token) => token >= kMediaToken))
      return this.fail('MEDIA_MISSING', 'The sequence no longer holds its pictures.');
    if (tokens.includes(kCrash)) {
      setTimeout(() => {
        throw new Error('the fake engine crashed');
      });
      return true;
    }
    this.pending = [...tokens];
    this.hash = this.adapters;
    return true;
  }
  begin(prompt: Int32Array, options: AnswerOptions): boolean {
    this.cancel();
    if (this.pending.length > 0) return this.fail('INVALID_ARGUMENT', 'A pass is under way.');
    const most = options.cachePrompt ? Math.min(this.held.length, prompt.length - 1) : 0;
    let cached = 0;
    while (cached < most && this.held[cached] === prompt[cached]) cached++;
    const before = [...this.held];
    this.rewind(cached);
    if (!this.append(prompt.subarray(cached))) {
      this.held = before;
      return false;
    }
    this.asked = options;
    const { logitBias, constraint, topK, topP, minP, repeatPenalty, presencePenalty } = options;
    const others = [logitBias, constraint, topK, topP, minP, repeatPenalty, presencePenalty];
    this.flavor = others.some((value) => value != null)
      ? hashOf(new TextEncoder().encode(JSON.stringify(others)))
      : 0;
    this.text = '';
    this.pieces = [];
    this.started = performance.now();
    this.state = {
      finish: '',
      stopString: '',
      promptTokens: prompt.length,
      cachedTokens: cached,
      completionTokens: 0,
      promptMs: 0,
      timeToFirstTokenMs: 0,
      generateMs: 0,
      promptTokensPerSecond: 0,
      tokensPerSecond: 0,
      inPrompt: true,
    };
    return true;
  }
  select(): void {}
  outcome(): number {
    return this.state.finish ? Step.Done : Step.Progress;
  }

  cancel(): void {
    if (this.asked === null) return;
    this.rewind(this.held.length);
    this.state.finish = 'cancelled';
    this.asked = null;
  }
  takePieces(): GeneratedToken[] {
    return this.ready.splice(0);
  }
  answer(): Answer {
    return { ...this.state };
  }

  /** After a pass: samples the next token and begins its pass, or ends the generation (true). */
  private choose(options: AnswerOptions): boolean {
    const { state } = this;
    const ms = performance.now() - this.started;
    if (state.inPrompt) state.promptMs = ms;
    state.inPrompt = false;
    state.generateMs = ms - state.promptMs;
    if (options.maxTokens === 0) return this.end('length');
    const token = this.sample(options);
    if (token === kEnd && !options.ignoreEos) return this.end('stop');
    state.timeToFirstTokenMs ||= ms;
    state.completionTokens++;
    this.deliver(token, options);
    if (state.stopString) return this.end('stop');
    if (state.completionTokens >= options.maxTokens || this.held.length === this.context)
      return this.end('length');
    this.append(Int32Array.of(token));
    return false;
  }
  private end(finish: 'stop' | 'length'): true {
    if (!this.state.stopString) this.ready.push(...this.pieces);
    this.state.finish = finish;
    this.asked = null;
    return true;
  }
  /** Emits a token, which is a letter; holds back text that may become a stop string. */
  private deliver(token: number, { stop, logprobs }: AnswerOptions): void {
    const piece: GeneratedToken = {
      text: token >= 3 ? String.fromCharCode(97 + (token % 26)) : '',
      token,
    };
    if (logprobs !== undefined) {
      piece.bytes = new Uint8Array();
      piece.logprob = -1;
      piece.topLogprobs = Array.from({ length: logprobs }, (_, i) => ({
        token: i + 3,
        text: '',
        bytes: new Uint8Array(),
        logprob: -1 - i,
      }));
    }
    this.pieces.push(piece);
    this.text += piece.text;
    const met = stop.find((text) => this.text.endsWith(text));
    if (met !== undefined) {
      this.state.stopString = met;
      this.ready.push(...this.pieces.slice(0, -met.length));
      return;
    }
    const hold = Math.max(0, ...stop.map((text) => text.length - 1));
    while (this.pieces.length > hold) this.ready.push(this.pieces.shift()!);
  }

  step(maxOps: number): number {
    this.poll();
    for (let op = 0; op < Math.max(1, Math.floor(maxOps / 10)); op++) {
      const unit = this.units[this.next]!;
      if (this.pending.length === 0 && !this.skipping) return Step.Progress;
      if (unit.state !== 2 && unit.state !== 3) return op > 0 ? Step.Progress : Step.Blocked;
      if (!this.skipping) this.compute(unit);
      if (!unit.pinned) {
        unit.state = 0;
        this.ring.push(unit.slot);
        this.poll();
      }
      this.next = (this.next + 1) % this.units.length;
      if (this.next !== 0) continue;
      if (this.skipping) {
        this.skipping = false;
        continue;
      }
      this.held = this.held.concat(this.pending);
      this.pending = [];
      if (this.asked === null || this.choose(this.asked)) return Step.Done;
      return Step.Progress;
    }
    return Step.Progress;
  }
  private compute(unit: Unit): void {
    if (probe) {
      const units = Atomics.add(probe.units, 0, 1) + 1;
      Atomics.wait(probe.units, 0, units, probe.msPerToken * this.pending.length); // nothing wakes it
    }
    const words = new Int32Array(this.wasmMemory.buffer, unit.slot, this.unitBytes >> 2);
    let h = this.hash;
    for (let i = 0; i < words.length; i++) h = Math.imul(h ^ words[i]!, 0x01000193);
    this.hash = h;
  }
  private sample({ temperature = 0.8, seed }: AnswerOptions): number {
    let h = this.hash ^ this.flavor;
    for (const token of this.held.slice(-32)) h = Math.imul(h ^ token, 0x01000193);
    if (temperature > 0) h = Math.imul(h ^ Number(BigInt.asIntN(32, BigInt(seed))), 0x01000193);
    return 3 + ((h >>> 8) % 250);
  }
  logits(): Float32Array {
    return new Float32Array(1000).fill(hashOf(this.held, this.hash) >>> 8);
  }

  weightSamples(): Uint8Array {
    return new Uint8Array(Uint32Array.of(0, 16, 0, 0, 0, 16, 64, 0).buffer);
  }
  identify(): void {}
  stateStage(): number {
    return 0;
  }
  stateBytes(): number {
    return kStateHead + kStateToken * this.held.length;
  }
  private serialized(): Uint8Array<ArrayBuffer> {
    const out = new Uint8Array(this.stateBytes());
    const view = new DataView(out.buffer);
    view.setUint32(0, kStateMagic);
    view.setInt32(4, this.adapters);
    this.held.forEach((token, i) => view.setUint32(kStateHead + i * kStateToken, token));
    return out;
  }
  readState(offset: number, length: number): boolean {
    if (offset === 0) this.leaving = this.serialized();
    new Uint8Array(this.wasmMemory.buffer, 0, length).set(
      this.leaving.subarray(offset, offset + length),
    );
    return true;
  }
  beginRestore(bytes: number): boolean {
    this.clear();
    this.held = [];
    if (bytes < kStateHead || bytes % kStateToken !== kStateHead)
      return this.fail('CORRUPT', 'This is not a saved state.');
    this.entering = new Uint8Array(bytes);
    this.entered = 0;
    return true;
  }
  writeState(length: number): boolean {
    this.entering.set(new Uint8Array(this.wasmMemory.buffer, 0, length), this.entered);
    this.entered += length;
    if (this.entered < this.entering.length) return true;
    const view = new DataView(this.entering.buffer);
    if (view.getUint32(0) !== kStateMagic || view.getInt32(4) !== this.adapters)
      return this.fail('CORRUPT', 'This is not a saved state of this model.');
    const n = (this.entering.length - kStateHead) / kStateToken;
    if (n > this.context) return this.fail('CONTEXT_FULL', 'The state is longer than the context.');
    this.held = Array.from({ length: n }, (_, i) => view.getUint32(kStateHead + i * kStateToken));
    return true;
  }

  memory(): string {
    const weights = this.units.filter((unit) => unit.slot).length * this.unitBytes;
    return JSON.stringify({
      budget: this.budget,
      weights,
      total: weights,
      pinned: weights,
      streamBuffer: 0,
      kv: 0,
      activations: 0,
      tokenizer: 0,
      scratch: 0,
      adapters: this.adapters >>> 0,
      other: kSlots,
    } satisfies Partial<MemoryReport>);
  }
  stats(): string {
    return JSON.stringify({ passes: 0, ownBytes: 0 });
  }
  unitStates(): Uint8Array {
    return Uint8Array.from(this.units, (unit, i) => unit.state + (i === this.next ? 16 : 0));
  }
  kernelName(): string {
    return 'fake';
  }
  threads(): number {
    return this.options.threadPoolSize + 1;
  }
  delete(): void {
    this.units = [];
  }
}

export async function createEngine(options: RuntimeOptions): Promise<EngineModule> {
  const { wasmMemory } = options;
  const bind = (): EngineBinding => new FakeEngine(wasmMemory, options);
  return {
    Engine: class {
      constructor() {
        return bind() as never;
      }
    } as never,
    Pictures: class {
      constructor(engine: EngineBinding) {
        return new FakePictures(engine as FakeEngine, bind(), wasmMemory) as never;
      }
    } as never,
  };
}

/** A thread that computes nothing and only reports that it has opened its files. */
export function serveThread(port: Port): void {
  port.onmessage = ({ data }) => (data as { reply?: Port }).reply?.postMessage(0);
}
