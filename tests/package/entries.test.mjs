// The package's other entries: the command line, the AI SDK provider, the Hugging Face helper.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { extent } from '../extent.mjs';

const { Engine, SluiceError } = await import(inRoot('dist', 'node.js'));
const { sluice } = await import(inRoot('dist', 'ai-sdk.js'));
const v4 = await import(inRoot('dist', 'ai-sdk-v4.js'));
const { huggingFaceUrl } = await import(inRoot('dist', 'huggingface.js'));
const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'sluice-entries-'));
let engine;
before(async () => (engine = await Engine.load(model, { contextLength: 256 })));
after(async () => {
  await engine.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const cli = (args, input) =>
  spawnSync(process.execPath, [inRoot('dist', 'cli.js'), ...args], {
    encoding: 'utf8',
    input,
    timeout: 240_000,
  });

test('run prints the same text as engine.generate()', async () => {
  const expected = await engine
    .generate('Once upon a time', { maxTokens: 12, temperature: 0 })
    .text();
  const flags = [
    '-n',
    '12',
    '--temp',
    '0',
    '--ctx',
    '256',
    '--memory-budget',
    '64M',
    '--threads',
    '1',
  ];
  const plain = cli(['run', model, '--raw', '-p', 'Once upon a time', ...flags]);
  assert.equal(plain.status, 0, plain.stderr);
  assert.equal(plain.stdout, `${expected}\n`);
  assert.match(plain.stderr, /generated 12 tokens/);
  const json = JSON.parse(
    cli(['run', model, '--raw', '-p', '-', '--json', ...flags], 'Once upon a time').stdout,
  );
  assert.deepEqual(
    [json.text, json.generatedTokens, json.finishReason, json.threads],
    [expected, 12, 'length', 1],
  );
  assert.ok(json.memory.budget <= 64 << 20);
});

test('run and chat use the chat template, and run without a prompt is a chat', async () => {
  const flags = ['-n', '8', '--temp', '0', '--ctx', '256', '--threads', '1'];
  const options = { maxTokens: 8, temperature: 0 };
  const session = engine.session({ system: 'Be kind.' });
  const first = await session.send('Hello', options).text();
  const second = await session.send('A story!', options).text();
  const answer = cli(['run', model, 'Hello', '--system', 'Be kind.', ...flags]);
  assert.equal(answer.stdout, `${first}\n`, answer.stderr);
  assert.match(answer.stderr, /^prompt \d+ tokens, .* tok\/s \| generated \d+ tokens, .* tok\/s/);
  const json = JSON.parse(cli(['run', '-m', model, 'Hello', '--json', ...flags]).stdout);
  assert.deepEqual([typeof json.text, json.reasoning], ['string', '']);
  const input = 'Hello\n\nA story!\n/clear\n/what\nHello\n/bye\nnever read\n';
  for (const command of ['run', 'chat']) {
    const talk = cli([command, model, '--system', 'Be kind.', '--quiet', ...flags], input);
    assert.equal(talk.stdout, `${first}\n${second}\n${first}\n`, command);
    assert.equal(talk.stderr, 'sluice: unknown command /what; /help lists the commands\n');
    assert.equal(talk.status, 0);
  }
});

test('run constrains its output by a text or a file', () => {
  const schema = '{"enum": ["No."]}';
  const grammar = 'root ::= "No" "."+';
  const file = join(folder, 'constraint');
  const flags = ['--quiet', '-n', '8', '--temp', '0', '--ctx', '256', '--threads', '1'];
  const output = (option, value, ...more) => {
    const ran = cli(['run', model, 'Hello', option, value, ...more, ...flags]);
    assert.equal(ran.status, 0, ran.stderr);
    return ran.stdout;
  };
  for (const option of extent(['-j'], ['--json-schema', '-j']))
    assert.equal(output(option, schema), '"No."\n');
  writeFileSync(file, schema);
  for (const option of extent(['--json-schema'], ['--json-schema', '-jf', '--json-schema-file']))
    assert.equal(output(option, file, '--raw'), '"No."\n');
  assert.match(output('--grammar', grammar), /^No\.+\n$/);
  writeFileSync(file, grammar);
  for (const option of extent(['--grammar-file'], ['--grammar', '--grammar-file']))
    assert.match(output(option, file), /^No\.+\n$/);
});

test('tokenize prints the ids on one line', async () => {
  const file = join(folder, 'text');
  writeFileSync(file, 'Once upon a time<|end|>');
  const ids = [...(await engine.tokenize(readFileSync(file, 'utf8')))];
  assert.equal(cli(['tokenize', model, '--file', file]).stdout, `${JSON.stringify(ids)}\n`);
  const plain = [
    ...(await engine.tokenize('Once upon a time<|end|>', {
      addSpecial: false,
      parseSpecial: false,
    })),
  ];
  assert.equal(
    cli(['tokenize', model, '--file', file, '--no-add-special', '--no-parse-special']).stdout,
    `${JSON.stringify(plain)}\n`,
  );
});

test('info prints the fields of the header', () => {
  const json = JSON.parse(cli(['info', model, '--json', '--ctx', '256']).stdout);
  assert.deepEqual(
    [json.architecture, json.layers, json.plan.contextLength],
    ['llama', engine.info.layers, 256],
  );
  assert.match(cli(['info', model]).stdout, /architecture +llama\n/);
});

// wrong-arguments.test.mjs has the table of both programs, in threads.
test('an error is one sentence on stderr', () => {
  const wrong = [
    [['fly'], 2, /"fly" is not a command/],
    [
      ['serve', model, '--device', 'webgpu', '--power-preference', 'low'],
      2,
      /--power-preference: "low" is not low-power or high-performance/,
    ],
    [['serve', model, '-md', join(folder, 'draft.gguf')], 1, /draft\.gguf/],
    [['info', model, '--memory-budget', '64k'], 1, /\[(BUDGET_TOO_SMALL|OUT_OF_MEMORY)\]/],
  ];
  for (const [args, status, message] of wrong) {
    const run = cli(args);
    assert.equal(run.status, status, `${args}: ${run.stderr}`);
    assert.match(run.stderr, message);
    assert.equal(run.stderr.trim().split('\n').length, 1, run.stderr);
    assert.equal(run.stdout, '');
  }
  assert.match(cli([]).stdout, /Usage/);
  assert.match(cli(['--version']).stdout, /^\d+\.\d+\.\d+\n$/);
});

const prompt = [
  { role: 'system', content: 'Be kind.' },
  { role: 'user', content: [{ type: 'text', text: 'A story.' }] },
];

for (const version of ['v3', 'v4']) {
  test(`the AI SDK provider's doGenerate and doStream agree in version ${version}`, () =>
    agrees(version));
}

async function agrees(version) {
  const language = (version === 'v3' ? sluice : v4.sluice)(engine);
  assert.deepEqual(
    [language.specificationVersion, language.provider, language.modelId],
    [version, 'sluice', engine.info.name],
  );
  const options = { prompt, temperature: 0, maxOutputTokens: 12, responseFormat: { type: 'json' } };
  const whole = await language.doGenerate(options);
  assert.equal(whole.content[0].type, 'text');
  assert.deepEqual(whole.warnings, []);
  assert.ok(whole.usage.inputTokens.total > 0);
  const parts = [];
  for await (const part of (await language.doStream(options)).stream) parts.push(part);
  assert.equal(
    parts
      .filter((p) => p.type === 'text-delta')
      .map((p) => p.delta)
      .join(''),
    whole.content[0].text,
  );
  const kinds = parts.map((p) => p.type).filter((kind, i, all) => kind !== all[i - 1]);
  assert.deepEqual(kinds, ['stream-start', 'text-start', 'text-delta', 'text-end', 'finish']);
  assert.deepEqual(parts.at(-1).finishReason, whole.finishReason);
  assert.equal(parts.at(-1).usage.outputTokens.total, whole.usage.outputTokens.total);
}

test('the AI SDK provider warns of a format that the engine cannot keep to', async () => {
  const plain = await Engine.load(model, { structuredOutput: false });
  const { warnings } = await sluice(plain).doGenerate({
    prompt,
    maxOutputTokens: 4,
    responseFormat: { type: 'json' },
  });
  assert.deepEqual(
    warnings.map(({ feature }) => feature),
    ['responseFormat'],
  );
  await plain.dispose();
});

test('version 4 of the AI SDK provider reads text files, and reasoning sets variables', async () => {
  const given = [];
  const chat = { completions: { create: async (params) => (given.push(params), answer) } };
  const answer = { choices: [{ message: { content: 'yes' }, finish_reason: 'stop' }], created: 0 };
  const fake = { info: engine.info, structuredOutput: true, chat };
  const file = { type: 'file', mediaType: 'text/plain', data: { type: 'text', text: 'A note.' } };
  const results = [
    { type: 'text', value: 'warm' },
    { type: 'json', value: { degrees: 21 } },
    {
      type: 'content',
      value: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    },
    { type: 'execution-denied', reason: 'Not now.' },
  ];
  const tool = results.map((output) => ({
    type: 'tool-result',
    toolCallId: '1',
    toolName: 'f',
    output,
  }));
  const messages = [
    { role: 'user', content: [file] },
    { role: 'tool', content: tool },
  ];
  const sluiceOptions = { chat_template_kwargs: { lang: 'en' } };
  for (const [reasoning, variables] of [
    [undefined, { lang: 'en' }],
    ['provider-default', { lang: 'en' }],
    ['none', { enable_thinking: false, lang: 'en' }],
    ['high', { reasoning_effort: 'high', lang: 'en' }],
  ]) {
    await v4
      .sluice(fake)
      .doGenerate({ prompt: messages, reasoning, providerOptions: { sluice: sluiceOptions } });
    assert.deepEqual(given.at(-1).chat_template_kwargs, variables);
  }
  const [user, ...told] = given[0].messages;
  assert.deepEqual(user.content, [{ type: 'text', text: 'A note.' }]);
  assert.deepEqual(
    told.map(({ content }) => content),
    ['warm', '{"degrees":21}', 'a\nb', 'Not now.'],
  );
});

test('the AI SDK provider rejects unsupported input and aborted calls', async () => {
  const language = sluice(engine);
  const file = [{ role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: 'x' }] }];
  await assert.rejects(language.doGenerate({ prompt: file }), { code: 'NOT_SUPPORTED' });
  const controller = new AbortController();
  controller.abort();
  await assert.rejects(language.doGenerate({ prompt, abortSignal: controller.signal }), {
    name: 'AbortError',
  });
  await assert.rejects(language.doStream({ prompt, abortSignal: controller.signal }), {
    name: 'AbortError',
  });
});

