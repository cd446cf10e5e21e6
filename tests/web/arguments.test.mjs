// What a caller passes is taken at the call: every public method is called twice, once with
// arguments that are changed right afterwards, and must have the same result. Over the fake engine
// in Node, idle and while a change of adapters is pending, so that calls have to wait. A public
// method that is not in the table fails the test.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { callables } from '../../web/scripts/reference.mjs';
import { eventually } from './eventually.mjs';
import { buildFakePackage, fakeModel, faultyServer, importWeb } from './helpers.mjs';
import { memoryFolder } from './memory-folder.mjs';

const directory = mkdtempSync(join(tmpdir(), 'sluice-arguments-'));
process.env.SLUICE_CACHE = join(directory, 'cache');
const dist = await buildFakePackage();
const { Engine, SluiceError } = await import(join(dist, 'node.js'));
const { SavedSessions } = await importWeb('sessions');
const { sluice, sluiceEmbedding, sluiceReranking } = await importWeb('ai-sdk');
const v4 = await importWeb('ai-sdk-v4');
const huggingface = await importWeb('huggingface');
const { snapshot } = await importWeb('protocol/snapshot');

const bytes = fakeModel();
const path = join(directory, 'model.gguf');
const adapter = join(directory, 'adapter.gguf');
writeFileSync(path, bytes);
writeFileSync(adapter, 'an adapter');
const load = { contextLength: 2000, memoryBudget: 4e6, onProgress: () => {} };
let engine, models, adapters;
let held; // answers the request for the adapter

