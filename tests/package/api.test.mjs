// The API reference: every public name has a comment, every call has an example that satisfies the
// compiler, and every error code is in the table. Needs dist/ (npm run build).
import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { errorCodes, warningCodes } from '../../web/scripts/errors.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';
import {
  exampleContext,
  examples,
  properties,
  reference,
  undocumented,
  withoutExample,
} from '../../web/scripts/reference.mjs';
import { consumerFolder, typecheck, withOtherPackages } from './typecheck.mjs';

test('every public name and member is documented, and the reference in the package has them', () => {
  assert.deepEqual(undocumented(), []);
  const text = readFileSync(inRoot('dist', 'docs', 'api.md'), 'utf8');
  assert.equal(text, reference());
  for (const name of [
    'Engine.load',
    'Engine.generate',
    'Session.fork',
    'ErrorCode',
    'sluice',
    'findHuggingFaceFile',
  ]) {
    assert.match(text, new RegExp(`^#+ ${name}$`, 'm'), name);
  }
});

test('every public function, method and constructor has an example', () => {
  assert.deepEqual(withoutExample(), []);
  const text = reference();
  const paths = new Set(examples().map(({ path }) => path));
  for (const path of [
    'sluice-llm: Engine.load',
    'sluice-llm: ChatCompletions.create',
    'sluice-llm: SluiceError.constructor',
    'sluice-llm: StoreManager.evictOldest',
    'sluice-llm/huggingface: huggingFaceUrl',
    'sluice-llm/ai-sdk: sluice',
    'sluice-llm/sessions: SavedSessions.open',
    'error codes',
  ]) {
    assert.ok(paths.has(path), path);
  }
  for (const { path, code } of examples())
    assert.ok(text.includes(`\`\`\`ts\n${code}\n\`\`\``), path);
});

test('every example satisfies the compiler', () => {
  const sources = {
    'context.d.ts': exampleContext,
    // The AI SDK is not installed; only what these functions take is checked.
    'ai.d.ts': `
      declare module 'ai' {
        import type {
          EmbeddingModelV3, EmbeddingModelV4, LanguageModelV3, LanguageModelV4, RerankingModelV3,
          RerankingModelV4,
        } from '@ai-sdk/provider';
        export function streamText(options: { model: LanguageModelV3 | LanguageModelV4; prompt: string }):
          { textStream: AsyncIterable<string> };
        export function embedMany(options: { model: EmbeddingModelV3 | EmbeddingModelV4; values: string[] }):
          Promise<{ embeddings: number[][] }>;
        export function rerank(options: { model: RerankingModelV3 | RerankingModelV4; documents: string[]; query: string }):
          Promise<{ ranking: { originalIndex: number; score: number }[] }>;
      }`,
    'wrong.ts': `
      // @ts-expect-error: the names of the context have types
      engine.generate('Once', { max_tokens: 1 });
      // @ts-expect-error
      session.send({ role: 'nobody' });
      // @ts-expect-error
      await saved.save(model);`,
  };
  for (const [i, { path, code }] of examples().entries())
    sources[`${i}-${path.replace(/\W+/g, '-')}.ts`] = code;
  assert.ok(Object.keys(sources).length > 50);
  const folder = consumerFolder('api');
  try {
    assert.equal(typecheck(folder, sources, withOtherPackages), '');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('memory(), stats(), info and results have exactly the properties of their types', async () => {
  const { Engine } = await import(inRoot('dist', 'node.js'));
  const model = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
  const options = { contextLength: 128, threads: 1, draft: 'ngram' };
  const plan = properties('MemoryPlan');
  const report = plan.filter(({ name }) => name !== 'layerUnits');
  const types = {
    MemoryPlan: plan,
    MemoryReport: [...report, ...properties('MemoryReport')],
    ...Object.fromEntries(
      ['EngineStats', 'ModelInfo', 'SpeedEstimate', 'GenerationResult', 'SavedState'].map(
        (name) => [name, properties(name)],
      ),
    ),
  };
  const check = (type, value) => {
    const names = types[type].map(({ name }) => name);
    const required = types[type].filter(({ optional }) => !optional);
    assert.deepEqual(
      Object.keys(value).filter((name) => !names.includes(name)),
      [],
      `${type} lacks them`,
    );
    for (const { name } of required) assert.ok(name in value, `${type}: there is no ${name}`);
  };
  const info = await Engine.inspect(model, options);
  check('ModelInfo', info);
  check('SpeedEstimate', info.speed);
  const engine = await Engine.load(model, options);
  try {
    check('ModelInfo', engine.info);
    check('GenerationResult', await engine.generate('Once', { maxTokens: 2 }).result);
    check('MemoryPlan', engine.info.plan);
    check('MemoryReport', engine.memory());
    check('EngineStats', engine.stats());
    check('SavedState', await engine.saveState());
  } finally {
    await engine.dispose();
  }
});

test('the reference ends with the table of error codes', () => {
  const text = reference();
  const table = text.slice(text.indexOf('\n## Error codes\n'));
  assert.ok(errorCodes().length > 30);
  for (const { code, meaning, fix } of [...errorCodes(), ...warningCodes()])
    assert.ok(table.includes(`| \`${code}\` | ${meaning} | ${fix} |`), code);
});
