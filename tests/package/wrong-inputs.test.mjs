// Mistakes in calls of the package. Each is answered by an error with a code and a whole message: what
// is wrong, which name, and what to do. Needs dist/.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

const { Engine, SluiceError } = await import(inRoot('dist', 'node.js'));
const model = inRoot('examples', 'models', 'sluice-tales-Q8_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-calls-'));
const at = (name) => join(folder, name);
const server = createServer((_, response) => response.writeHead(404).end());
let engine, disposed, address;

before(async () => {
  mkdirSync(at('folder'));
  writeFileSync(at('empty.gguf'), '');
  writeFileSync(at('page.gguf'), '<!DOCTYPE html>');
  writeFileSync(at('half.gguf'), readFileSync(model).subarray(0, 200000));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  address = `http://127.0.0.1:${server.address().port}`;
  const options = { contextLength: 128, structuredOutput: true };
  [engine, disposed] = [await Engine.load(model, options), await Engine.load(model, options)];
  await disposed.dispose();
});
after(async () => {
  server.close();
  await engine.dispose();
  rmSync(folder, { recursive: true });
});

const load = (source, options) => () =>
  Engine.load(typeof source === 'function' ? source() : source, options).then((e) => e.dispose());
const loadWith = (options) => load(model, options);
const generate = (prompt, options) => () => engine.generate(prompt, options).text();
const generateWith = (options) => generate('a', options);
const chat = (options) => () =>
  engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }], ...options });
const cache = (call) => () => call(Engine.modelCache);
const session = (call) => () => call(engine.session());
const wrong = 'INVALID_ARGUMENT';
const size = (given) =>
  `memoryBudget must be bytes, from 65536, or a text such as '64M', not '${given}'. ` +
  "4 << 30 overflows: write '4G'.";