before(async () => {
  adapters = createServer((_, response) => (held = () => response.end('an adapter')));
  await new Promise((ready) => adapters.listen(0, '127.0.0.1', ready));
  models = await faultyServer({ bytes, etag: '"1"' });
  engine = await Engine.load(path, { ...load, lora: [adapter], structuredOutput: true });
});
after(async () => {
  await engine.dispose();
  await models.close();
  adapters.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Changes everything that can be changed, in place. */
function change(value) {
  if (typeof value === 'number') return value + 1;
  if (typeof value === 'string') return `${value} changed`;
  if (typeof value === 'boolean') return !value;
  if (value instanceof URL) value.pathname = '/changed';
  if (ArrayBuffer.isView(value)) value.fill(9);
  if (value instanceof ArrayBuffer) new Uint8Array(value).fill(9);
  if (Array.isArray(value)) {
    value.forEach((one, i) => (value[i] = change(one)));
    value.push(...value.slice(0, 1));
  } else if (value && Object.getPrototypeOf(value) === Object.prototype) {
    for (const key of Object.keys(value)) value[key] = change(value[key]);
    value.addedLater = true;
  }
  return value;
}

/** A result as JSON, without what differs between equal calls. */
const comparable = (value) =>
  JSON.stringify(value, (key, one) => {
    if (
      /^(timings|cachedTokens|cached_tokens|cacheRead|noCache|id|created|used|timestamp|speed)$/.test(
        key,
      )
    )
      return undefined;
    return ArrayBuffer.isView(one) ? [...one] : one;
  });

const all = async (parts) => {
  const out = [];
  for await (const part of parts) out.push(part);
  return out;
};
const greedy = () => ({ maxTokens: 6, temperature: 0 });
const rich = () => ({
  ...greedy(),
  stop: ['xyz'],
  logitBias: { 7: 1, 8: -1 },
  jsonSchema: { type: 'object', properties: { a: { enum: [1, 2] } } },
});
const messages = () => [
  { role: 'system', content: 'Be brief.' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ],
  },
];
const tools = () => [
  {
    type: 'function',
    function: {
      name: 'add',
      parameters: { type: 'object', properties: { a: { type: 'number' } } },
    },
  },
];
const template = '{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}{{ word }}';
const chat = () => ({
  messages: messages(),
  tools: tools(),
  max_tokens: 6,
  temperature: 0,
  stop: ['xyz'],
  logit_bias: { 7: 1 },
  chat_template: template,
  chat_template_kwargs: { word: 'kwargs', list: [1] },
  response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'object' } } },
});
const texts = () => ['a b c', 'd', [5, 6, 7]];
/** What a loaded model shows of its options. */
const shown = async (loading) => {
  const loaded = await loading;
  try {
    const { plan, name } = loaded.info;
    const { text } = await loaded.generate('hello', greedy()).result;
    return [plan, name, text, loaded.memory().adapters];
  } finally {
    await loaded.dispose();
  }
};
const loading = () => ({
  ...load,
  tuning: { chunkSize: 16384 },
  lora: [{ source: adapter, scale: 0.5 }, adapter, { source: pathToFileURL(adapter) }],
  wasmBinary: Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0),
  workerUrl: pathToFileURL(join(dist, 'worker-node.js')),
});
const spoken = async () => {
  const session = engine.session();
  await session.generate('hello', greedy()).result;
  return session;
};
const savedSession = async () => structuredClone(await (await spoken()).save());
const told = ({ text, tokens, messages }) => ({ text, tokens, messages });
const forSdk = () => ({
  prompt: [{ role: 'user', content: [{ type: 'text', text: 'one' }] }],
  maxOutputTokens: 6,
  temperature: 0,
  stopSequences: ['xyz'],
  tools: [{ type: 'function', name: 'add', inputSchema: { type: 'object', properties: {} } }],
  responseFormat: { type: 'json', schema: { type: 'object' } },
  providerOptions: { sluice: { min_p: 0.1, chat_template: template } },
});
const longPrompt = () => Array.from({ length: 20 }, (_, i) => 5 + i);
const store = async () => {
  const opened = await SavedSessions.open({ folder: memoryFolder() });
  await engine.generate(longPrompt(), greedy()).result;
  assert.ok(await opened.save('it', engine));
  return opened;
};
const hub = () => ({
  endpoint: 'https://hub.example',
  revision: 'main',
  token: 'secret',
  fetch: async (url, { headers }) => {
    await sleep(1);
    if (!url.startsWith('https://hub.example') || headers.Authorization !== 'Bearer secret')
      throw new Error(`asked ${url} with ${headers.Authorization}`);
    const path = /[?&]cursor/.test(url) ? 'a-Q4_0.gguf' : 'a-Q8_0.gguf';
    const headersBack = /[?&]cursor/.test(url) ? {} : { link: `<${url}&cursor=1>; rel="next"` };
    return Response.json([{ type: 'file', path, size: 8 }], { headers: headersBack });
  },
});
const cached = async () => {
  const loaded = await Engine.load(models.url, { ...load, cacheDir: process.env.SLUICE_CACHE });
  await loaded.downloaded;
  await loaded.dispose();
};

/**
 * Calls by method: `args` makes the arguments, and `call` passes them to the method, of what `of`
 * makes. null: nothing that is passed could be changed.
 */
