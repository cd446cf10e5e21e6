// Prompts with pictures through the package, over the real engine: the greedy tokens of llama.cpp
// in all families (../shared/fixtures/vision), also in a budget in which the projector streams;
// what takes pictures, in Node and in Chromium; and errors.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { all, extent } from '../extent.mjs';
import { crossOrigin, inTab, launch } from '../web/chromium.mjs';
import { kFiles, kHeight, kWidth } from '../web/picture-samples.mjs';
import { Engine } from '../../dist/node.js';

const vision = inRoot('..', 'shared', 'fixtures', 'vision');
const missing = !existsSync(vision) && 'no ../shared/fixtures/vision';
const families = missing ? [] : JSON.parse(readFileSync(join(vision, 'manifest.json')));
const isPng = (name) => name.endsWith('.png');
const file = (name) => join(vision, name);
const casesOf = ({ cases }) => cases.filter(({ media }) => media.every(isPng));

const greedy = (entry) => ({
  temperature: 0,
  maxTokens: entry.greedy.length,
  ignoreEos: true,
});
const load = (family, options) =>
  Engine.load(file(family.model), {
    projector: file(family.mmproj),
    contextLength: 1024,
    cache: 'none',
    threads: 1,
    ...options,
  });
const imagesOf = ({ media }) => media.map((name) => readFileSync(file(name)));

async function tokensOf(generation) {
  const out = [];
  for await (const { token } of generation) out.push(token);
  return out;
}

