// Random turns of sessions with pictures, in a KV cache that evicts, over the real engine: several
// sessions and two sequences at once, forks, saved and restored sessions, changes of the budget, and
// states that are dropped. Each answer is that of a session which has only this conversation, in an
// engine that computes one at a time.
//   SLUICE_RANDOM_SEED=n SLUICE_RANDOM_TURNS=n node --test tests/package/random-pictures.test.mjs
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { extent } from '../extent.mjs';
import { random } from '../web/random.mjs';
import { Engine } from '../../dist/node.js';

const vision = inRoot('..', 'shared', 'fixtures', 'vision');
const skip = !existsSync(vision) && 'no ../shared/fixtures/vision';
const seed = Number(process.env.SLUICE_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 31));
const turns = Number(process.env.SLUICE_RANDOM_TURNS ?? extent(14, 120));
const kCapacity = 128;
const kSessions = 3;
const kMessages = 7; // of a conversation, which then begins again
const images = ['rgb.png', 'rgb16.png', 'long.gif', 'rgba.png']
  .map((name) => inRoot('tests', 'data', 'pictures', name))
  .filter(existsSync)
  .map((path) => readFileSync(path));

const load = (name, options) =>
  Engine.load(join(vision, `${name}.gguf`), {
    projector: join(vision, `${name}.mmproj.gguf`),
    contextLength: 4096,
    cache: 'none',
    threads: 1,
    kvCapacity: kCapacity,
    onProgress() {},
    ...options,
  });

/** A message of the user, and how it is answered. */
function someTurn(below) {
  const words = (n) => ' and what is there behind it'.repeat(n);
  const text = (n) => ({ type: 'text', text: `look ${below(100)}${words(n)}` });
  const options = { temperature: 0, maxTokens: 1 + below(8), ignoreEos: true };
  if (below(2)) return { message: text(1 + below(4)).text, options };
  const image = { type: 'image', image: images[below(images.length)] };
  const content = [text(below(3)), image, text(below(4))];
  return { message: { role: 'user', content }, options };
}

/** States that were dropped come back with the next turn, which has the pictures. */
function lost(error) {
  if (error.code !== 'MEDIA_MISSING') throw error;
}

const say = (session, { message, options }) => session.send(message, options).text();

/** What a session that has only this conversation answers last. */
async function expected(engine, conversation) {
  const session = engine.session();
  let text;
  for (const turn of conversation) text = await say(session, turn);
  await session.dispose();
  return text;
}

async function run(name, options, next) {
  const below = (n) => Math.floor(next() * n);
  const [engine, alone] = [
    await load(name, { ...options, parallel: 2 }),
    await load(name, options),
  ];
  const least = engine.info.plan.minimum;
  const all = Array.from({ length: kSessions }, () => ({ session: engine.session(), said: [] }));
  const again = (one) => Object.assign(one, { session: engine.session(), said: [] });
  let evicted = 0;
  for (let i = 0; i < turns; i++) {
    const [one, other] = [below(kSessions), 1 + below(kSessions - 1)];
    const both = [all[one], all[(one + other) % kSessions]];
    switch (below(8)) {
      case 0: {
        const saved = await both[0].session.save().catch(lost);
        if (!saved) break;
        await both[1].session.dispose();
        again(both[1]).said = [...both[0].said];
        await both[1].session.restore(saved);
        break;
      }
      case 1: {
        const session = await both[0].session.fork().catch(lost);
        if (!session) break;
        await both[1].session.dispose();
        Object.assign(both[1], { session, said: [...both[0].said] });
        break;
      }
      case 2:
        await engine.setAdapters([]); // drops all states
        break;
      case 3:
        await engine.setMemoryBudget(least + (24 + below(16)) * 2 ** 20);
        break;
      default: {
        const asked = both.slice(0, 1 + below(2));
        for (const each of asked) {
          if (each.said.length < kMessages) each.said.push(someTurn(below));
          else again(each).said.push(someTurn(below));
        }
        const texts = await Promise.all(
          asked.map(({ session, said }) => say(session, said.at(-1))),
        );
        for (const [k, { session, said }] of asked.entries()) {
          assert.equal(texts[k], await expected(alone, said), `turn ${i} of session ${one}`);
          evicted += Number(session.tokens.length > kCapacity);
        }
      }
    }
  }
  await engine.dispose();
  await alone.dispose();
  return evicted;
}

for (const [i, [name, kvPolicy, kvType]] of [
  ['qwen3vl', 'window', 'f16'],
  ['qwen2.5vl', 'heavy-hitter', 'q8_0'],
  ['gemma3', 'window', 'q4_0'],
  ['llava', 'heavy-hitter', 'f16'],
].entries())
  test(`${name}, ${kvPolicy}, ${kvType}, SLUICE_RANDOM_SEED=${seed}`, { skip }, async (t) => {
    const evicted = await run(name, { kvPolicy, kvType }, random((seed + i) >>> 0));
    t.diagnostic(`${turns} turns, ${evicted} answers behind an eviction`);
  });