test("an abort fails the AI SDK provider's stream with its reason", async () => {
  const language = sluice(engine);
  for (const reason of [undefined, new Error('enough')]) {
    const control = new AbortController();
    const { stream } = await language.doStream({ prompt, abortSignal: control.signal });
    const kinds = [];
    await assert.rejects(
      async () => {
        for await (const { type } of stream) {
          kinds.push(type);
          if (type === 'text-delta') control.abort(reason);
        }
      },
      reason ?? { name: 'AbortError' },
    );
    assert.ok(!kinds.includes('error') && !kinds.includes('finish'), kinds.join());
  }
});

test('providerOptions.sluice takes further parameters and rejects unsupported ones', async () => {
  const language = sluice(engine);
  const call = (given) =>
    language.doGenerate({
      prompt,
      maxOutputTokens: 4,
      temperature: 1,
      seed: 3,
      providerOptions: { sluice: given, other: { x: 1 } },
    });
  const plain = await language.doGenerate({ prompt, maxOutputTokens: 4, temperature: 0 });
  // top_k 1 is greedy.
  assert.equal((await call({ top_k: 1 })).content[0].text, plain.content[0].text);
  await assert.rejects(call({ topK: 1 }), { code: 'INVALID_ARGUMENT', message: /use top_k/ });
});

test('errors of every entry are instances of SluiceError', () => {
  assert.throws(
    () => huggingFaceUrl('nonsense'),
    (error) => error instanceof SluiceError,
  );
  assert.ok(!(new Error('x') instanceof SluiceError));
});
