// Random sequences of calls that are made without waiting: changes of adapters and budget,
// generations, sessions, chats, pictures, some aborted at once, some overtaken by dispose(). Their results
// are those of the same calls made one after another. Over the fake engine in Node: the workers are
// in this thread, which makes a sequence ten times as fast, and threads for every sixteenth seed.
//   SLUICE_RANDOM_SEED=n SLUICE_RANDOM_SEQUENCES=n node --test tests/web/random-turns.test.mjs
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { extent } from '../extent.mjs';
import { buildFakePackage, fakeModel, random } from './helpers.mjs';
import { inProcessEngine } from './in-process.mjs';

const { Engine: Threaded } = await import(join(await buildFakePackage(), 'node.js'));
const InProcess = await inProcessEngine();
const kThreadedEvery = 16;
const seed = Number(process.env.SLUICE_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 31));
const sequences = Number(process.env.SLUICE_RANDOM_SEQUENCES ?? extent(6, 150));
const directory = mkdtempSync(join(tmpdir(), 'sluice-random-turns-'));
const path = join(directory, 'model.gguf');
writeFileSync(path, fakeModel({ unitBytes: 32 * 1024, header: 8000 }));
const projector = join(directory, 'projector.gguf');
writeFileSync(projector, fakeModel({ units: 1, unitBytes: 1024, header: 1000 }));
const kSessions = 3;
const kHangMs = 60_000;

// Adapters arrive after the milliseconds in their address.
const server = createServer(({ url }, response) => {
  const [, name, ms] = url.split('/');
  const answer = () =>
    name === 'gone' ? response.writeHead(404).end() : response.end(`adapter ${name}`);
  if (ms === '0') answer();
  else setTimeout(answer, Number(ms));
});
before(() => new Promise((ready) => server.listen(0, '127.0.0.1', ready)));
after(() => {
  server.close();
  server.closeAllConnections();
  rmSync(directory, { recursive: true, force: true });
});

/** The calls of a sequence, as data. */
function sequenceOf(next) {
  const below = (n) => Math.floor(next() * n);
  const of = (list) => list[below(list.length)];
  const kinds = [
    ...['adapters', 'adapters', 'adapters', 'budget', 'budget', 'generate', 'generate'],
    ...['say', 'say', 'say', 'send', 'chat', 'save', 'restore', 'fork', 'logits', 'embed'],
    ...['tokenize', 'saveState', 'end', 'look', 'look', 'see', 'see', 'see', 'show', 'watch'],
  ];
  const calls = Array.from({ length: 6 + below(24) }, () => ({
    kind: of(kinds),
    session: below(kSessions),
    text: of(['one', ' two', 'a longer text than the others', ' four']),
    options: {
      maxTokens: below(12),
      temperature: of([0, 0, 1]),
      seed: below(100),
      ...(below(6) === 0 && { stop: of(['a', ['bc', 'd']]) }),
    },
    adapters: of([[], ['a'], ['b'], ['a', 'b'], ['a'], ['gone']]).map((name) => [
      name,
      of([0, 0, 1, 5, 10]),
    ]),
    scale: of([1, 0.5]),
    budget: of([250_000, 350_000, 4e6, 100_000]),
    shade: below(3),
    aborted: below(8) === 0,
  }));
  return { calls, disposeAt: below(4) === 0 ? below(calls.length) : Infinity };
}

const adaptersOf = ({ adapters, scale }) =>
  adapters.map(([name, ms]) => ({
    source: `http://127.0.0.1:${server.address().port}/${name}/${ms}`,
    scale,
  }));
const result = ({ text, finishReason, stopString, usage }) => [
  text,
  finishReason,
  stopString,
  usage.promptTokens,
];
const content = ({ text, tokens, messages, images }) => [text, [...tokens], messages, images];
/** A prompt or message with a picture of 2 x 2 pixels, whose buffer the caller then overwrites. */
function pictured({ text, shade }, data) {
  data.fill(shade);
  return [
    { type: 'text', text },
    { type: 'image', image: { width: 2, height: 2, data } },
    { type: 'text', text: ' it is' },
  ];
}

/** Makes one call. Only calls that change the engine's own state take the signal. */
function make({ engine, sessions, saved }, call, signal) {
  const session = sessions[call.session];
  const options = { ...call.options, ...(signal && { signal }) };
  const messages = [{ role: 'user', content: call.text }];
  const { maxTokens: max_tokens, ...sampling } = call.options;
  const data = new Uint8ClampedArray(16);
  const parts = pictured(call, data);
  const calls = {
    adapters: () => engine.setAdapters(adaptersOf(call), { signal }),
    budget: async () => {
      await engine.setMemoryBudget(call.budget, { signal });
    },
    generate: () => engine.generate(call.text, options).result.then(result),
    look: () => engine.generate(parts, options).result.then(result),
    see: () => session.generate(parts, options).result.then(result),
    show: () => session.send({ role: 'user', content: parts }, options).result.then(result),
    watch: () =>
      engine.chat.completions
        .create(
          { messages: [{ role: 'user', content: parts }], max_tokens, ...sampling },
          { signal },
        )
        .then(({ choices, usage }) => [choices, usage.prompt_tokens]),
    say: () => session.generate(call.text, options).result.then(result),
    send: () => session.send(call.text, options).result.then(result),
    chat: () =>
      engine.chat.completions
        .create({ messages, max_tokens, ...sampling }, { signal })
        .then(({ choices, usage }) => [choices, usage.prompt_tokens]),
    save: () => session.save({ signal }).then(content),
    restore: () => session.restore(saved, { signal }),
    fork: () => session.fork({ signal }).then(content),
    logits: () =>
      engine.logits([5, call.session], { signal }).then((rows) => [...rows.slice(0, 2)]),
    embed: () => engine.embed([call.text], { signal }).then((rows) => [...rows[0]]),
    tokenize: () => engine.tokenize(call.text).then((ids) => [...ids]),
    // An aborted call may come so far that the state is another one, without a picture.
    saveState: () =>
      engine.saveState({ signal }).catch((error) => {
        if (error.code !== 'MEDIA_MISSING') throw error;
      }),
    end: async () => {
      sessions[call.session] = engine.session();
      await session.dispose();
    },
  };
  const made = calls[call.kind]();
  data.fill(77); // what was passed is taken at the call
  return made;
}

