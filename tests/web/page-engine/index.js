// Stands in for the package in tests of the page alone. It generates a word every few milliseconds,
// fails on request, and records the page's calls in `window.fake`.

const fake = (window.fake = {
  /** Milliseconds per word, words per generation, milliseconds per load. */
  pause: 4, words: 12, loading: 5, name: 'Fake',
  word: (n) => `w${n}${n % 5 === 4 ? '. ' : ' '}`,
  /** SluiceErrors that the next calls of these methods reject with, by name; 'never': they do not settle. */
  fails: {},
  inspected: [], loaded: [], sessions: [], engines: 0,
  /** Words of reasoning before a response; what responses wait for; the listener of the last load; the budgets that were set. */
  thinks: 0, gate: null, onProgress: null, budgets: [],
});

export class SluiceError extends Error {
  name = 'SluiceError';
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms));
const gone = () => new SluiceError('DISPOSED', 'The engine was disposed of.');

async function mayFail(method) {
  const failure = fake.fails[method];
  delete fake.fails[method];
  if (failure === 'never') await new Promise(() => {});
  if (failure) throw new SluiceError(...failure);
}

const infoOf = (budget = 0) => ({
  name: fake.name, architecture: 'llama', bytes: 9e6, parameters: 9e6, layers: 2, types: { Q8_0: 1 }, trainContextLength: 512,
  chatTemplate: 'yes',
  modalities: ['text'],
  plan: {
    budget, minimum: 1e6, total: 9e6, resident: budget === 0, pinned: 4e6, streamBuffer: 1e6, bytesPerPass: 5e6, contextLength: 512,
    kv: 1e5, activations: 1e5, scratch: 1e5, tokenizer: 1e5, smallTensors: 0, adapters: 0, nextn: 0,
    generation: 1e4, grammar: 0, draft: 0, reserve: 0, other: 0, contextFrom: 'model', layerUnits: [0, 1, 2],
  },
});

class Generation {
  cancelled = false;
  text = '';
  content = '';
  reasoning = '';
  constructor(engine, { maxTokens = 1e9 } = {}) {
    this.result = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.result.catch(() => {});
    this.pieces = this.run(engine, Math.min(maxTokens, fake.words));
  }
  cancel() {
    this.cancelled = true;
  }
  async *run(engine, words) {
    let n = 0;
    try {
      await mayFail('generate');
      await fake.gate;
      for (; n < words && !this.cancelled; n++) {
        await sleep(fake.pause);
        if (engine.disposed) throw gone();
        const text = fake.word(n);
        this.text += text;
        const part = n < fake.thinks ? 'reasoning' : 'content';
        this[part] += text;
        yield { text, token: n, content: '', reasoning: '', [part]: text };
      }
    } catch (error) {
      this.settle.reject(error);
      throw error;
    }
    this.settle.resolve({
      text: this.text, content: this.content, reasoning: this.reasoning, finishReason: this.cancelled ? 'cancelled' : 'stop', usage: { promptTokens: 5, completionTokens: n, cachedTokens: 0 },
      timings: { tokensPerSecond: 9, timeToFirstTokenMs: 4 },
    });
  }
  [Symbol.asyncIterator]() {
    return this.pieces;
  }
}

export class Engine {
  disposed = false;
  downloaded = Promise.resolve();
  static modelCache = {
    list: async () => [],
    size: async () => 0,
    delete: async () => {},
    evictOldest: async () => {
      await mayFail('evictOldest');
      return [];
    },
  };
  constructor(budget) {
    this.info = infoOf(budget);
    fake.engines++;
  }
  static async inspect(source, { memoryBudget, cache, signal } = {}) {
    fake.inspected.push([String(source), cache]);
    await sleep(fake.loading);
    signal?.throwIfAborted();
    await mayFail('inspect');
    return infoOf(memoryBudget);
  }
  static async load(source, { memoryBudget, signal, onProgress } = {}) {
    fake.loaded.push(String(source));
    fake.onProgress = onProgress;
    await sleep(fake.loading);
    signal?.throwIfAborted();
    await mayFail('load');
    return (fake.engine = new Engine(memoryBudget));
  }
  generate(_text, options) {
    const generation = new Generation(this, options);
    if (options.maxTokens === 0) generation.pieces.next().catch(() => {}); // nobody reads it
    return generation;
  }
  session({ messages, system }) {
    const session = {
      engine: this, system, messages: [...messages], disposed: false,
      send: (text, options) => {
        session.messages.push({ role: 'user', content: text });
        const generation = new Generation(this, options);
        generation.result.then(({ text }) => session.messages.push({ role: 'assistant', content: text }), () => {});
        return generation;
      },
      dispose: async () => void (session.disposed = true),
    };
    fake.sessions.push(session);
    return session;
  }
  stats() {
    return {
      promptTokens: 0, cachedTokens: 0, promptMs: 0, generatedTokens: 0, generateMs: 0, timeToFirstTokenMs: 0, tokensPerSecond: 0,
      bytesFetched: 0, bytesFromCache: 0, bytesCached: 0, bytesTotal: 0, kvTokens: 0, threads: 1, kernels: 'fake', loadMs: 1,
    };
  }
  memory() {
    return { ...this.info.plan, heap: 5e6, weights: 4e6 };
  }
  weightUnits() {
    return [0, 1, 2].map((unit) => ({ unit, state: 'pinned', computing: false }));
  }
  async setMemoryBudget(bytes) {
    fake.budgets.push(bytes);
    await sleep(fake.loading);
    await mayFail('setMemoryBudget');
    if (this.disposed) throw gone();
    this.info = infoOf(bytes === 'auto' ? 0 : bytes);
  }
  async dispose() {
    this.disposed = true;
    fake.engines--;
  }
}
