// Random sequences of public calls on one engine, in Node or in a page: several sessions and the
// engine's own sequence, up to six calls at a time, generations abandoned at random moments, changes
// of the budget and the adapters during calls, states exchanged with a second engine, and dispose()
// during calls. Every output is compared with that of an unlimited engine that computes the same
// tokens from scratch, with the adapters of the moment of the call. Failures must have the right code, and the engine must continue. An
// operation depends only on the seed and its number, so a run can be repeated as far as timing
// allows.
import { random } from './random.mjs';

const kHangMs = 120_000;
const kSessions = 5;
const kWords = [
  'once',
  'upon',
  'a',
  'time',
  'there',
  'was',
  'the',
  'mill',
  'river',
  'wood',
  'and',
  'said',
  '.',
  ',',
  '\n',
  'fox',
  '<|im_end|>',
  '<s>',
  'é',
  '猫',
  '🦊',
  '42',
  '  ',
  '\uFDD0<|im_start|>\uFDD1',
  '\uFFFD',
];

const deck = Object.entries({
  answer: 6,
  say: 8,
  send: 4,
  twice: 1,
  fork: 2,
  save: 2,
  restore: 2,
  damage: 2,
  dispose: 1,
  budget: 3,
  adapters: 2,
  refuse: 1,
  logits: 1,
  saveOwn: 1,
  restoreOwn: 2,
  tooLong: 1,
  chat: 3,
  second: 1,
  told: 1,
}).flatMap(([name, times]) => Array(times).fill(name));

