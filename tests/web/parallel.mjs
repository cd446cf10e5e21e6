// Continuous batching, compared with each generation alone: sessions and chats that join and leave
// the batch, are cancelled, fail, wait for a slot, or change the budget. Runs in Node and in pages.
const kOptions = { contextLength: 300, threads: 1, cache: 'none' };
const kWays = [
  { temperature: 0 },
  { temperature: 0.9, seed: 5 },
  { temperature: 0, repeatPenalty: 1.3 },
  { temperature: 1.2, seed: 9, topK: 20 },
  { temperature: 0, logprobs: 2 },
  { temperature: 0.7, seed: 3, topP: 0.8, logprobs: 1 },
  { temperature: 0, stop: ['e t', '.'] },
  { temperature: 0, logprobs: true },
];
const kTexts = [
  'Once upon a time',
  'The mill by the river',
  'A fox',
  'In the wood',
  'She said',
  'There was a king who',
  'One day',
  'The old tower',
];

export function check(holds, what, ...shown) {
  if (!holds)
    throw new Error(
      [what, ...shown.map((value) => JSON.stringify(value)?.slice(0, 400))].join(' '),
    );
}

const same = (a, b, what) => check(JSON.stringify(a) === JSON.stringify(b), what, a, b);

export async function using(Engine, engines, work) {
  const loaded = [];
  try {
    for (const [source, how] of engines)
      loaded.push(await Engine.load(source, { ...kOptions, ...how }));
    return await work(...loaded);
  } finally {
    await Promise.all(loaded.map((engine) => engine.dispose()));
  }
}

/** Everything observable of a generation. */
export async function told(generation) {
  const pieces = [];
  for await (const { token, text, logprob, topLogprobs } of generation)
    pieces.push({ token, text, logprob, topLogprobs });
  const { text, finishReason, stopString } = await generation.result;
  return { pieces, text, finishReason, stopString };
}

const failure = (work) =>
  work.then(
    () => check(false, 'the call did not fail'),
    (error) => error,
  );

/** Prompt and options of session `i`. Some prompts take several batches. */
const said = (i) => ({
  text:
    i % 4 === 2
      ? `${kTexts[i % 8]} ${'and then the fox said to the miller '.repeat(4 + i)}`
      : `${kTexts[i % 8]} ${i}`,
  options: { ...kWays[i % 8], maxTokens: 6 + ((i * 7) % 23), ignoreEos: true },
});

