// The suites by name, in the order in which they run. Each resolves to its counts. builds.mjs has
// built what it needs by then.
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { bin, inRoot } from '../../web/scripts/lib.mjs';
import { all } from '../extent.mjs';
import { threaded } from './builds.mjs';
import { add, none } from './counts.mjs';
import {
  fuzzRegressions,
  gtest,
  gtestAll,
  shardLabels,
  shards,
  sumOf,
  unmatched,
} from './gtest.mjs';
import { nodeTests } from './node.mjs';
import { minute, must, results } from './processes.mjs';

/** Models for the budget tests under emulation, where everything is slow. */
const streamed = [
  ...['llama_gqa', 'gemma2', 'lfm2', 'qwen3moe'],
  ...(all ? ['phi3_longrope_partial', 'gpt2'] : []),
];

/** NEON on quantization types and model families; the short suite takes only some families. */
const emulatedModels = [
  `Kernels/Quantized.${all ? '*' : 'Error*'}/neon`,
  ...(all ? ['Families/*.LogitsOf*_neon', 'Families/*.Greedy*_neon'] : []),
  ...streamed.flatMap((model) => [
    `Families/*.Budget*/${model}_neon`,
    `Families/*.LogitsOf*/${model}_neon`,
  ]),
].join(':');

/**
 * What the short suite does not run under the address sanitizer: statistics, comparisons with a
 * definition and large inputs. They take minutes there, and the plain build runs them.
 */
const tooSlowForAsan = [
  'ByteBpe.MergesLikeTheDefinition',
  'ChatTemplate.HostileTemplatesAreStopped', // the fuzzer's corpus has templates
  'DraftPolicy.UnpredictableTextLosesLessThanThreePercent',
  'DraftPolicy.ComesNearTheBestConstantLength',
  'Gptq.LowersTheErrorOfOutputs',
  'GptqExperts.LoseLessWithTheirOwnInputs',
  'GrammarAutomata.HostileOnesAreBounded',
  'GrammarFixtures.JsonSchemaSuite', // the fuzzer's corpus has schemas
  'GrammarMask.EqualsATestOfEveryToken',
  'HfTokenizer.*VocabularyFromTokenizerJson',
  'HttpCacheTest.OtherResponsesCostNoCachedBytes',
  'HttpCacheTest.SoakOfFaultsAndFlipsLeavesACompleteStore', // HttpCacheRandom does more
  'JinjaNumbers.FixedAndExponentTextsAreThoseOfPrintf',
  'LiteralSpans.AMillionMarksTakeLinearTime',
  'MemoryPlan.AutomaticKvTypesNeverRefuseALargerBudget',
  'Pathological.*', // linear time; the fuzzer's corpus has odd texts
  'Plan.HoldsForRandomModelsAndBudgets',
  'QsfFile.LayersOfOneBlockAreDecodedInPieces',
  'QsfFile.ManyThreadsReadTheSame', // under the thread sanitizer
  'Sampler.DrawsFromTheExactDistribution',
  'Sampler.TopPKeepsManyTokens',
  'SchemaGrammar.EveryPrefixCanBecomeAMatch',
  'SchemaKeywords.FormatsAreEnforcedOrErrors', // the fuzzer's corpus has schemas
  'SentencePiece.MergesLikeTheDefinition',
  'Sequence.ARewindLeavesOnlyRightEntriesVisible',
  'Sequence.ASavedStateIsRestoredIntoAnotherShape',
  'Unigram.LongRunsFinish',
  'VisionEncoder.EveryCaseHasTheReferencesEmbeddings',
  'VisionFixtures.EveryCaseHasTheReferencesInputsTokensAndPositions',
  'VisionPlan.PreprocessMakesWhatWasPlanned',
  'VisionProjectorFiles.AMissingTensorIsNamedOrOptional',
  'VisionProjectorFiles.AWrongShapeIsAnError', // the fuzzer's corpus has shapes
  // Of seven files, a model of two quantization types.
  ...['arch_gpt2', 'families_llama_biases', 'quant_llama_Q4_0', 'quant_llama_Q8_0'],
  ...['quant_llama_TQ1_0'],
].map((name) => (name.includes('.') ? name : `Types/BadWeights.*/${name}_gguf`));

/**
 * The quantizers' search is the same on every instruction set, and attention has biases elsewhere. The
 * others are properties of code that all instruction sets share; cheaper tests see NEON's part of it.
 */
const tooSlowForQemu = [
  'Attention.Alibi',
  'Attention.RandomRanges',
  'Attention.RowsAloneGiveTheSameBits',
  'Finite.EveryScaleOfIq1M',
  'KvAttention.ValuesInKeys',
  'KvQuantize.RowsAreNearOptimal',
  'Matmul.ManyTokensOfDecodedTypesAreTheSame',
];

/** A filter for all tests but these, in the short suite. */
const without = (names) => (all ? undefined : `-${names.join(':')}`);