/** The random choices of one operation. */
class Dice {
  constructor(seed) {
    this.next = random(seed);
    this.next();
  }
  below(n) {
    return Math.floor(this.next() * n);
  }
  chance(share) {
    return this.next() < share;
  }
  of(list) {
    return list[this.below(list.length)];
  }
  words(n) {
    return Array.from({ length: n }, () => this.of(kWords)).join(' ');
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const same = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
const joined = (...parts) => Int32Array.from(parts.flatMap((part) => [...part]));

function check(holds, what, ...shown) {
  if (!holds)
    throw new Error(
      [what, ...shown.map((value) => JSON.stringify(value)?.slice(0, 600))].join(' '),
    );
}

const keyOf = (lora) => JSON.stringify(lora);
const outcomeOf = (call) =>
  call.then(
    () => null,
    (error) => error,
  );

const contentOf = ({ choices }) => choices[0].message.content;
const kTooLong = 'PROMPT_TOO_LONG';
/** The result of a chat, or that its messages exceed the context. */
const orTooLong = (chat) =>
  chat.catch((error) => {
    if (error.code !== kTooLong) throw error;
    return kTooLong;
  });

/** A saved state of the model at `source`, which other models must reject. */
export async function foreignState(Engine, source) {
  const engine = await Engine.load(source, { contextLength: 100, threads: 1, cache: 'none' });
  await engine.generate([1, 2, 3, 4, 5], { maxTokens: 3, ignoreEos: true }).result;
  const { state } = await engine.saveState();
  await engine.dispose();
  return state;
}

class Operations {
  sessions = [];
  saved = []; // states of sessions, each with the adapters that it belongs to
  savedOwn = [];
  held = new Int32Array(0); // the last prompt of the engine's own sequence
  log = [];
  done = {};
  moves = 0;
  truth = Promise.resolve();
  lora = []; // the adapters of calls made now
  freshLora = []; // those of the unlimited engine

  constructor({
    Engine,
    source,
    draft,
    parallel = 1,
    foreign,
    contextLength,
    threads,
    seed,
    template = false,
    adapterFiles = [],
    foreignAdapter,
  }) {
    Object.assign(this, {
      Engine,
      source,
      draft,
      parallel,
      foreign,
      contextLength,
      threads,
      seed,
      template,
      adapterFiles,
      foreignAdapter,
    });
  }

  async open() {
    const dice = new Dice(this.seed);
    const load = { contextLength: this.contextLength, cache: 'none' };
    this.fresh = await this.Engine.load(this.source, { ...load, threads: 1 });
    const how = { ...load, threads: this.threads, draft: this.draft, parallel: this.parallel };
    // Enough for a change from all adapters to all adapters, which holds both for a moment.
    const lora = [...this.adapterFiles, ...this.adapterFiles].map((source) => ({ source }));
    const { plan } = await this.Engine.inspect(this.source, { ...how, lora });
    this.least = plan.minimum;
    this.engine = await this.Engine.load(this.source, {
      ...how,
      memoryBudget: this.budgetOf(dice),
    });
  }

  async run(count) {
    const going = new Set();
    let failure = null;
    for (let i = 0; i < count && !failure; i++) {
      const dice = new Dice(Math.imul(this.seed, 7919) + i);
      let name = dice.of(deck);
      if (!this.template && (name === 'send' || name === 'chat')) name = 'say';
      const atOnce = dice.of(this.parallel > 1 ? [1, 3, 6] : [1, 1, 2, 3]);
      const entry = { i, name, note: '', over: false };
      this.log.push(entry);
      const work = this.watched(this[name](dice, (note) => (entry.note += ` ${note}`)))
        .then(
          () => (entry.over = true),
          (error) => (failure ??= Object.assign(error, { operation: entry })),
        )
        .finally(() => going.delete(work));
      going.add(work);
      this.done[name] = (this.done[name] ?? 0) + 1;
      while (going.size >= atOnce) await Promise.race(going);
    }
    await Promise.all(going);
    if (!failure) {
      const entry = { i: count, name: 'leave', note: '', over: false };
      this.log.push(entry);
      const leaving = this.leave(new Dice(Math.imul(this.seed, 7919) + count), (note) => {
        entry.note += ` ${note}`;
      });
      failure = await outcomeOf(this.watched(leaving));
      if (failure) failure.operation = entry;
    }
    if (failure) {
      const told = this.log
        .slice(-12)
        .map(({ i, name, note, over }) => `  ${i} ${name}${note}${over ? '' : ' …'}`)
        .join('\n');
      failure.message = `operation ${failure.operation?.i}, ${failure.operation?.name}: ${failure.message}\n${told}`;
      throw failure;
    }
  }

  async close() {
    await Promise.all([this.engine?.dispose(), this.fresh?.dispose()]);
  }

  async watched(work) {
    let timer;
    const hangs = new Promise(
      (_, reject) => (timer = setTimeout(() => reject(new Error('it hangs')), kHangMs)),
    );
    try {
      return await Promise.race([work, hangs]);
    } finally {
      clearTimeout(timer);
    }
  }

  // --- reference -------------------------------------------------------------------------------

  /** Runs `work` on the unlimited engine with these adapters, one call at a time. */
  fairly(lora, work) {
    const answer = this.truth.then(async () => {
      if (keyOf(lora) !== keyOf(this.freshLora)) await this.fresh.setAdapters(lora);
      this.freshLora = lora;
      return work(this.fresh);
    });
    this.truth = answer.catch(() => {});
    return answer;
  }

  async expected(tokens, options, lora) {
    return this.fairly(lora, async (fresh) => {
      const generation = fresh.generate(tokens, {
        ...options,
        signal: undefined,
        cachePrompt: false,
      });
      const result = await generation.result;
      return { ...result, pieces: await piecesOf(generation) };
    });
  }

  /** Compares a generation from `tokens` with the reference; of an abandoned one, what there is. */
  async agree(tokens, options, { result, pieces, lora }) {
    const truth = await this.expected(tokens, options, lora);
    const said = pieces.map((piece) => piece.token);
    const right = truth.pieces.map((piece) => piece.token);
    const told = [
      `after ${tokens.length} tokens, ${result.usage.cachedTokens} cached, ${result.finishReason}:`,
      said,
      right,
    ];
    check(
      result.usage.promptTokens === tokens.length,
      'number of prompt tokens',
      result.usage.promptTokens,
      tokens.length,
    );
    if (result.finishReason === 'cancelled') {
      check(
        said.length <= right.length && same(said, right.slice(0, said.length)),
        'the tokens of a cancelled generation differ',
        ...told,
      );
      check(
        truth.text.startsWith(result.text),
        'the text of a cancelled generation differs',
        result.text,
        truth.text,
      );
      return;
    }
    check(same(said, right), 'the tokens differ', ...told);
    check(result.text === truth.text, 'the text differs', result.text, truth.text);
    check(
      result.finishReason === truth.finishReason && result.stopString === truth.stopString,
      'the finish reason differs',
      result,
      truth.finishReason,
    );
    const numbers = (list) =>
      list.flatMap(({ logprob, topLogprobs }) => [
        logprob,
        ...(topLogprobs ?? []).flatMap((top) => [top.token, top.logprob]),
      ]);
    check(
      same(numbers(pieces), numbers(truth.pieces)),
      'the logprobs differ',
      numbers(pieces),
      numbers(truth.pieces),
    );
  }

  // --- generations -------------------------------------------------------------------------------

  options(dice, note) {
    const options = {
      maxTokens: dice.of([0, 1, 3, 8, 8, 20, 40]),
      temperature: 0,
      ignoreEos: !dice.chance(0.3),
    };
    if (dice.chance(0.3))
      Object.assign(options, {
        temperature: 0.8 + dice.next(),
        seed: dice.below(1e9),
        topK: dice.of([0, 20]),
        topP: dice.of([1, 0.9]),
      });
    if (dice.chance(0.15)) Object.assign(options, { repeatPenalty: 1.2, presencePenalty: 0.5 });
    if (dice.chance(0.2))
      options.stop = dice.chance(0.5) ? dice.of(['e', ' ', 'a ', 'the']) : ['an', '.', 'ing '];
    if (dice.chance(0.15)) options.logprobs = 2;
    if (dice.chance(0.05)) delete options.maxTokens; // until the context is full
    if (dice.chance(0.1)) options.skipSpecialTokens = false;
    note(`max ${options.maxTokens} t ${options.temperature}${options.stop ? ' stop' : ''}`);
    return options;
  }

  /**
   * Reads a generation to its end or abandons it in some way. Resolves to { result, pieces, lora },
   * or null if it was aborted.
   */
  async hear(dice, note, begin, options) {
    const leave = dice.of(['', '', '', '', 'cancel', 'cancel', 'break', 'abort', 'stream']);
    const after = dice.of([0, 0, 1, 5, 20, 60]);
    note(leave && `${leave} after ${after}`);
    const control = new AbortController();
    const { lora } = this;
    const generation = begin(leave === 'abort' ? { ...options, signal: control.signal } : options);
    if (leave === 'cancel') void sleep(after).then(() => generation.cancel());
    if (leave === 'abort') {
      void sleep(after).then(() => control.abort());
      try {
        await generation.result;
      } catch (error) {
        check(
          error === control.signal.reason || error.name !== 'AbortError',
          'aborted with another reason',
          error,
        );
        if (error.name !== 'AbortError') throw error;
        return null;
      }
    }
    if (leave === 'break' && !dice.chance(0.2)) {
      let n = after % 7;
      for await (const _ of generation) if (n-- <= 0) break;
    }
    if (leave === 'break') generation.cancel();
    if (leave === 'stream') {
      const reader = generation.toReadableStream().getReader();
      if (dice.chance(0.6)) await reader.read();
      await reader.cancel();
    }
    const result = await generation.result;
    return { result, pieces: await piecesOf(generation), lora };
  }

  /**
   * The engine's own sequence: continues the last prompt, continues a part of it, or starts anew.
   */
  async answer(dice, note) {
    const options = this.options(dice, note);
    if (dice.chance(0.25)) options.cachePrompt = false;
    const how = dice.below(4);
    let prompt = this.held.slice(
      0,
      how === 0 ? 0 : how === 1 ? dice.below(this.held.length + 1) : undefined,
    );
    const more = dice.chance(0.25) ? dice.below(this.contextLength) : dice.below(40);
    const { vocabSize } = this.engine.info;
    prompt = joined(
      prompt,
      Array.from({ length: 1 + more }, () => dice.below(vocabSize)),
    );
    let given = prompt;
    if (dice.chance(0.3)) {
      given = dice.words(1 + dice.below(dice.chance(0.3) ? 200 : 20));
      const how = {
        addSpecial: dice.chance(0.8),
        parseSpecial: dice.chance(0.5),
        literalSpans: dice.chance(0.5),
        continuation: dice.chance(0.2),
      };
      Object.assign(options, how);
      prompt = await this.engine.tokenize(given, how);
    }
    note(`${prompt.length} tokens`);
    await this.beside(dice, note, () => this.ask(dice, note, prompt, given, options));
  }

  async ask(dice, note, prompt, given, options) {
    const heard = await this.fits(prompt.length, () =>
      this.hear(dice, note, (options) => this.engine.generate(given, options), options),
    );
    if (!heard) return;
    this.held = joined(
      prompt,
      heard.pieces.map((piece) => piece.token),
    );
    await this.agree(prompt, options, heard);
  }

  /**
   * The result of `work`; null if the prompt is too long, which must happen exactly if it does not
   * fit.
   */
  async fits(tokens, work) {
    try {
      const out = await work();
      check(
        tokens === null || tokens <= this.contextLength || out === null || out.pieces?.length === 0,
        'a prompt that does not fit was accepted',
      );
      return out;
    } catch (error) {
      const full = tokens === null || tokens > this.contextLength;
      if (full && (error.code === 'PROMPT_TOO_LONG' || error.code === 'CONTEXT_FULL')) return null;
      throw error;
    }
  }

  /** Runs `work`, sometimes together with a budget change that starts before or after it. */
  async beside(dice, note, work) {
    if (!dice.chance(0.15)) return work();
    note('during a budget change:');
    if (dice.chance(0.5)) {
      const moved = this.budget(dice, note);
      if (dice.chance(0.5)) await sleep(dice.below(30));
      await Promise.all([moved, work()]);
    } else {
      const over = work();
      await sleep(dice.below(10));
      await Promise.all([over, this.budget(dice, note)]);
    }
  }

  // --- sessions ----------------------------------------------------------------------------------

  /** Runs `work` with a session that no other operation uses. */
  async with(dice, work) {
    const idle = this.sessions.filter(({ busy }) => !busy);
    let entry = idle[dice.below(idle.length + 1)];
    if (!entry || (this.sessions.length < kSessions && dice.chance(0.1))) {
      if (this.sessions.length >= 2 * kSessions) return;
      entry = {
        session: this.engine.session(
          this.template && dice.chance(0.4) ? { system: dice.words(3) } : {},
        ),
        busy: false,
      };
      this.sessions.push(entry);
    }
    entry.busy = true;
    try {
      await work(entry.session, entry);
    } finally {
      entry.busy = false;
    }
  }

  remove(entry) {
    this.sessions = this.sessions.filter((other) => other !== entry);
    return entry.session.dispose();
  }

  /**
   * One turn of a session: `begin` starts it. Afterwards the session must hold the prompt and the
   * output.
   */
  async turn(dice, note, session, entry, options, begin, count) {
    const before = {
      text: session.text,
      written: session.written,
      tokens: session.tokens,
      messages: session.messages.length,
    };
    const heard = await this.fits(null, () => this.hear(dice, note, begin, options));
    note(`(${session.tokens.length} held)`);
    if (!heard) {
      check(
        session.text === before.text && session.messages.length === before.messages,
        'a failed turn changed the session',
        before.text,
        session.text,
      );
      check(same(session.tokens, before.tokens), 'a failed turn changed the tokens');
      if (dice.chance(0.5)) await this.remove(entry);
      return;
    }
    const { usage } = heard.result;
    const { tokens } = await this.lately(dice, session);
    check(
      same(
        tokens.slice(usage.promptTokens),
        heard.pieces.map(({ token }) => token),
      ),
      "the session's tokens differ from its output",
    );
    if (count)
      check(
        await count(tokens.slice(0, usage.promptTokens), before),
        'the prompt differs from the messages',
      );
    await this.agree(tokens.slice(0, usage.promptTokens), options, heard);
  }

  /** The session's tokens, mostly without a call that affects the engine. */
  async lately(dice, session) {
    if (!dice.chance(0.2)) return { tokens: session.tokens };
    const saved = await session.save();
    check(same(saved.tokens, session.tokens), 'a session saves tokens that it does not have');
    return saved;
  }

  say(dice, note) {
    return this.with(dice, async (session, entry) => {
      const options = this.options(dice, note);
      const text =
        (session.text ? ' ' : '') + dice.words(1 + dice.below(dice.chance(0.3) ? 150 : 25));
      const count = async (prompt, before) => {
        const plain = text.replace(/[\uFDD0\uFDD1]/g, '\uFFFD');
        const whole = await this.engine.tokenize(before.written + plain, { literalSpans: true });
        const more = await this.engine.tokenize(plain, { continuation: true });
        return same(prompt, whole) || same(prompt, joined(before.tokens, more));
      };
      await this.beside(dice, note, () =>
        this.turn(
          dice,
          note,
          session,
          entry,
          options,
          (options) => session.generate(text, options),
          count,
        ),
      );
    });
  }

  send(dice, note) {
    return this.with(dice, async (session, entry) => {
      const options = { ...this.options(dice, note), ignoreEos: false };
      delete options.stop; // the template may add its own
      const said = dice.chance(0.8)
        ? dice.words(1 + dice.below(40))
        : [{ role: 'user', content: dice.words(5) }];
      await this.beside(dice, note, () =>
        this.turn(dice, note, session, entry, options, (options) => session.send(said, options)),
      );
    });
  }

  /** Two turns and a copy at once: they wait for each other. */
  twice(dice, note) {
    return this.with(dice, async (session) => {
      const options = { maxTokens: 5, temperature: 0, ignoreEos: true };
      const { lora } = this;
      const first = session.generate(` ${dice.words(5)}`, options);
      if (dice.chance(0.3)) first.cancel();
      const saved = session.save();
      const forked = dice.chance(0.5) ? session.fork() : null;
      const second = session.generate(` ${dice.words(5)}`, options);
      const ends = await Promise.allSettled([first.result, saved, second.result, forked]);
      if (forked && ends[3].status === 'fulfilled')
        this.sessions.push({ session: ends[3].value, busy: false });
      for (const { reason } of ends)
        if (reason && !/PROMPT_TOO_LONG|CONTEXT_FULL/.test(reason.code)) throw reason;
      note(`(${session.tokens.length} held)`);
      if (ends[2].status === 'rejected') return;
      const result = ends[2].value;
      const pieces = await piecesOf(second);
      const prompt = session.tokens.slice(0, result.usage.promptTokens);
      await this.agree(prompt, options, { result, pieces, lora });
    });
  }

  fork(dice, note) {
    return this.with(dice, async (session) => {
      if (this.sessions.length >= 2 * kSessions) return;
      const other = await session.fork();
      check(other.text === session.text && same(other.tokens, session.tokens), 'a fork differs');
      note(`(${session.tokens.length} held)`);
      this.sessions.push({ session: other, busy: false });
    });
  }

  save(dice, note) {
    return this.with(dice, async (session) => {
      const { lora } = this;
      const saved = await session.save();
      check(same(saved.tokens, session.tokens), 'a session saves tokens that it does not have');
      note(`(${saved.tokens.length} tokens, ${saved.state.length} bytes)`);
      this.saved.push({ ...structuredClone(saved), lora });
      if (this.saved.length > 4) this.saved.shift();
    });
  }

  restore(dice, note) {
    return this.with(dice, async (session) => {
      if (this.saved.length === 0) return;
      const saved = dice.of(this.saved);
      // The state of another text must only cost time.
      const { state, lora } = dice.chance(0.2) ? dice.of(this.saved) : saved;
      if (state.length === 0 && saved.tokens.length > 0) return;
      note(`(${saved.tokens.length} tokens)`);
      await this.beside(dice, note, () => this.restoring(session, { ...saved, state }, lora));
    });
  }

  /** Restores a state that belongs to these adapters; others refuse it, and nothing changes. */
  async restoring(session, saved, lora) {
    const { tokens } = session;
    const fits = saved.tokens.length === 0 || keyOf(lora) === keyOf(this.lora);
    const error = await outcomeOf(session.restore(saved));
    if (fits && error) throw error;
    check(fits || error?.code === 'CORRUPT', 'a state of other adapters is accepted', `${error}`);
    check(
      same(session.tokens, fits ? saved.tokens : tokens),
      'a restored session differs from the saved one',
    );
    return fits;
  }

  /** Damaged states and states of other models are errors, and nothing changes. */
  damage(dice, note) {
    return this.with(dice, async (session) => {
      const saved = dice.of(
        [...this.saved, ...this.savedOwn].filter(({ state }) => state.length > 0),
      ) ?? { tokens: Int32Array.of(1), state: this.foreign };
      let state = saved.state.slice();
      const how = dice.below(5);
      if (how === 0) state[dice.below(state.length)] ^= 1 << dice.below(8);
      else if (how === 1) state = state.slice(0, dice.below(state.length));
      else if (how === 2) state = new Uint8Array([...state, 0]);
      else if (how === 3) state = this.foreign;
      else state = Uint8Array.from({ length: 1 + dice.below(2000) }, () => dice.below(256));
      note(`how ${how}`);
      const { text, tokens } = session;
      const own = dice.chance(0.5);
      const broken = {
        messages: [],
        text: 'x',
        exact: true,
        ...saved,
        tokens: Int32Array.of(1, 2),
        state,
      };
      const error = await (own ? this.engine.restoreState(broken) : session.restore(broken)).then(
        () => null,
        (e) => e,
      );
      check(
        /^(CORRUPT|CONTEXT_FULL|INVALID_ARGUMENT)$/.test(error?.code),
        'a damaged state was accepted',
        how,
        `${error}`,
      );
      check(
        session.text === text && same(session.tokens, tokens),
        'a damaged state changed the session',
      );
    });
  }

  dispose(dice) {
    return this.with(dice, async (session, entry) => {
      const going = dice.chance(0.4)
        ? session.generate(` ${dice.words(30)}`, { maxTokens: 30 })
        : null;
      await this.remove(entry);
      const error = await session.generate('x').result.then(
        () => null,
        (e) => e,
      );
      check(error?.code === 'DISPOSED', 'a disposed session generates', `${error}`);
      await going?.result.catch((e) =>
        check(
          /DISPOSED|PROMPT_TOO_LONG|CONTEXT_FULL/.test(e.code),
          'wrong error of a disposed session',
          `${e}`,
        ),
      );
    });
  }

  // --- budgets -----------------------------------------------------------------------------------

  /** A budget at or near the smallest, above it, or unlimited. */
  budgetOf(dice) {
    const { least } = this;
    return dice.of([least, least + dice.below(200_000), least + dice.below(least), 'auto']);
  }

  async budget(dice, note) {
    const bytes = this.budgetOf(dice);
    note(bytes === 'auto' ? 'auto' : `to ${bytes - this.least} above the minimum`);
    if (dice.chance(0.15)) {
      const control = new AbortController();
      const moved = this.engine.setMemoryBudget(bytes, { signal: control.signal });
      await sleep(dice.of([0, 1, 10]));
      control.abort();
      return moved.catch((e) =>
        check(e.name === 'AbortError', 'wrong error of an aborted budget change', `${e}`),
      );
    }
    const number = ++this.moves;
    await this.engine.setMemoryBudget(bytes);
    const { heap } = this.engine.memory();
    check(
      number !== this.moves || bytes === 'auto' || heap <= bytes,
      'the budget is exceeded',
      heap,
      bytes,
    );
  }

  /** Other adapters, sometimes during a budget change, or one that belongs to another model. */
  async adapters(dice, note) {
    if (!this.adapterFiles.length) return this.budget(dice, note);
    if (dice.chance(0.1)) {
      const error = await outcomeOf(this.engine.setAdapters([this.foreignAdapter]));
      return check(error?.code, "another model's adapter is accepted");
    }
    const files = dice.chance(0.5) ? this.adapterFiles : this.adapterFiles.toReversed();
    const lora = files
      .filter(() => dice.chance(0.6))
      .map((source) => ({ source, scale: dice.of([1, 0.5]) }));
    note(keyOf(lora.map(({ source, scale }) => [source.at(-11), scale])));
    const moving = () => dice.chance(0.3) && this.budget(dice, note);
    const before = moving();
    this.lora = lora;
    const changed = this.engine.setAdapters(lora);
    await Promise.all([before, changed, moving()]);
  }

  async refuse(dice) {
    const error = await this.engine
      .setMemoryBudget(Math.floor(this.least * dice.of([0.1, 0.5])))
      .then(
        () => null,
        (e) => e,
      );
    check(
      error?.code === 'BUDGET_TOO_SMALL',
      'wrong error of a budget below the minimum',
      `${error}`,
    );
  }

  // --- other calls -------------------------------------------------------------------------------

  async logits(dice) {
    const tokens = Int32Array.from({ length: 1 + dice.below(5) }, () =>
      dice.below(this.engine.info.vocabSize),
    );
    const [got, truth] = await Promise.all([
      this.engine.logits(tokens),
      this.fairly(this.lora, (fresh) => fresh.logits(tokens)),
    ]);
    check(same(got, truth), 'logits differ');
  }

  async saveOwn(_, note) {
    const { lora } = this;
    const saved = await this.engine.saveState();
    note(`(${saved.tokens.length} tokens, ${saved.state.length} bytes)`);
    this.savedOwn.push({ ...structuredClone(saved), lora });
    if (this.savedOwn.length > 3) this.savedOwn.shift();
  }

  /** Restores a saved state, also one of a session, and continues from it. */
  async restoreOwn(dice, note) {
    const saved = dice.of(
      [...this.savedOwn, ...this.saved].filter(({ state }) => state.length > 0),
    );
    if (!saved) return;
    const fits = keyOf(saved.lora) === keyOf(this.lora);
    const error = await outcomeOf(this.engine.restoreState(saved));
    if (fits && error) throw error;
    check(fits || error?.code === 'CORRUPT', 'a state of other adapters is accepted', `${error}`);
    const prompt = joined(saved.tokens, [dice.below(this.engine.info.vocabSize)]);
    note(`${saved.tokens.length} tokens`);
    await this.ask(dice, note, prompt, prompt, this.options(dice, note));
  }

  async tooLong(dice, note) {
    const tokens = new Int32Array(this.contextLength + 1 + dice.below(300)).fill(1);
    const error = await this.engine.generate(tokens, { maxTokens: 1 }).result.then(
      () => null,
      (e) => e,
    );
    check(
      error?.code === 'PROMPT_TOO_LONG',
      'wrong error of a prompt that is too long',
      `${error}`,
    );
    const foreign = await this.engine.generate([1, this.engine.info.vocabSize]).result.then(
      () => null,
      (e) => e,
    );
    check(foreign?.code === 'INVALID_ARGUMENT', 'wrong error of an unknown token', `${foreign}`);
    const empty = await this.engine.generate([]).result.then(
      () => null,
      (e) => e,
    );
    check(empty?.code === 'PROMPT_EMPTY', 'wrong error of an empty prompt', `${empty}`);
    await this.with(dice, async (session, entry) => {
      const { text } = session;
      const error = await session.generate(' the mill'.repeat(this.contextLength)).result.then(
        () => null,
        (e) => e,
      );
      check(
        error?.code === 'PROMPT_TOO_LONG' && session.text === text,
        'wrong error of a prompt that is too long for a session',
        `${error}`,
      );
      if (dice.chance(0.7))
        await this.turn(dice, note, session, entry, this.options(dice, note), (options) =>
          session.generate(' and', options),
        );
    });
  }

  /** Chat completions: complete, streamed, and streams abandoned at the first chunk. */
  async chat(dice, note) {
    const messages = Array.from({ length: 1 + 2 * dice.below(3) }, (_, i) => ({
      role: i % 2 ? 'assistant' : 'user',
      content: dice.words(3 + dice.below(30)),
    }));
    const params = {
      messages,
      max_tokens: 1 + dice.below(30),
      temperature: dice.of([0, 1]),
      seed: dice.below(1000),
      logprobs: dice.chance(0.2),
    };
    const how = dice.of(['whole', 'stream', 'left', 'aborted']);
    note(how);
    const { lora } = this;
    const content = await orTooLong(this.chatted(dice, params, how));
    if (how === 'whole' || how === 'stream' || content === kTooLong)
      await this.agreeChat(params, content, lora);
  }

  /** The content of a chat completion. It is complete only if read to its end. */
  async chatted(dice, params, how) {
    const { completions } = this.engine.chat;
    if (how === 'whole') return contentOf(await completions.create(params));
    const stream = await completions.create({
      ...params,
      max_tokens: how === 'stream' ? params.max_tokens : 300,
      stream: true,
    });
    let content = '';
    if (how === 'aborted') void sleep(dice.below(20)).then(() => stream.controller.abort());
    for await (const { choices } of stream) {
      content += choices[0]?.delta.content ?? '';
      if (how === 'left') break;
    }
    return content;
  }

  async agreeChat(params, content, lora) {
    const truth = await this.fairly(lora, async (fresh) => {
      await fresh.generate([fresh.info.vocabSize - 1], { maxTokens: 0, cachePrompt: false }).result; // prevents prefix reuse
      return orTooLong(fresh.chat.completions.create(params).then(contentOf));
    });
    check(content === truth, 'a chat differs', content, truth);
  }

  /**
   * Loads the same model a second time, beside the first. A session continues there and comes back.
   */
  second(dice, note) {
    return this.with(dice, async (session) => {
      const { lora } = this;
      const engine = await this.Engine.load(this.source, {
        contextLength: this.contextLength + dice.of([0, 64]),
        threads: 1,
        cache: 'none',
        memoryBudget: this.least + 300_000,
        lora,
      });
      try {
        const there = engine.session();
        const beside = dice.chance(0.5)
          ? this.ask(dice, note, Int32Array.of(1, 2, 3), [1, 2, 3], this.options(dice, note))
          : null;
        const { lora: ofSaved } = this;
        const saved = await session.save();
        const error = saved.tokens.length > 0 && (await outcomeOf(there.restore(saved)));
        const fits = keyOf(ofSaved) === keyOf(lora);
        if (fits && error) throw error;
        if (error) {
          check(error.code === 'CORRUPT', 'wrong error of a state of other adapters', `${error}`);
          return await beside;
        }
        check(fits || saved.tokens.length === 0, 'a state of other adapters is accepted');
        const options = { maxTokens: 6, temperature: 0, ignoreEos: true };
        const going = there.generate(' again', options);
        const heard = await this.fits(null, async () => ({ result: await going.result }));
        if (heard && there.tokens.length <= this.contextLength) {
          // A longer context allows more.
          const { result } = heard;
          const prompt = there.tokens.slice(0, result.usage.promptTokens);
          await this.agree(prompt, options, { result, pieces: await piecesOf(going), lora });
          await this.back(dice, note, await there.save(), lora);
        }
        await beside;
      } finally {
        await engine.dispose();
      }
    });
  }

  /** A session of this engine continues what another engine saved. */
  async back(dice, note, saved, lora) {
    if (this.sessions.length >= 2 * kSessions) return;
    const entry = { session: this.engine.session(), busy: true };
    this.sessions.push(entry);
    try {
      if (!(await this.restoring(entry.session, saved, lora))) return;
      note('and back');
      const begin = (options) => entry.session.generate(' and', options);
      await this.turn(dice, note, entry.session, entry, this.options(dice, note), begin);
    } finally {
      entry.busy = false;
    }
  }

  /** dispose() during calls: each ends, or is rejected with DISPOSED, and so are later ones. */
  async leave(dice, note) {
    const { engine } = this;
    const session = engine.session();
    const messages = [{ role: 'user', content: dice.words(5) }];
    const saved = dice.of(this.saved.filter(({ lora }) => keyOf(lora) === keyOf(this.lora)));
    const calls = {
      generate: () => engine.generate([1, 2, 3], { maxTokens: 30 }).result,
      say: () => session.generate('the mill', { maxTokens: 30 }).result,
      chat: () => this.template && engine.chat.completions.create({ messages, max_tokens: 30 }),
      save: () => session.save(),
      fork: () => session.fork(),
      restore: () => saved?.state.length && engine.session().restore(saved),
      saveState: () => engine.saveState(),
      logits: () => engine.logits([1, 2, 3]),
      tokenize: () => engine.tokenize('the mill'),
      budget: () => engine.setMemoryBudget(this.budgetOf(dice)),
      adapters: () => engine.setAdapters(dice.of([[], this.lora])),
      end: () => session.dispose(),
    };
    const names = Array.from({ length: 1 + dice.below(6) }, () => dice.of(Object.keys(calls)));
    const after = dice.of([0, 0, 1, 5, 20]);
    note(`${names.join(', ')}; after ${after} ms`);
    const ends = names.map((name) => outcomeOf((async () => calls[name]())()));
    if (after) await sleep(after);
    await engine.dispose();
    for (const [i, error] of (await Promise.all(ends)).entries())
      check(!error || error.code === 'DISPOSED', `${names[i]} during dispose()`, `${error}`);
    for (const name of ['generate', 'saveState', 'budget', 'adapters', 'tokenize']) {
      const error = await outcomeOf((async () => calls[name]())());
      check(error?.code === 'DISPOSED', `${name} after dispose()`, `${error}`);
    }
  }

  /** Calls that work at any moment. */
  async told() {
    const { engine } = this;
    const stats = engine.stats();
    check(
      stats.cachedTokens <= stats.promptTokens || stats.promptTokens === 0,
      'more cached tokens than prompt tokens',
      stats,
    );
    check(engine.weightUnits().length > 0 && engine.memory().heap > 0, 'no weight units');
    const text = 'the mill, é';
    check(
      same(
        await engine.tokenize(text),
        await this.fairly(this.lora, (fresh) => fresh.tokenize(text)),
      ),
      'tokenize() differs',
    );
  }
}
async function piecesOf(generation) {
  const out = [];
  for await (const piece of generation) out.push(piece);
  return out;
}

/**
 * Runs `count` random operations with the model at `source`. Resolves to the number of each kind.
 * The message of an error lists the last operations.
 */
export async function randomOperations({ count, ...settings }) {
  const operations = new Operations(settings);
  try {
    await operations.open();
    await operations.run(count);
    return operations.done;
  } finally {
    await Promise.race([operations.close(), sleep(5000)]);
  }
}
