// Many sessions on one engine, opened one after the other and continued in another order. Each must
// generate what it generates alone on an engine without a budget, keep its KV cache, and keep the
// engine within its budget. Runs in Node and in pages.
const kGreedy = { maxTokens: 6, temperature: 0, ignoreEos: true };
const kNames = ['Ada', 'Ben', 'Cleo', 'Dan', 'Eva', 'Finn', 'Gus', 'Hana', 'Ivo', 'Jon'];
const kPlaces = [
  'mill',
  'river',
  'wood',
  'tower',
  'garden',
  'harbour',
  'bakery',
  'hill',
  'barn',
  'island',
];

const opening = (i) =>
  `Once upon a time ${kNames[i % 10]} lived at the ${kPlaces[Math.floor(i / 10) % 10]}.`;
const turns = [opening, (i) => ` ${kNames[(i + 3) % 10]} came and said`, () => ' In the end'];

async function told(session, turn, i) {
  const { text, usage } = await session.generate(turns[turn](i), kGreedy).result;
  return { text, ...usage };
}

/**
 * `budget` null is the smallest; `count` must not be a multiple of 3 or 7. Throws if a check fails;
 * resolves to { budget, heap, tokens }.
 */
export async function manyConversations({ Engine, source, count, budget = null, ...options }) {
  const check = (holds, what) => {
    if (!holds) throw new Error(what);
  };
  const memoryBudget = budget ?? (await Engine.inspect(source, options)).plan.minimum;
  const engine = await Engine.load(source, { ...options, memoryBudget });
  const roomy = await Engine.load(source, options);
  const sessions = [];
  const texts = Array.from({ length: count }, () => []);
  const computed = new Array(count).fill(0);
  let heap = 0;
  for (let turn = 0; turn < turns.length; turn++) {
    for (let at = 0; at < count; at++) {
      const i = (at * [1, 7, 3][turn]) % count;
      sessions[i] ??= engine.session();
      const { text, promptTokens, completionTokens, cachedTokens } = await told(
        sessions[i],
        turn,
        i,
      );
      texts[i].push(text);
      // The last generated token has not been computed yet.
      check(
        cachedTokens >= computed[i],
        `conversation ${i}, turn ${turn}: ${cachedTokens} of ${computed[i]} tokens cached`,
      );
      computed[i] = promptTokens + completionTokens - 1;
      heap = Math.max(heap, engine.memory().heap);
      check(heap <= memoryBudget, `${heap} bytes of ${memoryBudget}`);
    }
  }
  for (let i = 0; i < count; i++) {
    const alone = roomy.session();
    for (let turn = 0; turn < turns.length; turn++) {
      const { text } = await told(alone, turn, i);
      check(
        texts[i][turn] === text,
        `conversation ${i}, turn ${turn}: "${texts[i][turn]}", alone "${text}"`,
      );
    }
    await alone.dispose();
  }
  await engine.dispose();
  await roomy.dispose();
  return { budget: memoryBudget, heap, tokens: computed.reduce((sum, n) => sum + n, 0) };
}