export const suites = {
  async format() {
    const files = (await must('git', ['ls-files', '*.h', '*.cpp']))
      .trim()
      .split('\n')
      .filter(existsSync);
    await must('clang-format', ['--dry-run', '-Werror', ...files]);
    const cache = (name) => ['--cache', '--cache-location', inRoot('build', 'lint', name)];
    await must(bin('eslint'), ['--max-warnings=0', ...cache('eslint.json'), '.']);
    await must(bin('prettier'), ['--check', ...cache('prettier.json'), '.']);
    return { ...none(), passed: 3 };
  },
  words: () => nodeTests('words'),
  layering: () => nodeTests('layering'),
  faults: () => nodeTests('faults'),
  /** All TypeScript as one program: three would read the package's files three times. */
  async types() {
    const cache = ['--incremental', '--tsBuildInfoFile', inRoot('build', 'lint', 'types.json')];
    await must(bin('tsc'), ['--noEmit', ...cache, '-p', 'tests/tsconfig.json']);
    return { ...none(), passed: 1 };
  },
  async unit() {
    const label = 'native-unit_tests';
    const count = await sumOf(shards(inRoot('build', 'native', 'tests', 'unit_tests'), { label }));
    return add(count, unmatched(shardLabels(label)));
  },
  package: () => nodeTests('package'),
  web: () => nodeTests('web'),
  serve: () => nodeTests('serve'),
  /** Client libraries from npm; what works is part of the output. */
  async clients() {
    const tables = ['native', 'node'].map((kind) => join(results, `clients-${kind}.txt`));
    for (const file of tables) rmSync(file, { force: true });
    const count = await nodeTests('serve/clients');
    const written = tables.filter(existsSync).map((file) => readFileSync(file, 'utf8'));
    return { ...count, details: written.join('') + (count.details ?? '') };
  },
  async native() {
    const count = await gtestAll('native', { filters: { unit_tests: null } });
    if (all) add(count, await fuzzRegressions('native'));
    add(count, await nodeTests('tools'));
    return add(count, await nodeTests('api')); // the tree that `cmake --install` writes
  },
  async asan() {
    const env = {
      ASAN_OPTIONS: 'detect_leaks=1',
      UBSAN_OPTIONS: 'print_stacktrace=1',
    };
    return add(
      await gtestAll('asan', { env, filter: without(tooSlowForAsan) }),
      await fuzzRegressions('asan'),
    );
  },
  tsan: () =>
    gtestAll('tsan', {
      filter: threaded.map((word) => `*${word}*`).join(':'),
      env: { TSAN_OPTIONS: 'halt_on_error=1' },
    }),
  async aarch64() {
    const filters = { kernels_tests: without(tooSlowForQemu), conformance_tests: emulatedModels };
    const count = await sumOf(
      Object.entries(filters).flatMap(([name, filter]) =>
        shards(inRoot('build', 'aarch64', 'tests', name), {
          wrapper: ['qemu-aarch64-static'],
          env: all ? {} : { SLUICE_WITHOUT_TABLE: 'scalar' },
          label: `aarch64-${name}`,
          filter,
        }),
      ),
    );
    for (const [name, filter] of Object.entries(filters))
      add(count, unmatched(shardLabels(`aarch64-${name}`), filter));
    return count;
  },
  async wasm() {
    const { countLines, runInBrowser, runInNode } = await import('../wasm/gtest.mjs');
    const { launchChromium, launchFirefox, launchWebKit } = await import('../web/drivers.mjs');
    const name = 'kernels_tests';
    return sumOf(
      [
        () => runInNode(name, 'simd128'),
        () => runInBrowser(launchChromium, name, 'relaxed'),
        ...(all
          ? [
              () => runInNode(name, 'strict'),
              () => runInBrowser(launchChromium, name, 'simd128'),
              () => runInBrowser(launchWebKit, name, 'simd128'),
              () => runInBrowser(launchFirefox, name, 'relaxed'),
            ]
          : []),
      ].map((run) => async () => countLines(await run())),
    );
  },
  /** The program and library that people download. */
  release: () => nodeTests('release'),
  async windows() {
    const { wine, wineEnvironment } = await import('../windows/wine.mjs');
    const env = wineEnvironment();
    const timeoutMs = 6 * minute;
    // Creates the tests' own Wine prefix.
    await must(wine(), ['cmd', '/c', 'exit'], { env, timeoutMs });
    // The preset compiles only the tests that depend on the system. Model families run on one
    // instruction set, some of them streamed.
    const filters = {
      unit_tests: '*',
      kernels_tests: '*',
      api_tests: '*',
      conformance_tests: [
        '*FamilyTest.LogitsOf*_avx2',
        '*FamilyTest.Greedy*_avx2',
        ...['llama_gqa', 'gemma2', 'lfm2', 'qwen3moe'].flatMap((model) => [
          `*FamilyTest.Budget*/${model}_avx2`,
          `*BatchTest.*_${model}`,
          `*RandomOperationsTest.*/${model}_*`,
        ]),
        '*DirectReads*',
        'GenerationTest.*',
        '*Hf*',
        '*PromptCache*',
        'SampleModel.*',
        'StoriesTest.Checkpoints*',
      ].join(':'),
    };
    const total = await sumOf(
      Object.entries(filters).map(
        ([name, filter]) =>
          () =>
            gtest(inRoot('build', 'windows-tests', 'tests', `${name}.exe`), {
              wrapper: [wine()],
              filter,
              env,
              timeoutMs,
              label: `windows-${name}`,
            }),
      ),
    );
    for (const [name, filter] of Object.entries(filters))
      add(total, unmatched([`windows-${name}`], filter));
    return add(total, await nodeTests('windows', { timeoutMs }));
  },
};

/** Suites that only `npm run test:all` runs. */
export const longSuites = ['clients', 'release', 'windows'];