const methods = {
  'sluice-llm: Engine.load': [
    { args: () => [path, loading()], call: (args) => shown(Engine.load(...args)) },
    {
      args: () => [[new File([bytes], 'model.gguf')]],
      call: ([source]) => shown(Engine.load(source, load)),
    },
    { args: () => [pathToFileURL(path)], call: ([url]) => shown(Engine.load(url, load)) },
  ],
  'sluice-llm: Engine.inspect': [
    { args: () => [pathToFileURL(path), loading()], call: (args) => Engine.inspect(...args) },
  ],
  'sluice-llm: Engine.generate': [
    { args: () => ['hello', rich()], call: (args) => engine.generate(...args).result },
    { args: () => [[5, 6, 7], greedy()], call: (args) => engine.generate(...args).result },
    { args: () => [Int32Array.of(5, 6), rich()], call: (args) => engine.generate(...args).result },
  ],
  'sluice-llm: Engine.embed': [
    { args: () => [texts(), { dimensions: 4 }], call: (args) => engine.embed(...args) },
  ],
  'sluice-llm: Engine.rerank': [
    { args: () => ['x', ['a', 'b', 'c'], { topN: 2 }], call: (args) => engine.rerank(...args) },
    { args: () => ['x', ['a', 'b', 'c']], call: (args) => engine.rerank(...args) },
  ],
  'sluice-llm: Engine.session': [
    {
      args: () => [
        {
          system: 'Be brief.',
          messages: messages(),
          tools: tools(),
          template,
          variables: { word: 'a' },
        },
      ],
      call: async (args) => {
        const session = engine.session(...args);
        await sleep(0);
        await session.send('and', greedy()).result;
        return told(session);
      },
    },
  ],
  'sluice-llm: Engine.tokenize': [
    { args: () => ['hello', { addSpecial: false }], call: (args) => engine.tokenize(...args) },
  ],
  'sluice-llm: Engine.renderPrompt': [
    {
      args: () => [
        [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }],
        { template: '{{ x }}{{ messages[0].content }}', variables: { x: 'y' } },
      ],
      call: (args) => engine.renderPrompt(...args),
    },
  ],
  'sluice-llm: Engine.detokenize': [
    { args: () => [[104, 108]], call: (args) => engine.detokenize(...args) },
    { args: () => [Int32Array.of(104, 108)], call: (args) => engine.detokenize(...args) },
  ],
  'sluice-llm: Engine.countTokens': null,
  'sluice-llm: Engine.imageCost': null,
  'sluice-llm: Engine.logits': [
    { args: () => [[5, 6]], call: (args) => engine.logits(...args) },
    { args: () => [[5], { decoderTokens: [6, 7] }], call: (args) => engine.logits(...args) },
  ],
  'sluice-llm: Engine.stats': null,
  'sluice-llm: Engine.memory': null,
  'sluice-llm: Engine.weightUnits': null,
  'sluice-llm: Engine.setMemoryBudget': null,
  'sluice-llm: Engine.setAdapters': [
    {
      args: () => [[{ source: pathToFileURL(adapter), scale: 0.5 }, adapter]],
      call: async (args) => {
        await engine.setAdapters(...args);
        return (await engine.generate('hello', greedy()).result).text;
      },
    },
  ],
  'sluice-llm: Engine.saveState': null,
  'sluice-llm: Engine.restoreState': [
    {
      args: async () => {
        await engine.generate('hello', greedy()).result;
        const state = structuredClone(await engine.saveState());
        await engine.generate('another', greedy()).result;
        return [state];
      },
      call: async (args) => {
        await engine.restoreState(...args);
        return (await engine.saveState()).tokens;
      },
    },
  ],
  'sluice-llm: Engine.dispose': null,
  'sluice-llm: Engine.[Symbol.asyncDispose]': null,
  'sluice-llm: Embeddings.create': [
    {
      args: () => [{ input: ['a', 'b'], dimensions: 4 }],
      call: (args) => engine.embeddings.create(...args),
    },
    {
      args: () => [{ input: [[5, 6], [7]], encoding_format: 'float' }],
      call: (args) => engine.embeddings.create(...args),
    },
  ],
  'sluice-llm: ChatCompletions.create': [
    { args: () => [chat()], call: (args) => engine.chat.completions.create(...args) },
    {
      args: () => [{ ...chat(), stream: true, stream_options: { include_usage: true } }],
      call: async (args) => all(await engine.chat.completions.create(...args)),
    },
  ],
  'sluice-llm: Completions.create': [
    {
      args: () => [{ prompt: [5, 6], max_tokens: 6, temperature: 0, stop: ['xyz'] }],
      call: (args) => engine.completions.create(...args),
    },
    {
      args: () => [
        { prompt: 'a', max_tokens: 6, temperature: 0, logit_bias: { 7: 1 }, stream: true },
      ],
      call: async (args) => all(await engine.completions.create(...args)),
    },
  ],
  'sluice-llm: ChatStream.[Symbol.asyncIterator]': null,
  'sluice-llm: ChatStream.toReadableStream': null,
  'sluice-llm: Generation.cancel': null,
  'sluice-llm: Generation.text': null,
  'sluice-llm: Generation.[Symbol.asyncIterator]': null,
  'sluice-llm: Generation.partials': null,
  'sluice-llm: Generation.toReadableStream': null,
  'sluice-llm: Session.generate': [
    {
      of: spoken,
      args: () => [' more', rich()],
      call: async (args, session) => [await session.generate(...args).result, told(session)],
    },
  ],
  'sluice-llm: Session.send': [
    {
      of: spoken,
      args: () => [messages(), rich()],
      call: async (args, session) => [await session.send(...args).result, told(session)],
    },
    {
      of: spoken,
      args: () => [{ role: 'user', content: 'one' }, greedy()],
      call: async (args, session) => [await session.send(...args).result, told(session)],
    },
  ],
  'sluice-llm: Session.save': null,
  'sluice-llm: Session.restore': [
    {
      of: async () => engine.session({ messages: messages() }),
      args: async () => [{ ...(await savedSession()), messages: messages() }],
      call: async (args, session) => {
        await session.restore(...args);
        return [told(session), await session.save()];
      },
    },
    {
      of: spoken,
      args: async () => [await savedSession()],
      call: async (args, session) => {
        session.generate(' more', greedy()); // the session is in use
        await session.restore(...args);
        return [told(session), await session.save()];
      },
    },
  ],
  'sluice-llm: Session.fork': null,
  'sluice-llm: Session.dispose': null,
  'sluice-llm: Session.[Symbol.asyncDispose]': null,
  'sluice-llm: SluiceError.constructor': [
    { args: () => ['IO', 'text', {}], call: async (args) => new SluiceError(...args).code },
  ],
  'sluice-llm: SluiceError.[Symbol.hasInstance]': null,
  'sluice-llm: StoreManager.list': null,
  'sluice-llm: StoreManager.size': null,
  'sluice-llm: StoreManager.delete': [
    {
      of: cached,
      args: () => [new URL(models.url)],
      call: async (args) => {
        const deleted = Engine.modelCache.delete(...args);
        return [await deleted, await Engine.modelCache.size()];
      },
    },
  ],
  'sluice-llm: StoreManager.evictOldest': null,
  'sluice-llm: StoreManager.persist': null,
  'sluice-llm: StoreManager.persisted': null,
  'sluice-llm/huggingface: huggingFaceUrl': [
    {
      args: () => ['hf:a/b/c.gguf', { endpoint: 'https://hub.example' }],
      call: async (args) => huggingface.huggingFaceUrl(...args),
    },
  ],
  'sluice-llm/huggingface: quantizationOf': null,
  'sluice-llm/huggingface: listHuggingFaceFiles': [
    { args: () => ['a/b', hub()], call: (args) => huggingface.listHuggingFaceFiles(...args) },
  ],
  'sluice-llm/huggingface: findHuggingFaceFile': [
    {
      args: () => ['a/b', { quantization: 'Q4_0' }, hub()],
      call: (args) => huggingface.findHuggingFaceFile(...args),
    },
    {
      args: () => ['a/b', { maxBytes: 8 }, hub()],
      call: (args) => huggingface.findHuggingFaceFile(...args),
    },
  ],
  'sluice-llm/ai-sdk: sluice': [
    { args: () => [forSdk()], call: (args) => sluice(engine).doGenerate(...args) },
    {
      args: () => [forSdk()],
      call: async (args) => all((await sluice(engine).doStream(...args)).stream),
    },
  ],
  'sluice-llm/ai-sdk: sluiceEmbedding': [
    {
      args: () => [{ values: ['a', 'b'], providerOptions: { sluice: { dimensions: 4 } } }],
      call: (args) => sluiceEmbedding(engine).doEmbed(...args),
    },
  ],
  'sluice-llm/ai-sdk: sluiceReranking': [
    {
      args: () => [
        { documents: { type: 'object', values: [{ a: 1 }, { a: 2 }] }, query: 'x', topN: 2 },
      ],
      call: (args) => sluiceReranking(engine).doRerank(...args),
    },
  ],
  'sluice-llm/ai-sdk/v4: sluice': [
    { args: () => [forSdk()], call: (args) => v4.sluice(engine).doGenerate(...args) },
  ],
  'sluice-llm/ai-sdk/v4: sluiceEmbedding': null, // that of sluice-llm/ai-sdk
  'sluice-llm/ai-sdk/v4: sluiceReranking': null,
  'sluice-llm/sessions: SavedSessions.open': [
    {
      args: () => [{ folder: memoryFolder(), maxBytes: 1e6, model: 'a' }],
      call: async (args) => {
        const opened = await SavedSessions.open(...args);
        return [await opened.save('it', engine), (await opened.list()).length];
      },
    },
  ],
  'sluice-llm/sessions: SavedSessions.save': null,
  'sluice-llm/sessions: SavedSessions.restore': null,
  'sluice-llm/sessions: SavedSessions.restorePrefix': [
    {
      of: store,
      args: () => [longPrompt()],
      call: ([prompt], opened) => opened.restorePrefix(engine, prompt),
    },
  ],
  'sluice-llm/sessions: SavedSessions.list': null,
  'sluice-llm/sessions: SavedSessions.delete': null,
};