/** Makes the calls, all at once or one after another, and returns their results or codes. */
async function run({ calls, disposeAt }, threaded, together) {
  const load = { memoryBudget: 4e6, contextLength: 600, projector, onProgress: () => {} };
  const engine = await (threaded
    ? Threaded.load(path, load)
    : InProcess.load(path, { ...load, threads: 1, ioWorker: false }));
  const sessions = Array.from({ length: kSessions }, () => engine.session());
  const first = engine.session();
  await first.generate('saved', { maxTokens: 5, temperature: 0 }).result;
  const given = { engine, sessions, saved: await first.save() };
  const results = [];
  let disposing;
  for (const [i, call] of calls.entries()) {
    if (together && i === disposeAt) disposing = engine.dispose();
    const control = call.aborted ? new AbortController() : undefined;
    const outcome = make(given, call, control?.signal).then(
      (value) => (call.kind === 'saveState' ? 'done' : (value ?? 'done')),
      (error) => (error.name === 'AbortError' ? error.name : error.code),
    );
    if (call.kind === 'tokenize' || call.kind === 'end') results.push(outcome);
    else
      results.push(
        control ? outcome.then((value) => (value === 'AbortError' ? value : 'done')) : outcome,
      );
    control?.abort();
    if (!together) await outcome;
  }
  const all = await Promise.all(results);
  await disposing;
  const last = disposing
    ? null
    : [
        engine.info.plan.budget,
        ...(await Promise.all(
          sessions.map((each) => each.save().then(content, ({ code }) => code)),
        )),
      ];
  await engine.dispose();
  return { all, last };
}

const within = async (work, what) => {
  let timer;
  const hangs = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} hangs`)), kHangMs);
  });
  return Promise.race([work, hangs]).finally(() => clearTimeout(timer));
};

/** Throws if the calls of a sequence have other results together than one after another. */
async function compare(sequence, threaded, what) {
  const expected = await within(run(sequence, threaded, false), `${what}, one after another,`);
  const { all, last } = await within(run(sequence, threaded, true), `${what}, without waiting,`);
  const { calls, disposeAt } = sequence;
  for (const [n, outcome] of all.entries()) {
    const ended = (later) => later.kind === 'end' && later.session === calls[n].session;
    const disposed = disposeAt < calls.length || calls.slice(n + 1).some(ended);
    if (outcome === 'DISPOSED' && disposed) continue; // both kinds of dispose() overtake
    const late = n >= disposeAt && outcome !== 'AbortError' && calls[n].kind !== 'end';
    assert.ok(!late, `${what}: call ${n}, after dispose(), has a result`);
    assert.deepEqual(outcome, expected.all[n], `${what}: call ${n}`);
  }
  if (last) assert.deepEqual(last, expected.last, what);
}

const failureOf = (...given) =>
  compare(...given).then(
    () => null,
    (error) => error,
  );

/** Drops calls of a failing sequence while it fails without them. */
async function shrink(failing, error, threaded, what) {
  for (let n = failing.calls.length - 1; n >= 0; n--) {
    const { calls, disposeAt } = failing;
    const fewer = {
      calls: calls.filter((_, i) => i !== n),
      disposeAt: n < disposeAt ? disposeAt - 1 : disposeAt,
    };
    const again = await failureOf(fewer, threaded, what);
    if (again) [failing, error] = [fewer, again];
  }
  return { failing, error };
}

const told = ({ calls, disposeAt }) =>
  calls.map((call, n) => {
    const { kind, session, aborted, ...rest } = call;
    const own = { adapters: ['adapters', 'scale'], budget: ['budget'] }[kind] ?? [
      ...(/look|see|show|watch/.test(kind) ? ['shade'] : []),
      'text',
      'options',
    ];
    const shown = own.map((name) => JSON.stringify(rest[name])).join(' ');
    const disposed = n === disposeAt ? 'dispose() and ' : '';
    return `  ${n}: ${disposed}${kind} of session ${session}${aborted ? ', aborted' : ''}: ${shown}`;
  });

test(`calls without waiting have the results of calls in turn, SLUICE_RANDOM_SEED=${seed}`, async (t) => {
  let calls = 0;
  for (let i = 0; i < sequences; i++) {
    const now = (seed + i) >>> 0;
    const sequence = sequenceOf(random(now));
    const what = `SLUICE_RANDOM_SEED=${now} SLUICE_RANDOM_SEQUENCES=1`;
    const threaded = now % kThreadedEvery === 0;
    const error = await failureOf(sequence, threaded, what);
    if (error) {
      const least = await shrink(sequence, error, threaded, what);
      least.error.message += `\n${told(least.failing).join('\n')}`;
      throw least.error;
    }
    calls += sequence.calls.length;
    if (i % 100 === 99) console.log(`${i + 1} of ${sequences} sequences, up to seed ${now}`);
  }
  t.diagnostic(`${sequences} sequences, ${calls} calls`);
});