async function alone(engine, i) {
  const session = engine.session();
  const { text, options } = said(i);
  const first = await told(session.generate(text, options));
  const second = await told(session.generate(' and', { ...options, maxTokens: 5 }));
  await session.dispose();
  return [first, second];
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * `count` concurrent sessions with two turns each, started `apart` ms after each other: each gives
 * its output alone.
 */
export async function together({ Engine, source, count = 8, parallel = 8, how = {}, apart = 0 }) {
  await using(
    Engine,
    [
      [source, {}],
      [source, { ...how, parallel }],
    ],
    async (roomy, engine) => {
      check(
        engine.info.plan.parallel === parallel,
        'sequences in the plan:',
        engine.info.plan.parallel,
      );
      const expected = [];
      for (let i = 0; i < count; i++) expected.push(await alone(roomy, i));
      const found = await Promise.all(
        expected.map(async (_, i) => {
          await sleep(apart * i);
          return alone(engine, i);
        }),
      );
      for (const [i, turns] of found.entries()) same(turns, expected[i], `session ${i}:`);
      check(
        engine.memory().total <= (engine.memory().budget || Infinity),
        'the budget is exceeded',
      );
    },
  );
}

/** A context long enough that a generation lasts as long as a test needs. */
const kEndless = 8192;

/**
 * Counts forward passes and their tokens while all of `answers` are being generated: for at least
 * 40 passes, from when each has emitted something. None may end before.
 */
async function passesOfAll(engine, answers) {
  let left = false;
  const followed = answers.map((pieces) => {
    const answer = { said: 0, ended: false };
    answer.done = (async () => {
      for await (const _ of pieces) {
        answer.said++;
        if (left) break;
      }
      answer.ended = true;
    })();
    return answer;
  });
  const until = async (holds) => {
    while (!holds()) {
      check(
        followed.every(({ ended }) => !ended),
        'a generation ended too early, tokens:',
        followed.map(({ said }) => said),
      );
      // Rethrows the error of a failed generation.
      await Promise.race([sleep(5), ...followed.map(({ done }) => done)]);
    }
  };
  const counted = () => {
    const {
      forwardPasses: passes,
      engine: { tokens },
    } = engine.stats();
    return { passes, tokens };
  };
  await until(() => followed.every(({ said }) => said > 0));
  const seen = counted(); // some time earlier
  await until(() => counted().passes > seen.passes);
  const from = counted();
  await until(() => counted().passes >= from.passes + 40);
  const to = counted();
  left = true;
  await Promise.all(followed.map(({ done }) => done));
  return { passes: to.passes - from.passes, tokens: to.tokens - from.tokens };
}

/** One forward pass computes a token of each sequence. */
export async function shared({ Engine, source }) {
  await using(Engine, [[source, { parallel: 8, contextLength: kEndless }]], async (engine) => {
    const results = await Promise.all(
      kTexts.map(
        (text) =>
          engine.session().generate(text, { maxTokens: 20, temperature: 0, ignoreEos: true })
            .result,
      ),
    );
    const computed = engine.stats().engine.tokens;
    const sum = results.reduce(
      (all, { usage }) => all + usage.promptTokens + usage.completionTokens - 1,
      0,
    );
    check(computed === sum, `${computed} tokens computed, not ${sum}`);
    const { passes, tokens } = await passesOfAll(
      engine,
      kTexts.map((text) => engine.session().generate(text, { temperature: 0, ignoreEos: true })),
    );
    check(tokens > 7.5 * passes, `${passes} passes for ${tokens} tokens of eight sequences`);
  });
}

/** Sessions that are cancelled, too long, invalid or saved do not affect the others. */
export async function apart({ Engine, source, how = {} }) {
  const long = { maxTokens: 60, temperature: 0, ignoreEos: true, logprobs: true };
  await using(
    Engine,
    [
      [source, {}],
      [source, { parallel: 4, structuredOutput: true, ...how }],
    ],
    async (roomy, engine) => {
      const expected = await told(roomy.generate('Once upon a time', long));
      const watched = engine.session().generate('Once upon a time', long);
      const [cut, tooLong, wrong, kept] = Array.from({ length: 4 }, () => engine.session());
      const saying = kept.generate('The fox', { maxTokens: 8, temperature: 0, ignoreEos: true });
      const cutting = cut.generate('The mill', { maxTokens: 200, temperature: 0, ignoreEos: true });
      for await (const _ of cutting) break;
      const refused = await Promise.all([
        failure(tooLong.generate('and then '.repeat(400)).result),
        failure(wrong.generate('The', { grammar: 'root ::= nothing' }).result),
        failure(
          wrong.generate('The', {
            logitBias: Object.fromEntries(
              Array.from({ length: roomy.info.vocabSize }, (_, i) => [i, -Infinity]),
            ),
          }).result,
        ),
      ]);
      same(
        refused.map(({ code }) => code),
        ['PROMPT_TOO_LONG', 'GRAMMAR_SYNTAX', 'INVALID_ARGUMENT'],
        'error codes',
      );
      check(
        (await cutting.result).finishReason === 'cancelled',
        'the abandoned generation was not cancelled',
      );
      const bound = await told(
        wrong.generate('It was', { choice: ['red', 'blue'], temperature: 0 }),
      );
      check(/^(red|blue)$/.test(bound.text), 'constrained output:', bound.text);
      await saying.result;
      const saved = await kept.save(); // waits for the others
      same(await told(watched), expected, 'the undisturbed generation');
      same(saved.tokens, kept.tokens, 'tokens of a saved session');
      const other = roomy.session();
      await other.restore(saved);
      const goOn = { maxTokens: 10, temperature: 0, ignoreEos: true };
      const texts = ['a text', 'another'];
      const [fork, vectors] = await Promise.all([kept.fork(), engine.embed(texts)]);
      const lists = (vectors) => vectors.map((vector) => [...vector]);
      same(lists(vectors), lists(await roomy.embed(texts)), 'embeddings beside a fork');
      const right = await told(other.generate(' then', goOn));
      for (const found of await Promise.all(
        [kept, fork].map((session) => told(session.generate(' then', goOn))),
      ))
        same(found, right, 'continuation of a saved session');
      const logits = await engine.logits([1, 2, 3]);
      same(
        [...logits.slice(-50)],
        [...(await roomy.logits([1, 2, 3])).slice(-50)],
        'logits between generations',
      );
    },
  );
}

/**
 * Calls of one session, and of the engine's own sequence, keep their order. Chats do not wait for
 * each other.
 */
export async function ordered({ Engine, source }) {
  const greedy = { maxTokens: 12, temperature: 0, ignoreEos: true };
  const long = { contextLength: kEndless };
  await using(
    Engine,
    [
      [source, long],
      [source, { ...long, parallel: 4 }],
    ],
    async (roomy, engine) => {
      const tell = async (engine) => {
        const [session, ends] = [engine.session(), []];
        const all = [
          ...['Once', ' upon', ' a time'].map((text) => session.generate(text, greedy)),
          ...['The fox', 'The fox and the mill'].map((text) => engine.generate(text, greedy)),
        ];
        all.forEach(({ result }, i) => void result.then(() => ends.push(i)));
        const answers = await Promise.all(all.map(told));
        return { answers, orders: [ends.filter((i) => i < 3), ends.filter((i) => i >= 3)] };
      };
      const [found, right] = [await tell(engine), await tell(roomy)];
      same(found, right, 'turns');
      same(
        found.orders,
        [
          [0, 1, 2],
          [3, 4],
        ],
        'the order of turns',
      );
      const chats = (engine) =>
        Promise.all(
          kTexts.slice(0, 6).map((prompt) =>
            engine.completions.create({
              prompt,
              max_tokens: 100,
              temperature: 0,
              logit_bias: { 2: -100 },
            }),
          ),
        );
      const texts = (answers) => answers.map(({ choices }) => choices[0].text);
      const first = await chats(engine);
      same(texts(first), texts(await chats(roomy)), 'completions');
      // Each continues from its own earlier text.
      const again = await chats(engine);
      const cached = again.map(({ usage }) => usage.prompt_tokens_details?.cached_tokens ?? 0);
      check(cached.filter(Boolean).length >= 3, 'tokens that were cached:', cached);
      const endTokens = await engine.tokenize('<|endoftext|><|end|>', { addSpecial: false });
      const how = {
        stream: true,
        temperature: 0,
        max_tokens: kEndless,
        logit_bias: Object.fromEntries(Array.from(endTokens, (id) => [id, -100])),
      };
      const streams = kTexts
        .slice(0, 4)
        .map((prompt) => engine.completions.create({ prompt, ...how }));
      const { passes, tokens } = await passesOfAll(engine, await Promise.all(streams));
      check(tokens > 3.5 * passes, `${passes} passes for ${tokens} tokens of four completions`);
    },
  );
}

/**
 * A chat with the same beginning as another starts from a copy of its prefix and leaves it intact.
 */
export async function beginnings({ Engine, source, recurrent = false }) {
  const common =
    'The king had three sons and a mill by the river, and every morning the miller told them a story. ';
  await using(
    Engine,
    [
      [source, {}],
      [source, { parallel: 3 }],
    ],
    async (roomy, engine) => {
      const say = async (prompt) => {
        const how = { max_tokens: 40, temperature: 0, logit_bias: { 2: -100 } };
        const {
          choices: [{ text }],
          usage,
        } = await engine.completions.create({ prompt, ...how });
        same(text, (await roomy.completions.create({ prompt, ...how })).choices[0].text, prompt);
        return {
          text,
          all: usage.prompt_tokens,
          cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
        };
      };
      const shared = (await engine.tokenize(common)).length - 2;
      const prompts = ['Once upon a time', 'The fox', 'In the wood'].map((text) => common + text);
      const texts = [];
      for (const [i, prompt] of prompts.entries()) {
        const { text, cached } = await say(prompt);
        check(
          recurrent || cached >= (i > 0 && shared),
          `chat ${i} reuses ${cached} of ${shared} tokens of another`,
        );
        texts.push(text);
      }
      for (const [i, prompt] of prompts.entries()) {
        const { all, cached } = await say(`${prompt + texts[i]} and then`);
        check(
          recurrent || cached >= all - 6,
          `chat ${i} continues with ${cached} of ${all} tokens`,
        );
      }
    },
  );
}

/** The smallest budget is reported, holds and can change; dispose() ends everything at once. */
export async function budgets({ Engine, source }) {
  const how = { ...kOptions, parallel: 3 };
  const greedy = { maxTokens: 20, temperature: 0, ignoreEos: true };
  const [{ plan: one }, { plan }] = [
    await Engine.inspect(source, { ...kOptions }),
    await Engine.inspect(source, how),
  ];
  check(
    plan.minimum > one.minimum && plan.kv >= 3 * one.kv && one.parallel === 1,
    'plans',
    one,
    plan,
  );
  const refused = await failure(
    Engine.load(source, { ...how, memoryBudget: plan.minimum - 65536 }),
  );
  check(
    refused.code === 'BUDGET_TOO_SMALL' && refused.message.includes(`${plan.minimum}`),
    'a smaller budget:',
    refused.message,
  );
  await together({ Engine, source, count: 5, parallel: 3, how: { memoryBudget: plan.minimum } });
  await using(
    Engine,
    [
      [source, {}],
      [source, { ...how, memoryBudget: plan.minimum }],
    ],
    async (roomy, engine) => {
      const expected = await Promise.all(
        kTexts.map((text) => told(roomy.session().generate(text, greedy))),
      );
      const sessions = kTexts.map(() => engine.session());
      const answers = kTexts.map((text, i) => told(sessions[i].generate(text, greedy)));
      await engine.setMemoryBudget(plan.minimum + (4 << 20));
      same(await Promise.all(answers), expected, 'during a budget change');
      check(
        engine.info.plan.parallel === 3,
        'sequences in the plan after a budget change:',
        engine.info.plan.parallel,
      );
      const more = (sessions) =>
        Promise.all(sessions.map((session) => told(session.generate(' and', greedy))));
      const others = await Promise.all(
        kTexts.map(async (text) => {
          const session = roomy.session();
          await session.generate(text, greedy).result;
          return session;
        }),
      );
      same(await more(sessions), await more(others), 'after a budget change');
      const last = kTexts.map((text) =>
        engine.session().generate(text, { ...greedy, maxTokens: 250 }),
      );
      const ends = last.map(({ result }) =>
        result.then(
          ({ finishReason }) => finishReason,
          ({ code }) => code,
        ),
      );
      await last[0][Symbol.asyncIterator]().next(); // some are running, some are queued
      await engine.dispose();
      const codes = await Promise.all(ends);
      check(
        codes.includes('DISPOSED') &&
          codes.every((code) => code === 'DISPOSED' || code === 'length'),
        'running calls ended with',
        codes,
      );
    },
  );
  for (const wrong of [{ parallel: 0 }, { parallel: 1.5 }, { parallel: 65 }, { parallel: '2x' }]) {
    const { code } = await failure(Engine.inspect(source, { ...kOptions, ...wrong }));
    check(code === 'INVALID_ARGUMENT', JSON.stringify(wrong), code);
  }
}
