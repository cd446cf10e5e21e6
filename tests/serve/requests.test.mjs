// The table of requests (requests.json): what each server answers to them, right and wrong. It is
// the one place for statuses and wrong inputs. tests/unit/openai_table_test.cpp runs the same rows
// against the check itself.
//
// A row: `to` is a target, which has a request and a body, or "METHOD /path".
//   with, without   members to set, names to drop       raw    members as text, at the end
//   fill, long      lists and texts: [times, value]     nest   a list of this depth
//   text            the whole body                      headers, server (see before())
//   status, code, param      of the answer; the code of status 400 is INVALID_ARGUMENT by default
//   answer          what the answer looks like: see matches()
//   stream          the streamed answer must say the same; errors are streamed, too
//   by              who decides: the check (default), the engine or the server
// `known` lists the rows that a server does not meet, with the reason. They must fail.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { inRoot } from '../../web/scripts/lib.mjs';
import { context, events, inNode, namedEvents, Server } from './server.mjs';

const { targets, known, rows } = JSON.parse(
  readFileSync(inRoot('tests', 'serve', 'requests.json'), 'utf8'),
);
const reranker = inRoot('tests', 'data', 'embeddings', 'bert-rank.gguf');
// A model that takes pictures, where its fixtures are.
const seeing = inRoot('..', 'shared', 'fixtures', 'vision', 'qwen2.5vl.gguf');
const servers = {};

before(async () => {
  if (existsSync(seeing))
    servers.pictures = await Server.startWith(
      seeing,
      ...['--projector', seeing.replace('.gguf', '.mmproj.gguf')],
      ...['--ctx', `${context}`, '--memory-budget', '24m'],
    );
  servers.plain = await Server.start('--ctx', `${context}`, '--parallel', '2');
  servers.reranker = await Server.startWith(reranker);
  servers.strict = await Server.start(
    ...['--ctx', `${context}`, '--api-key', 'secret', '--max-body-size', '65536'],
    ...['--cors-origin', 'https://page.example'],
  );
});
after(() => {
  for (const child of Server.running) child.kill('SIGKILL');
});

/** Sets the value at a path such as 'messages.0.content'. */
function set(body, path, value) {
  const names = path.split('.');
  const last = names.pop();
  names.reduce((object, name) => object[name], body)[last] = value;
}

function bodyOf(row, target, stream) {
  if (row.text !== undefined) return row.text;
  const body = structuredClone({ ...target?.body, ...row.with });
  for (const name of row.without ?? []) delete body[name];
  for (const [path, [n, value]] of Object.entries(row.fill ?? {}))
    set(body, path, Array(n).fill(value));
  for (const [path, [n, text]] of Object.entries(row.long ?? {})) set(body, path, text.repeat(n));
  for (const [path, depth] of Object.entries(row.nest ?? {}))
    set(
      body,
      path,
      Array(depth)
        .fill()
        .reduce((inner) => [inner], null),
    );
  if (stream) body.stream = true;
  const text = JSON.stringify(body);
  return row.raw ? `${text.slice(0, -1)},${row.raw}}` : text;
}

/**
 * Throws unless `value` has the form of `pattern`. A text is a type ('string', 'number', 'integer',
 * 'array', 'object', 'null', 'boolean'), '=text', '/expression/', '>0' or '>=0'. An object lists
 * members, and $length a list's length. A list of one pattern is for every item of a list that is
 * not empty. Everything else is equal.
 */
function matches(value, pattern, at = 'answer') {
  const is = (right) =>
    assert.ok(right, `${at} is ${JSON.stringify(value)?.slice(0, 200)}, not ${pattern}`);
  if (Array.isArray(pattern)) {
    assert.ok(Array.isArray(value) && value.length > 0, `${at} is not a list with items`);
    for (const [i, item] of value.entries()) matches(item, pattern[0], `${at}[${i}]`);
  } else if (typeof pattern === 'object' && pattern !== null) {
    assert.ok(typeof value === 'object' && value !== null, `${at} is not an object`);
    for (const [name, inner] of Object.entries(pattern))
      if (name === '$length') assert.equal(value.length, inner, `${at}.length`);
      else matches(value[name], inner, `${at}.${name}`);
  } else if (typeof pattern !== 'string') assert.equal(value, pattern, at);
  else if (pattern.startsWith('=')) assert.equal(value, pattern.slice(1), at);
  else if (pattern.startsWith('/')) is(new RegExp(pattern.slice(1, -1)).test(value));
  else if (pattern.startsWith('>=')) is(typeof value === 'number' && value >= +pattern.slice(2));
  else if (pattern.startsWith('>')) is(typeof value === 'number' && value > +pattern.slice(1));
  else if (pattern === 'integer') is(Number.isInteger(value));
  else if (pattern === 'array') is(Array.isArray(value));
  else if (pattern === 'null') is(value === null);
  else is(typeof value === pattern);
}

const pathOf = (row) => (targets[row.to]?.request ?? row.to).split(' ')[1];

async function send(row, stream) {
  const target = targets[row.to];
  const [method, path] = (target?.request ?? row.to).split(' ');
  const server = servers[row.server ?? target?.model ?? 'plain'];
  const response = await fetch(server.url + path, {
    method,
    headers: { ...(method === 'POST' && { 'content-type': 'application/json' }), ...row.headers },
    ...(method === 'POST' && { body: Buffer.from(bodyOf(row, target, stream)) }),
  });
  return response;
}

