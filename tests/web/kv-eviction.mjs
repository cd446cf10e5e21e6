// A session longer than its KV cache, with eviction. The output must be the same for one prompt and
// for several turns, at the smallest budget, and after save, restore and fork. Runs in Node and in
// pages.
const kGreedy = { maxTokens: 16, temperature: 0, ignoreEos: true };

export const contextLength = 700;
/** More tokens than any of the KV caches holds. */
export const story =
  'Once upon a time there was a little girl with a red scarf. ' +
  'One morning a frog met a monkey by the pond. The monkey was thin and hungry. '.repeat(9) +
  'The girl had a scarf that was';

/** Throws if a check fails; resolves to the output and the number of prompt tokens. */
export async function forgettingSession({ Engine, source, ...options }) {
  const check = (holds, what) => {
    if (!holds) throw new Error(what);
  };
  const load = { contextLength, threads: 1, cache: 'none', ...options };
  const { plan } = await Engine.inspect(source, load);
  const engine = await Engine.load(source, { ...load, memoryBudget: plan.minimum });
  const roomy = await Engine.load(source, { ...load, threads: 2 });
  const whole = await roomy.generate(story, kGreedy).result;
  check(
    whole.usage.promptTokens > plan.kvCapacity,
    `${whole.usage.promptTokens} tokens fit in ${plan.kvCapacity}`,
  );

  const session = engine.session();
  const said = (await session.generate(story, kGreedy).result).text;
  check(said === whole.text, `at the smallest budget "${said}", without a budget "${whole.text}"`);
  check(engine.memory().heap <= plan.minimum, `${engine.memory().heap} bytes of ${plan.minimum}`);
  const state = structuredClone(await session.save());
  const more = ' and the frog said';
  const expected = (await roomy.generate(story + said + more, kGreedy).result).text;

  const restored = engine.session();
  await restored.restore(state);
  const forked = await restored.fork();
  for (const [name, one] of Object.entries({ session, restored, forked })) {
    const { text, usage } = await one.generate(more, kGreedy).result;
    check(text === expected, `${name}: "${text}", as one prompt "${expected}"`);
    check(
      usage.cachedTokens >= whole.usage.promptTokens,
      `${name}: ${usage.cachedTokens} tokens cached`,
    );
  }
  await engine.dispose();
  await roomy.dispose();
  return { said, tokens: whole.usage.promptTokens };
}