describe('pictures', { skip: missing }, () => {
  test('prompts give the tokens of the reference', async () => {
    let n = 0;
    for (const family of all ? families : families.filter((_, i) => i % 6 === 0)) {
      const cases = casesOf(family);
      for (const entry of all ? cases : cases.slice(0, 1)) {
        const engine = await load(family);
        const name = `${family.name} ${entry.name}`;
        assert.deepEqual(engine.info.modalities, ['text', 'image'], name);
        const options = { ...greedy(entry), images: imagesOf(entry) };
        const answer = engine.generate(entry.prompt, options);
        assert.deepEqual(await tokensOf(answer), entry.greedy, name);
        // The session holds the pictures: nothing is encoded again, and nothing changes.
        const again = engine.generate(entry.prompt, options);
        assert.deepEqual(await tokensOf(again), entry.greedy, name);
        const anew = engine.generate(entry.prompt, { ...options, cachePrompt: false });
        assert.deepEqual(await tokensOf(anew), entry.greedy, name);
        assert.equal((await anew.result).usage.cachedTokens, 0);
        await engine.dispose();
        n++;
      }
    }
    assert.ok(n >= extent(4, 20), `${n}`);
  });

  test('a budget smaller than both files gives the same tokens', async () => {
    for (const family of all ? families : families.slice(0, 2)) {
      const [entry] = casesOf(family);
      if (!entry) continue;
      const bounds = { contextLength: 256, structuredOutput: false };
      const { plan } = await Engine.inspect(file(family.model), {
        ...bounds,
        projector: file(family.mmproj),
        threads: 1,
      });
      // Enough for the text alone, then more until the picture fits.
      let memoryBudget = plan.minimum;
      for (let attempt = 0; ; attempt++) {
        const engine = await load(family, { ...bounds, memoryBudget });
        try {
          const answer = engine.generate(entry.prompt, {
            ...greedy(entry),
            images: imagesOf(entry),
          });
          assert.deepEqual(await tokensOf(answer), entry.greedy, family.name);
          assert.ok(engine.memory().total <= memoryBudget);
          break;
        } catch (error) {
          assert.match(`${error.code}`, /^(BUDGET_TOO_SMALL|OUT_OF_MEMORY)$/, error.message);
          assert.ok(attempt < 12, `${family.name}: ${error.message}`);
          memoryBudget += 1 << 20;
        } finally {
          await engine.dispose();
        }
      }
    }
  });

  test('files, bytes and pixels are the same picture', async () => {
    const family = families[0];
    const engine = await load(family);
    const prompt = '<|im_start|>user\nlook <__media__> what is it';
    const cached = async (image) => {
      const options = { images: [image], maxTokens: 1 };
      const { usage } = await engine.generate(prompt, options).result;
      return usage.promptTokens - usage.cachedTokens;
    };
    const png = readFileSync(inRoot('tests', 'data', 'pictures', 'rgb.png'));
    assert.ok((await cached(png)) > 2);
    const data = new Uint8ClampedArray(4 * kWidth * kHeight).fill(255);
    for (let i = 0; i < kWidth * kHeight; i++)
      for (let c = 0; c < 3; c++)
        data[4 * i + c] = kFiles['rgb.png'].shown(i % kWidth, Math.floor(i / kWidth), c);
    for (const same of [
      new Blob([png]),
      new Uint8Array(png).buffer,
      { width: kWidth, height: kHeight, data },
      readFileSync(inRoot('tests', 'data', 'pictures', 'lossless.webp')),
      `data:image/png;base64,${png.toString('base64')}`,
    ])
      assert.equal(await cached(same), 1);
    data[0] ^= 255;
    assert.ok((await cached({ width: kWidth, height: kHeight, data })) > 2);
    const jpeg = readFileSync(inRoot('tests', 'data', 'pictures', 'rgb.jpg'));
    assert.ok((await cached(jpeg)) > 2);
    const { tokens, bytes } = await engine.imageCost(1280, 960);
    assert.ok(tokens > 100 && bytes > 1280 * 960 * 3, `${tokens} ${bytes}`);
    await engine.dispose();
  });

  test('limits of tokens give the tokens of the reference, and lower the price', async () => {
    const media = JSON.parse(readFileSync(join(vision, 'media.json')));
    const decoded = (name) => media.find((one) => one.file === name).decoded ?? name;
    const limited = families.flatMap((family) =>
      family.cases.filter(({ limits }) => limits).map((entry) => ({ family, entry })),
    );
    assert.ok(limited.length > 1);
    for (const { family, entry } of limited) {
      const engine = await load(family, { imageTokens: entry.limits });
      const images = entry.media.map((name) => readFileSync(file(decoded(name))));
      const answer = engine.generate(entry.prompt, { ...greedy(entry), images });
      assert.deepEqual(await tokensOf(answer), entry.greedy, family.name);
      assert.ok((await engine.imageCost(1280, 960)).tokens <= entry.limits.max);
      await engine.dispose();
    }
    const [{ family }] = limited;
    for (const imageTokens of [{ min: 6, max: 5 }, { max: -1 }, { most: 5 }])
      await assert.rejects(load(family, { imageTokens }), { code: 'INVALID_ARGUMENT' });
  });

  test('the projector among the files of a list is found', async () => {
    const [family] = families;
    const [entry] = casesOf(family);
    const files = [family.mmproj, family.model].map(
      (name) => new File([readFileSync(file(name))], name),
    );
    const options = { projector: true, contextLength: 1024, threads: 1 };
    const engine = await Engine.load(files, options);
    const answer = engine.generate(entry.prompt, { ...greedy(entry), images: imagesOf(entry) });
    assert.deepEqual(await tokensOf(answer), entry.greedy);
    await engine.dispose();
    await assert.rejects(Engine.load(files[1], options), {
      code: 'INVALID_ARGUMENT',
      message: /mmproj/,
    });
  });

  test('GIF and BMP files show the pixels that they show natively', async () => {
    const engine = await load(families[0]);
    const computed = async (image) => {
      const options = { images: [image], maxTokens: 1 };
      const { usage } = await engine.generate('look <__media__> what', options).result;
      return usage.promptTokens - usage.cachedTokens;
    };
    for (const name of Object.keys(kFiles).filter((name) => /(gif|bmp)$/.test(name))) {
      const data = new Uint8ClampedArray(4 * kWidth * kHeight).fill(255);
      for (let i = 0; i < kWidth * kHeight; i++)
        for (let c = 0; c < 3; c++)
          data[4 * i + c] = kFiles[name].shown(i % kWidth, Math.floor(i / kWidth), c);
      data[0] ^= 1;
      await computed({ width: kWidth, height: kHeight, data });
      data[0] ^= 1;
      assert.ok((await computed({ width: kWidth, height: kHeight, data })) > 1, name);
      const file = readFileSync(inRoot('tests', 'data', 'pictures', name));
      assert.equal(await computed(file), 1, name);
    }
    await engine.dispose();
  });

  const message = (image, words = ' what is it') => ({
    role: 'user',
    content: [
      { type: 'text', text: 'look ' },
      { type: 'image', image },
      { type: 'text', text: words },
    ],
  });

  test('parallel generations give the text of each alone', async () => {
    const [family] = families;
    const [image] = imagesOf(casesOf(family)[0]);
    const other = readFileSync(inRoot('tests', 'data', 'pictures', 'long.gif'));
    const engine = await load(family, { parallel: 3 });
    const options = { temperature: 0, maxTokens: 24 };
    const say = (what, more) =>
      engine
        .session()
        .send(what, { ...options, ...more })
        .text();
    const asked = ['tell me 1', message(image), 'tell me 2', message(other), message(image), 'no'];
    const alone = [];
    for (const what of asked) alone.push(await say(what));
    assert.equal(new Set(alone).size, 5);
    for (let round = 0; round < 2; round++)
      assert.deepEqual(await Promise.all(asked.map((what) => say(what))), alone);
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 3);
    const [, after] = await Promise.all([
      assert.rejects(say(message(other, ' and now'), { signal: abort.signal }), {
        name: 'AbortError',
      }),
      say(asked[2]),
    ]);
    assert.equal(after, alone[2]);
    await engine.dispose();
  });

  // Turns of two sessions, alone and together, some saved and restored between them.
  for (const [name, kvPolicy] of [
    ['qwen2.5vl', 'window'],
    ['qwen2.5vl', 'heavy-hitter'],
    ['gemma3', 'window'],
  ])
    test(`${name}: pictures in a KV cache that evicts, ${kvPolicy}`, async () => {
      const family = families.find((one) => one.name === name);
      const [image] = imagesOf(casesOf(family)[0]);
      const other = readFileSync(inRoot('tests', 'data', 'pictures', 'long.gif'));
      const kvCapacity = 128;
      const options = { temperature: 0, maxTokens: 6, ignoreEos: true };
      const words = ' and what is there behind it'.repeat(5);
      const turns = [
        [message(image), words, message(other, words), 'and now', message(image)],
        [words, message(other), words, message(image, words), 'or'],
      ];
      const say = (session, turn) => session.send(turn, options).text();
      const evicting = { kvPolicy, kvCapacity, contextLength: 4096, onProgress() {} };
      const alone = [];
      const engine = await load(family, evicting);
      for (const said of turns) {
        const session = engine.session();
        const texts = [];
        for (const turn of said) texts.push(await say(session, turn));
        assert.ok(session.tokens.length > kvCapacity, `${session.tokens.length} tokens`);
        alone.push(texts);
      }
      await engine.dispose();
      const both = await load(family, { ...evicting, parallel: 2 });
      const sessions = turns.map(() => both.session());
      for (let i = 0; i < turns[0].length; i++) {
        const texts = await Promise.all(turns.map((said, k) => say(sessions[k], said[i])));
        assert.deepEqual(texts, [alone[0][i], alone[1][i]], `turn ${i}`);
        if (i % 2) continue;
        const saved = await sessions[0].save();
        await sessions[0].dispose();
        sessions[0] = both.session();
        await sessions[0].restore(saved);
      }
      // Everything is computed again, with the pictures of the session.
      await both.setAdapters([]);
      const last = sessions[1];
      const anew = await last.send('again', options).result;
      assert.equal(anew.usage.cachedTokens, 0);
      await both.dispose();
    });

  test('a picture larger than the window is an error that names the smallest', async () => {
    const of = (wanted) => families.find(({ name }) => name === wanted);
    await assert.rejects(load(of('gemma4v'), { kvPolicy: 'window', kvCapacity: 2243 }), {
      code: 'INVALID_ARGUMENT',
      message: /pictures of 1120 tokens that see each other: use 2244 to/,
    });
    const [image] = imagesOf(casesOf(of('gemma3'))[0]);
    const engine = await load(of('gemma3'), { kvPolicy: 'heavy-hitter', kvCapacity: 128 });
    await assert.rejects(engine.session().send(message(image)).result, {
      code: 'INVALID_ARGUMENT',
      message: /heavy-hitter/,
    });
    assert.ok((await engine.session().send('hello', { maxTokens: 2 }).text()).length >= 0);
    await engine.dispose();
  });

  test('wrong pictures and an address that hangs leave the engine as it was', async () => {
    const engine = await load(families[0]);
    const prompt = 'look <__media__> what';
    const answer = (image, more) =>
      engine.generate(prompt, { images: [image], maxTokens: 1, ...more }).result;
    const wide = readFileSync(join(vision, 'media', 'wide.png'));
    const { usage } = await answer(wide);
    for (const image of [null, undefined, 5, {}, [], true, new Blob([]), new Uint8Array(9)])
      await assert.rejects(answer(image), { code: 'INVALID_ARGUMENT' }, String(image));
    for (const part of [{ type: 'image' }, { type: 'image_url' }])
      await assert.rejects(async () => engine.generate([part]).result, { code: 'NOT_SUPPORTED' });
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const url = `http://127.0.0.1:${silent.address().port}/a.png`;
    const asks = [
      (signal) => answer(url, { signal }),
      (signal) => engine.session().send(message(url), { signal }).result,
      (signal) => engine.renderPrompt([message(url)], { signal }),
    ];
    for (const ask of asks) {
      const stop = new AbortController();
      const asked = once(silent, 'request');
      const hanging = ask(stop.signal);
      await asked;
      stop.abort();
      await assert.rejects(hanging, { name: 'AbortError' });
      // Its turn is over.
      assert.equal((await answer(wide)).usage.promptTokens, usage.promptTokens);
    }
    silent.closeAllConnections();
    silent.close();
    await engine.dispose();
  });

  test('a projector of another model is an error when it is loaded', async () => {
    const of = (wanted) => families.find(({ name }) => name === wanted);
    const projector = file(of('qwen3vl').mmproj); // as wide, with deepstack
    await assert.rejects(load(of('qwen2.5vl'), { projector }), {
      code: 'BAD_SHAPE',
      message: /belongs to another model/,
    });
  });

  test('a saved session belongs to the weights of its projector', async () => {
    const [family] = families;
    const [image] = imagesOf(casesOf(family)[0]);
    const options = { temperature: 0, maxTokens: 4 };
    const engine = await load(family);
    const session = engine.session();
    await session.send(message(image), options).result;
    const saved = await session.save();
    const text = engine.session();
    await text.send('hello', options).result;
    const unseen = await text.save();
    await engine.dispose();
    const bytes = readFileSync(file(family.mmproj));
    for (const [change, code] of [
      [0, undefined],
      [1, 'CORRUPT'],
    ]) {
      const changed = Buffer.from(bytes);
      changed[bytes.length - 64] ^= change;
      const other = await load(family, { projector: new File([changed], 'mmproj.gguf') });
      const restored = other.session().restore(saved);
      if (code) await assert.rejects(restored, { code, message: /weights of the projectors/ });
      else await restored;
      await other.session().restore(unseen);
      await other.dispose();
    }
  });

  test('a sequence that lost its pictures says so', async () => {
    const [family] = families;
    const [image] = imagesOf(casesOf(family)[0]);
    const engine = await load(family, { onProgress() {} });
    const options = { temperature: 0, maxTokens: 4 };
    const session = engine.session();
    const first = await session.send(message(image), options).result;
    // More text continues what the session holds.
    const more = await session.generate(' and what', options).result;
    assert.ok(more.usage.cachedTokens >= first.usage.promptTokens, `${more.usage.cachedTokens}`);
    await engine.setAdapters([]); // drops all states
    await assert.rejects(session.save(), { code: 'MEDIA_MISSING' });
    // The next turn has them.
    const anew = await session.generate(' or', options).result;
    assert.equal(anew.usage.cachedTokens, 0);
    assert.ok(anew.usage.promptTokens > more.usage.promptTokens);
    await session.save();
    assert.ok((await session.send('and now', options).result).usage.promptTokens > 0);
    await session.save();
    await engine.dispose();
  });

  test('prompts and sessions take parts of text and pictures', async () => {
    const [family] = families;
    const [image] = imagesOf(casesOf(family)[0]);
    const other = readFileSync(inRoot('tests', 'data', 'pictures', 'rgb.png'));
    const engine = await load(family, { onProgress() {} });
    const options = { temperature: 0, maxTokens: 8, ignoreEos: true };
    const parts = (words, part) => [
      { type: 'text', text: `look ${words}` },
      part,
      { type: 'text', text: ' what is it' },
    ];
    const marked = { ...options, images: [image] };
    const wanted = await engine.generate('look at<__media__> what is it', marked).result;
    const url = `data:image/png;base64,${image.toString('base64')}`;
    for (const part of [
      { type: 'image', image },
      { type: 'image_url', image_url: { url } },
    ]) {
      const given = await engine.generate(parts('at', part), options).result;
      assert.equal(given.text, wanted.text);
      assert.equal(given.usage.cachedTokens, wanted.usage.promptTokens - 1);
    }
    // In texts of parts, the mark is text.
    const literal = parts('at <__media__>', { type: 'image', image });
    const spelled = await engine.generate(literal, options).result;
    assert.ok(spelled.usage.promptTokens > wanted.usage.promptTokens);

    const session = engine.session();
    const first = await session.generate('look at<__media__> what is it', marked).result;
    assert.equal(first.text, wanted.text);
    assert.equal(session.text, `look at<__media__> what is it${first.text}`);
    const [fork, cut, late] = [await session.fork(), await session.fork(), await session.fork()];
    const saved = structuredClone(await session.save());
    const next = parts(' and at', { type: 'image', image: other });
    const second = await session.generate(next, options).result;
    // What the model generated is kept as it was, whatever tokens its text would have.
    const held = ({ usage }) => usage.promptTokens + usage.completionTokens - 1;
    assert.equal(second.usage.cachedTokens, held(first));
    assert.equal(await fork.generate(next, options).text(), second.text);
    const third = await session.generate(' and then', options).result;
    assert.equal(third.usage.cachedTokens, held(second));

    const restored = engine.session();
    await restored.restore(saved);
    const again = await restored.generate(next, options).result;
    assert.equal(again.text, second.text);
    assert.equal(again.usage.cachedTokens, held(first));
    const last = await restored.generate(' and then', options).result;
    assert.equal(last.text, third.text);

    // A stop string cuts a token: the text is read again, with its pictures.
    const stop = second.text.slice(1, 3);
    await cut.generate(next, { ...options, stop }).result;
    const behind = await cut.generate(' and then', options).result;
    assert.ok(behind.usage.promptTokens > first.usage.promptTokens + 2);

    // Computed again from the session's own pictures.
    await engine.setAdapters([]);
    const anew = await late.generate(next, options).result;
    assert.equal(anew.usage.cachedTokens, 0);
    assert.equal(anew.text, second.text);

    const refused = (work, code, message) => assert.rejects(work.result, { code, message });
    const sound = [{ type: 'input_audio', input_audio: {} }];
    await refused(engine.generate(sound), 'NOT_SUPPORTED', /"input_audio"/);
    await refused(session.generate(sound), 'NOT_SUPPORTED', /"input_audio"/);
    await refused(session.generate(next, marked), 'INVALID_ARGUMENT', /not in images/);
    await refused(session.generate('no mark', marked), 'INVALID_ARGUMENT', /occurs 2 times/);
    await refused(session.send('look', marked), 'INVALID_ARGUMENT', /parts of messages/);
    await refused(session.generate({}), 'INVALID_ARGUMENT', /takes a string or parts/);
    await engine.dispose();
    const blind = await Engine.load(file(family.model), { cache: 'none', threads: 1 });
    await refused(blind.session().generate(next), 'NOT_SUPPORTED', /text alone/);
    await blind.dispose();
  });

  test('chats and sessions take pictures in their messages', async () => {
    const family = families[0];
    const [entry] = casesOf(family); // in ChatML, which models without a template get
    const [image] = imagesOf(entry);
    const url = `data:image/png;base64,${image.toString('base64')}`;
    const engine = await load(family, { onProgress() {} });
    const content = (part) => [
      { type: 'text', text: 'look ' },
      part,
      { type: 'text', text: ' what is it' },
    ];
    const asked = (part) => ({ role: 'user', content: content(part) });
    const options = { temperature: 0, max_tokens: 12 };
    const wanted = await engine
      .generate(entry.prompt, { images: [image], temperature: 0, maxTokens: 12 })
      .text();
    for (const part of [
      { type: 'image_url', image_url: { url } },
      { type: 'image_url', image_url: { url, detail: 'low' } },
      { type: 'image', image: new Blob([image]) },
      { type: 'image', image },
    ]) {
      const messages = [asked(part)];
      const { choices, usage } = await engine.chat.completions.create({ messages, ...options });
      assert.equal(choices[0].message.content, wanted);
      assert.ok(usage.prompt_tokens >= entry.chunks.reduce((n, c) => n + (c.n_tokens ?? 0), 0));
      let streamed = '';
      const stream = await engine.chat.completions.create({ messages, ...options, stream: true });
      for await (const chunk of stream) streamed += chunk.choices[0]?.delta.content ?? '';
      assert.equal(streamed, wanted);
    }
    const { sluice } = await import('../../dist/ai-sdk-node.js');
    for (const data of [new Uint8Array(image), image.toString('base64'), new URL(url)]) {
      const prompt = [
        {
          role: 'user',
          content: content({ type: 'file', mediaType: 'image/png', data }),
        },
      ];
      const settings = { prompt, temperature: 0, maxOutputTokens: 12 };
      const { content: said } = await sluice(engine).doGenerate(settings);
      assert.deepEqual(said, [{ type: 'text', text: wanted }]);
    }
    const { tokens, text } = await engine.renderPrompt([
      asked({ type: 'image_url', image_url: { url } }),
    ]);
    assert.equal(text, entry.prompt);
    const pictured = Array.from(tokens).filter((token) => token >= 1 << 30).length;
    assert.equal(pictured, entry.chunks.find(({ type }) => type === 'image').n_tokens);

    const session = engine.session();
    const turn = { temperature: 0, maxTokens: 12 };
    const first = await session.send(asked({ type: 'image', image: new Blob([image]) }), turn);
    assert.equal((await first.result).text, wanted);
    const other = await session.fork();
    const saved = await session.save();
    const second = await session.send('and now', turn).result;
    assert.ok(second.usage.cachedTokens > 10, `${second.usage.cachedTokens}`);
    assert.equal(await other.send('and now', turn).text(), second.text);
    const anew = engine.session();
    await anew.restore(saved);
    const third = await anew.send('and now', turn).result;
    assert.equal(third.text, second.text);
    assert.ok(third.usage.cachedTokens > 10);
    // In text of the user, the mark is text.
    const plain = await engine.session().send('a <__media__> b', turn).result;
    assert.ok(plain.text.length >= 0);
    await assert.rejects(
      engine.chat.completions.create({
        messages: [asked({ type: 'input_audio', input_audio: {} })],
      }),
      { code: 'NOT_SUPPORTED' },
    );
    await engine.dispose();
    const blind = await Engine.load(file(family.model), { cache: 'none', threads: 1 });
    await assert.rejects(
      blind.chat.completions.create({
        messages: [asked({ type: 'image_url', image_url: { url } })],
      }),
      { code: 'NOT_SUPPORTED', message: /takes no pictures/ },
    );
    await blind.dispose();
  });

  test('what cannot be read is an error, and the next call works', async () => {
    const family = families[0];
    const [entry] = casesOf(family);
    const engine = await load(family);
    const images = imagesOf(entry);
    const refused = (prompt, options, code, message) =>
      assert.rejects(engine.generate(prompt, { maxTokens: 1, ...options }).result, {
        code,
        message,
      });
    const { prompt } = entry;
    await refused('no mark', { images }, 'INVALID_ARGUMENT', /<__media__> occurs 0 times/);
    await refused(prompt, { images: [...images, ...images] }, 'INVALID_ARGUMENT', /occurs 1 times/);
    await refused([1, 2], { images }, 'INVALID_ARGUMENT', /must be a string/);
    await refused(prompt, { images: 'x.png' }, 'INVALID_ARGUMENT', /array/);
    await refused(prompt, { images: [new Uint8Array(9)] }, 'INVALID_ARGUMENT', /not a picture/);
    await refused(prompt, { images: [images[0].subarray(0, 80)] }, 'INVALID_ARGUMENT', /PNG/);
    await refused(prompt, { images: ['http://127.0.0.1:1/x.png'] }, 'IO', /cannot be read/);
    const gif = readFileSync(inRoot('tests', 'data', 'pictures', 'frame.gif'));
    await refused(prompt, { images: [gif.subarray(0, 60)] }, 'INVALID_ARGUMENT', /GIF/);
    const giant = { width: 9000, height: 9000, data: new Uint8Array(0) };
    await refused(prompt, { images: [giant] }, 'INVALID_ARGUMENT', /pixels/);
    await assert.rejects(engine.imageCost(0, 5), { code: 'INVALID_ARGUMENT' });
    const abort = new AbortController();
    const cancelled = engine.generate(prompt, { images, signal: abort.signal });
    setTimeout(() => abort.abort(), 3);
    await assert.rejects(cancelled.result, { name: 'AbortError' });
    const answer = engine.generate(prompt, { ...greedy(entry), images });
    assert.deepEqual(await tokensOf(answer), entry.greedy);
    await engine.dispose();

    const blind = await Engine.load(file(family.model), { cache: 'none', threads: 1 });
    assert.deepEqual(blind.info.modalities, ['text']);
    await assert.rejects(blind.generate(prompt, { images }).result, { code: 'NOT_SUPPORTED' });
    await assert.rejects(blind.imageCost(10, 10), { code: 'NOT_SUPPORTED' });
    await blind.dispose();
    const other = families.find(({ n_embd: width }) => width % family.n_embd !== 0);
    await assert.rejects(load(family, { projector: file(other.mmproj) }), { code: 'BAD_SHAPE' });
    await assert.rejects(load(family, { projector: file(family.model) }), ({ code }) =>
      /^(UNSUPPORTED_ARCHITECTURE|NOT_SUPPORTED|BAD_HEADER)$/.test(code),
    );
    await assert.rejects(load(family, { device: 'webgpu' }), { code: 'NOT_SUPPORTED' });
    await assert.rejects(load(family, { projector: file('none.gguf') }), { code: 'NOT_FOUND' });
  });

  test('in Chromium, isolated or not, every format is read', async () => {
    const browser = await launch();
    const files = await serve(
      [
        ['/vision/', vision],
        ['/pictures/', inRoot('tests', 'data', 'pictures')],
      ],
      crossOrigin,
    );
    try {
      const [family] = families;
      const [entry] = casesOf(family);
      const shown = ['element', 'bitmap', 'canvas', 'pixels', 'blob', 'file'];
      for (const isolation of [true, false])
        await inTab(browser, inRoot('dist'), { isolation }, async ({ page }) => {
          const { tokens, left } = await page.evaluate(
            async ({ url, family, entry, names, lossless, options }) => {
              const engine = await window.Engine.load(`${url}/vision/${family.model}`, {
                projector: `${url}/vision/${family.mmproj}`,
                contextLength: 1024,
              });
              const images = entry.media.map((name) => `${url}/vision/${name}`);
              const tokens = [];
              for await (const { token } of engine.generate(entry.prompt, { ...options, images }))
                tokens.push(token);
              const left = {};
              const cached = async (image) => {
                const prompt = 'look <__media__> here';
                const { usage } = await engine.generate(prompt, { images: [image], maxTokens: 1 })
                  .result;
                return usage.promptTokens - usage.cachedTokens;
              };
              for (const name of names) left[name] = await cached(`${url}/pictures/${name}`);
              // Lossless files show the same pixels, and so does what the page has decoded.
              await cached(`${url}/pictures/rgb.png`);
              for (const name of lossless) left[name] = await cached(`${url}/pictures/${name}`);
              const image = new Image();
              image.crossOrigin = 'anonymous';
              image.src = `${url}/pictures/rgb.png`;
              await image.decode();
              left.element = await cached(image);
              left.bitmap = await cached(await createImageBitmap(image));
              const canvas = document.createElement('canvas');
              [canvas.width, canvas.height] = [image.width, image.height];
              const context = canvas.getContext('2d');
              context.drawImage(image, 0, 0);
              left.canvas = await cached(canvas);
              left.pixels = await cached(context.getImageData(0, 0, image.width, image.height));
              const blob = await (await fetch(image.src)).blob();
              left.blob = await cached(URL.createObjectURL(blob));
              left.file = await cached(new File([blob], 'rgb.png'));
              await engine.dispose();
              return { tokens, left };
            },
            {
              url: files.url,
              family,
              entry,
              names: Object.keys(kFiles),
              lossless: ['rgb-interlaced.png', 'rgb.bmp', 'top-down.bmp', 'lossless.webp'],
              options: greedy(entry),
            },
          );
          assert.deepEqual(tokens, entry.greedy);
          assert.deepEqual(Object.keys(left).sort(), [...Object.keys(kFiles), ...shown].sort());
          for (const name of ['rgb-interlaced.png', 'rgb.bmp', 'lossless.webp', ...shown])
            assert.equal(left[name], 1, name);
          assert.ok(left['rgb.jpg'] > 1);
        });
    } finally {
      await browser.close();
      await files.close();
    }
  });
});
