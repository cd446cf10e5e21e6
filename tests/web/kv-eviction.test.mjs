// KV cache eviction in Node and in Chromium: kv-eviction.mjs has the checks, and the output must be
// that of the native program.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import { longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { contextLength, forgettingSession, story } from './kv-eviction.mjs';
import { root } from './helpers.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
const model = ['examples', 'models', 'sluice-tales-Q8_0.gguf'];
const cases = [
  ['heavy-hitter', 'f16', 128],
  ['heavy-hitter', 'q8_0', 128],
  ['heavy-hitter', 'q4_0', 192],
  ['window', 'f16', 128],
];

let browser;
before(async () => {
  if (!existsSync(inRoot('build', 'native', 'sluice')))
    cmakeBuild('native', { targets: ['sluice'] });
  browser = await launch();
});
after(() => browser?.close());

function nativeAnswer(kvPolicy, kvType, kvCapacity) {
  const options = [
    '--kv-policy',
    kvPolicy,
    '--kv-type',
    kvType,
    '--kv-capacity',
    kvCapacity,
    '--ctx',
    contextLength,
  ];
  const args = [
    'run',
    '--raw',
    join(root, ...model),
    '-p',
    story,
    '-n',
    16,
    '--temp',
    0,
    '--ignore-eos',
    '--json',
    ...options,
  ];
  return JSON.parse(
    execFileSync(inRoot('build', 'native', 'sluice'), args.map(String), { encoding: 'utf8' }),
  ).text;
}

for (const [kvPolicy, kvType, kvCapacity] of cases) {
  test(`${kvPolicy}, ${kvType}`, { skip: /q8_0|q4_0/.test(kvType) && longOnly }, async (t) => {
    const options = { kvPolicy, kvType, kvCapacity };
    const expected = nativeAnswer(kvPolicy, kvType, kvCapacity);
    const inNode = await forgettingSession({ Engine, source: join(root, ...model), ...options });
    assert.equal(inNode.said, expected);
    const inPage = await inTab(browser, join(root, 'dist'), { mounts: testMounts }, ({ page }) =>
      page.evaluate(
        async (given) => {
          const { forgettingSession } = await import('/tests/kv-eviction.mjs');
          return forgettingSession({ Engine, ...given });
        },
        { source: `/data/${model.join('/')}`, ...options },
      ),
    );
    assert.deepEqual(inPage, inNode);
    t.diagnostic(`${inPage.tokens} tokens, ${kvCapacity} positions: "${inPage.said}"`);
  });
}

test('unsupported combinations are errors that name them', async () => {
  for (const [kvType, kvCapacity, words] of [
    ['q2', 256, /single keys/],
    ['q4_0', 128, /192 to/],
    ['f16', 64, /128 to/],
  ]) {
    const load = Engine.load(join(root, ...model), {
      kvPolicy: 'heavy-hitter',
      kvType,
      kvCapacity,
      contextLength,
    });
    await assert.rejects(
      load,
      (error) => error.code === 'INVALID_ARGUMENT' && words.test(error.message),
    );
  }
});