/** By kind of call: the call, the error's code and message. $F is a folder, $U a server. */
const tables = {
  'Engine.load': [
    [load(), wrong, 'Pass a model address, a File or a list of them.'],
    [load(''), wrong, 'Pass a model address, a File or a list of them.'],
    [load(7), wrong, 'Pass a model address, a File or a list of them.'],
    [load(at('none.gguf')), 'NOT_FOUND', '$F/none.gguf does not exist.'],
    [
      load(at('folder')),
      'NOT_FOUND',
      'the model directory has no config.json: $F/folder/config.json does not exist. To open a GGUF file, name the file itself.',
    ],
    [load(at('empty.gguf')), 'TRUNCATED', 'the file ends inside its header'],
    [
      load(at('page.gguf')),
      'NOT_GGUF',
      'not a GGUF file: use the address of the file itself, not of a page about it',
    ],
    [
      load(at('half.gguf')),
      'TRUNCATED',
      'tensor "token_embd.weight" ends at byte 347776, but the file has only 200000; download it again',
    ],
    [
      load(() => `${address}/m.gguf`),
      'HTTP_STATUS',
      '$U/m.gguf answered 404 Not Found. Check the address.',
    ],
    [
      load('ftp://host/m.gguf'),
      wrong,
      "'ftp://host/m.gguf' cannot be read: give an http(s) address or a File.",
    ],
  ],
  'options of Engine.load': [
    [
      loadWith({ memoryBuget: '1G' }),
      wrong,
      "'memoryBuget' is not an option of load() and inspect(): use memoryBudget.",
    ],
    [loadWith({ memoryBudget: 4 << 30 }), wrong, size(0)],
    [loadWith({ memoryBudget: 'lots' }), wrong, size('lots')],
    [loadWith({ contextLength: -1 }), wrong, 'contextLength must be a number of 0 or more.'],
    [loadWith({ contextLength: '4k' }), wrong, 'contextLength must be a number of 0 or more.'],
    [
      loadWith({ contextLength: 1e9 }),
      wrong,
      'a context of 1000000000 positions is not between 1 and 16777216',
    ],
    [loadWith({ threads: 1000 }), wrong, 'threads must be at most 64.'],
    [
      loadWith({ kvType: 'q5' }),
      wrong,
      'unknown KV cache type "q5": choose f16, q8_0, q4_0, q2, auto or a pair such as q8_0,q4_0',
    ],
    [
      loadWith({ kvPolicy: 'ring' }),
      wrong,
      'unknown KV policy "ring": choose full, window or heavy-hitter',
    ],
    [loadWith({ device: 'cuda' }), wrong, 'device must be wasm, webgpu or auto.'],
    [
      loadWith({ powerPreference: 'low' }),
      wrong,
      'powerPreference must be low-power or high-performance.',
    ],
    [
      loadWith({ lora: 'a.gguf' }),
      wrong,
      'lora must be a list of adapters, each { source, scale }.',
    ],
    [
      loadWith({ draft: at('none.gguf') }),
      'NOT_FOUND',
      'The draft model: $F/none.gguf does not exist.',
    ],
    [loadWith({ parallel: 0 }), wrong, 'parallel must be from 1 to 64.'],
    [loadWith({ signal: 'stop' }), wrong, 'signal must be an AbortSignal.'],
    [loadWith({ onProgress: 1 }), wrong, 'onProgress must be a function.'],
    [loadWith({ cache: false }), wrong, 'cache must be default, only, reload or none.'],
  ],
  generate: [
    [
      generate(),
      wrong,
      'Pass a string or token ids; chat messages go to chat.completions.create().',
    ],
    [generate(''), 'PROMPT_EMPTY', 'The prompt is empty.'],
    [generate([99999]), wrong, '99999 is not a token id: they range from 0 to 1151.'],
    [
      generate('a'.repeat(500)),
      'PROMPT_TOO_LONG',
      'the prompt has 501 tokens but the context holds 128: shorten it, or load with a larger context',
    ],
    [
      generateWith({ max_tokens: 3 }),
      wrong,
      "'max_tokens' is not an option of a generation: use maxTokens.",
    ],
    [generateWith({ maxTokens: -1 }), wrong, 'maxTokens must be a number of 0 or more.'],
    [generateWith({ temperature: 'hot' }), wrong, 'temperature must be a number.'],
    [generateWith({ stop: 7 }), wrong, 'stop must be a string or string array.'],
    [generateWith({ seed: 1.5 }), wrong, 'seed must be an integer from -2^63 to 2^64-1.'],
    [
      generateWith({ grammar: 'root ::= [a' }),
      'GRAMMAR_SYNTAX',
      'line 1, column 10: this class is not closed',
    ],
    [
      generateWith({ jsonSchema: { type: 'foo' } }),
      'SCHEMA_UNSUPPORTED',
      'at "/type": unknown type',
    ],
    [
      generateWith({ grammar: 'root ::= "a"', jsonSchema: {} }),
      wrong,
      'Only one of grammar, regex, choice and jsonSchema can be set.',
    ],
    [() => disposed.generate('a').text(), 'DISPOSED', 'The engine was disposed of.'],
  ],
  'chat completions': [
    [
      () => engine.chat.completions.create(),
      wrong,
      'create() takes an object with messages or prompt.',
    ],
    [chat({ messages: 'Hi' }), wrong, "'messages' must be a list of at least one message."],
    [
      chat({ messages: [{ role: 'user', content: 7 }] }),
      wrong,
      "'messages[0]': content must be a string or a list of parts.",
    ],
    [
      chat({ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }),
      'NOT_SUPPORTED',
      "The model takes no pictures: message parts of type 'image_url' are unsupported.",
    ],
    [
      chat({ maxTokens: 3 }),
      wrong,
      'Unrecognized request argument supplied: maxTokens (use max_tokens)',
    ],
    [chat({ temperature: 'x' }), wrong, "'temperature' must be a number of 0 or more."],
    [chat({ stream: 'yes' }), wrong, "'stream' must be true or false."],
    [
      chat({ response_format: { type: 'xml' } }),
      wrong,
      "'response_format': 'type' must be one of 'text', 'json_object', 'json_schema'.",
    ],
    [
      chat({ tool_choice: { type: 'function', function: { name: 'f' } } }),
      wrong,
      "'tool_choice' names 'f', which is not in 'tools'.",
    ],
    [chat({ n: 0 }), wrong, "'n' must be a whole number from 1 to 16."],
  ],
  sessions: [
    [
      () => engine.session({ sytem: 'x' }),
      wrong,
      "'sytem' is not an option of session(): use system.",
    ],
    [session((s) => s.send().text()), wrong, 'every message needs a role.'],
    [
      session((s) => s.generate(['x']).text()),
      wrong,
      'generate() takes a string or parts; use send() for messages.',
    ],
    [session((s) => s.restore({})), wrong, 'Pass what saveState() or save() returned.'],
    [() => engine.renderPrompt('x'), wrong, 'messages must be a list.'],
  ],
  embeddings: [
    [() => engine.embed('x'), wrong, 'embed() takes an array.'],
    [() => engine.embeddings.create({}), wrong, "You must provide 'input'."],
    [
      () => engine.embeddings.create({ input: [] }),
      wrong,
      "'input' must be a text, a list of texts, or lists of token ids.",
    ],
    [
      () => engine.embeddings.create({ input: 'x', dimensions: 0 }),
      wrong,
      "'dimensions' must be a whole number from 1 to 1048576.",
    ],
    [
      () => engine.embeddings.create({ input: 'x', dimension: 8 }),
      wrong,
      'Unrecognized request argument supplied: dimension',
    ],
    [
      () => engine.embeddings.create({ input: 'x', encoding_format: 'hex' }),
      wrong,
      "'encoding_format' must be one of 'float', 'base64'.",
    ],
    [() => engine.rerank('query', ['a']), wrong, 'this model has no ranking head'],
    [() => engine.tokenize(7), wrong, 'tokenize() takes a string.'],
  ],
  'the model cache': [
    [
      cache((c) => c.list({ cachedir: 'x' })),
      wrong,
      "'cachedir' is not an option of the model cache: use cacheDir.",
    ],
    [cache((c) => c.delete()), wrong, 'Pass a model address, a File or a list of them.'],
    [cache((c) => c.evictOldest('1G')), wrong, 'maxBytes must be a number of 0 or more.'],
  ],
};

for (const [name, rows] of Object.entries(tables)) {
  test(`wrong inputs: ${name}`, async () => {
    for (const [call, code, message] of rows) {
      const error = await Promise.resolve()
        .then(call)
        .then(
          () => assert.fail(`accepted: ${message}`),
          (error) => error,
        );
      const said = error.message.replaceAll(folder, '$F').replaceAll(address, '$U');
      assert.deepEqual([said, error.code, error instanceof SluiceError], [message, code, true]);
    }
  });
}