/** The text and the end of each choice: of a document, or of chunks. */
function said(documents) {
  const choices = new Map();
  for (const { choices: list } of documents)
    for (const { index, message, delta, text, finish_reason: reason } of list) {
      const choice = choices.get(index) ?? { text: '', reason: null };
      choice.text += (message ?? delta)?.content ?? text ?? '';
      choice.reason = reason ?? choice.reason;
      choices.set(index, choice);
    }
  return [...choices].sort(([a], [b]) => a - b);
}

/** What a streamed response says must be what its document says: of the APIs with named events. */
const streamed = {
  responses(named, document) {
    const last = named.at(-1);
    assert.equal(last.type, `response.${document.status}`);
    const text = named.filter(({ type }) => type === 'response.output_text.delta');
    const parts = ({ output }) => output.flatMap(({ content }) => content.map((part) => part.text));
    assert.deepEqual(parts(last.response), parts(document));
    assert.equal(text.map(({ delta }) => delta).join(''), parts(document).join(''));
    assert.equal(last.response.usage.total_tokens, document.usage.total_tokens);
    named.forEach((event, i) => assert.equal(event.sequence_number, i));
  },
  messages(named, document) {
    assert.equal(named[0].type, 'message_start');
    assert.equal(named.at(-1).type, 'message_stop');
    const { delta, usage } = named.find(({ type }) => type === 'message_delta');
    assert.equal(delta.stop_reason, document.stop_reason);
    assert.equal(delta.stop_sequence, document.stop_sequence);
    assert.equal(usage.output_tokens, document.usage.output_tokens);
    const texts = named.flatMap((event) => event.delta?.text ?? []);
    assert.equal(texts.join(''), document.content.map(({ text }) => text).join(''));
  },
};

async function check(row) {
  const wanted = row.status;
  const asksToStream = row.with?.stream !== undefined;
  const streams =
    ['chat', 'completion', ...Object.keys(streamed)].includes(row.to) && row.text === undefined;
  const reply = await send(row, false);
  const text = await reply.text();
  assert.equal(reply.status, wanted, text.slice(0, 300));
  if (wanted >= 400) {
    error(row, reply, text);
    if (!streams || asksToStream) return;
    const again = await send(row, true);
    const body = await again.text();
    assert.equal(again.status, wanted, `streamed: ${body.slice(0, 300)}`);
    error(row, again, body);
    return;
  }
  if (row.answer) matches(JSON.parse(text), row.answer);
  if (!row.stream) return;
  const document = JSON.parse(text);
  if (streamed[row.to]) {
    return streamed[row.to](await namedEvents(await send(row, true)), document);
  }
  const withUsage = { ...row.with, stream_options: { include_usage: true } };
  const response = await send({ ...row, with: withUsage }, true);
  assert.match(response.headers.get('content-type'), /^text\/event-stream/);
  const chunks = await events(response);
  const { usage } = chunks.at(-1);
  assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
  for (const chunk of chunks) {
    assert.equal(chunk.object, document.object + (row.to === 'chat' ? '.chunk' : ''));
    assert.equal(chunk.model, document.model);
    assert.equal(chunk.system_fingerprint, document.system_fingerprint);
  }
  assert.deepEqual(said(chunks), said([document]));
  for (const name of ['prompt_tokens', 'completion_tokens', 'total_tokens'])
    assert.equal(usage[name], document.usage[name], name);
}

/** Errors of Anthropic's API have neither a code nor a parameter. */
const isAnthropic = (row) => /\/messages/.test(targets[row.to]?.request ?? row.to);
const kTypes = { 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error' };

function error(row, response, text) {
  const { status, code = 'INVALID_ARGUMENT', param = null } = row;
  assert.match(response.headers.get('content-type'), /^application\/json/);
  if (isAnthropic(row)) {
    const { type, error } = JSON.parse(text);
    assert.equal(type, 'error');
    assert.deepEqual(Object.keys(error), ['type', 'message']);
    assert.equal(error.type, kTypes[status] ?? 'invalid_request_error');
    return;
  }
  const { error, ...others } = JSON.parse(text);
  if (pathOf(row).startsWith('/api/')) {
    assert.deepEqual([typeof error, others], ['string', {}]);
    return;
  }
  assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type']);
  assert.equal(typeof error.message, 'string');
  assert.equal(error.type, kTypes[status] ?? 'invalid_request_error');
  assert.equal(error.code, code, error.message);
  // The package's own errors name the parameter in their message only.
  if (!inNode || error.param !== null) assert.equal(error.param, param, error.message);
}

const reasons = new Map(
  Object.entries(known[inNode ? 'node' : 'native']).flatMap(([reason, names]) =>
    names.map((name) => [name, reason]),
  ),
);

test('the table has every row that is known to fail', () => {
  const names = new Set(rows.map(({ name }) => name));
  assert.equal(names.size, rows.length);
  assert.deepEqual(
    [...reasons.keys()].filter((name) => !names.has(name)),
    [],
  );
});

for (const row of rows) {
  const reason = reasons.get(row.name);
  const skip = row.server === 'pictures' && !existsSync(seeing) && `no ${seeing}`;
  test(row.name, { skip }, () =>
    reason ? assert.rejects(check(row), undefined, `it works: ${reason}`) : check(row),
  );
}
