// Random sequences of public calls through the package, in Node and in Chromium;
// random-operations.mjs has the operations and checks. The native suite has its own.
//   SLUICE_RANDOM_SEED=n SLUICE_RANDOM_OPERATIONS=n node --test tests/web/random-operations.test.mjs
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { extent, longOnly } from '../extent.mjs';
import { inTab, launch, testMounts } from './chromium.mjs';
import { root } from './helpers.mjs';
import { foreignState, randomOperations } from './random-operations.mjs';

const { Engine } = await import(pathToFileURL(join(root, 'dist', 'node.js')).href);
const seed = Number(process.env.SLUICE_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** Operations of all models together; `otherwise` is the default. */
const total = (otherwise) => Number(process.env.SLUICE_RANDOM_OPERATIONS ?? otherwise);

const families = (name) => join(root, 'tests', 'data', 'families', `${name}.gguf`);
const arch = (name) => join(root, 'tests', 'data', 'arch', `${name}.gguf`);
const fixtures = join(root, '..', 'shared', 'fixtures', 'lora');
const adapter = (name) => join(fixtures, `${name}.lora.gguf`);
const sample = (type) => join(root, 'examples', 'models', `sluice-tales-${type}.gguf`);
/** The adapters of a model, if the fixtures have some, and one of another model. */
function adaptersOf(model) {
  const adapterFiles = ['a', 'b'].map((which) => adapter(`${model}.${which}`)).filter(existsSync);
  const foreignAdapter = adapter(model === 'qwen3' ? 'llama.a' : 'qwen3.a');
  return { adapterFiles, foreignAdapter };
}
// [file, share of the operations, threads, parallel sequences, own chat template, draft model]
const cases = [
  [families('lfm2'), 3, 1],
  [families('lfm2'), 3, 2, 3],
  [sample('Q4_0'), 3, 2, 4, true],
  [arch('llama-gqa'), 1, 2],
  [arch('qwen3'), 1, 1, 2],
  [arch('gemma2'), 1, 2],
  [families('mistral-window'), 1, 1, 5],
  [families('gemma3-scaled'), 1, 2],
  [families('qwen3moe'), 1, 1, 3],
  [families('phi3-longrope-short'), 1, 2],
  [sample('F16'), 3, 2, 3, true, sample('Q4_0')],
  [arch('llama-gqa'), 1, 1, 1, false, arch('llama-gqa')],
].map(([path, share, threads, parallel = 1, template = false, draft], i) => ({
  path,
  share,
  threads,
  parallel,
  template,
  draft,
  name: basename(path, '.gguf'),
  ...adaptersOf(path === arch('llama-gqa') ? 'llama' : path === arch('qwen3') ? 'qwen3' : ''),
  contextLength: [700, 300, 1100][i % 3],
}));
const shares = cases.reduce((sum, { share }) => sum + share, 0);

/**
 * Defines a test per model; `run` runs the operations. The short suite has only those named in
 * `few`.
 */
function sequences(count, few, run) {
  for (const [i, { share, threads, ...rest }] of cases.entries()) {
    const name = `${rest.name}${rest.parallel > 1 ? `, ${rest.parallel} parallel` : ''}${rest.draft ? ', with draft model' : ''}`;
    const settings = {
      ...rest,
      threads,
      seed: (seed + i) >>> 0,
      count: Math.ceil((count * share) / shares),
    };
    test(
      `${name}, ${threads} thread(s), SLUICE_RANDOM_SEED=${seed}`,
      { skip: !few.includes(name) && longOnly },
      async (t) => {
        const done = await run(settings).catch((error) => {
          throw new Error(
            `SLUICE_RANDOM_SEED=${seed}, ${name}, ${threads} thread(s), context ${settings.contextLength}: ${error.message}`,
            { cause: error },
          );
        });
        t.diagnostic(
          Object.entries(done)
            .map(([kind, n]) => `${kind} ${n}`)
            .join(', '),
        );
      },
    );
  }
}

/** A model other than the one under test. */
const other = (path) => (path === cases[0].path ? cases[3].path : cases[0].path);

describe('in Node', () => {
  const foreign = new Map();
  sequences(
    total(extent(120, 330)),
    [
      'lfm2, 3 parallel',
      'sluice-tales-Q4_0, 4 parallel',
      'qwen3, 2 parallel',
      'gemma2',
      'sluice-tales-F16, 3 parallel, with draft model',
    ],
    async ({ path, ...settings }) => {
      if (!foreign.has(other(path)))
        foreign.set(other(path), await foreignState(Engine, other(path)));
      return randomOperations({
        Engine,
        source: path,
        foreign: foreign.get(other(path)),
        ...settings,
      });
    },
  );
});

describe('in Chromium', () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser?.close());
  const mounts = [...testMounts, ['/lora/', fixtures]];
  const address = (path) =>
    path.replace(fixtures, '/lora').replace(root, '/data/').replaceAll('\\', '/');

  sequences(
    total(extent(110, 170)),
    ['sluice-tales-F16, 3 parallel, with draft model'],
    ({ path, ...settings }) =>
      inTab(browser, join(root, 'dist'), { mounts }, ({ page }) =>
        page.evaluate(
          async ({ source, stranger, settings }) => {
            const { foreignState, randomOperations } = await import('/tests/random-operations.mjs');
            return randomOperations({
              Engine,
              source,
              foreign: await foreignState(Engine, stranger),
              ...settings,
            });
          },
          {
            source: address(path),
            stranger: address(other(path)),
            settings: {
              ...settings,
              adapterFiles: settings.adapterFiles.map(address),
              foreignAdapter: address(settings.foreignAdapter),
              ...(settings.draft && { draft: address(settings.draft) }),
            },
          },
        ),
      ),
  );
});