test('every public method is in the table', () => {
  assert.deepEqual(Object.keys(methods).sort(), callables().sort());
});

/** The result of a call. `busy`: it has to wait for a change of the engine. */
async function result({ of = () => null, args: make, call }, { busy, changed }) {
  await engine.setAdapters([adapter]);
  const target = await of();
  const args = await make();
  let pending;
  if (busy) {
    held = null;
    pending = engine.setAdapters([`http://127.0.0.1:${adapters.address().port}/adapter.gguf`]);
    await eventually(() => held, 'the adapter is requested');
  }
  const calling = call(args, target);
  if (changed) change(args);
  held?.();
  const [value] = await Promise.all([calling, pending]);
  return comparable(value);
}

for (const [name, calls] of Object.entries(methods)) {
  for (const [i, one] of (calls ?? []).entries()) {
    for (const busy of [false, true]) {
      test(`${name}, ${i + 1}${busy ? ', while it waits' : ''}: arguments are taken at the call`, async () => {
        const left = await result(one, { busy, changed: false });
        assert.equal(await result(one, { busy, changed: true }), left);
      });
    }
  }
}

test('snapshot() copies data, with its cycles, and passes on everything else', () => {
  class Own {}
  const { signal } = new AbortController();
  const same = { signal, blob: new Blob([]), call: () => {}, own: new Own(), none: null };
  const given = {
    ...same,
    list: [1, [2]],
    bytes: Buffer.from('abc'),
    buffer: new ArrayBuffer(2),
    url: new URL('http://a/b'),
    bare: Object.assign(Object.create(null), { a: 1 }),
    schema: { '~standard': { jsonSchema: { input: () => ({ type: 'number' }) } } },
    odd: JSON.parse('{"__proto__": {"a": 1}}'),
  };
  given.self = given;
  given.list.push(given.list);
  const copy = snapshot(given);
  for (const [key, value] of Object.entries(same)) assert.equal(copy[key], value, key);
  for (const key of ['list', 'bytes', 'buffer', 'bare', 'odd'])
    assert.notEqual(copy[key], given[key], key);
  assert.equal(copy.self, copy);
  assert.equal(copy.list[2], copy.list);
  assert.deepEqual(copy.list.slice(0, 2), [1, [2]]);
  given.bytes.fill(0);
  assert.deepEqual([...copy.bytes], [97, 98, 99]);
  assert.equal(copy.url, 'http://a/b');
  assert.equal(copy.bare.a, 1);
  assert.deepEqual(copy.schema, { type: 'number' });
  assert.equal(JSON.stringify(copy.odd), '{"__proto__":{"a":1}}');
});
