// npm run bench:grammar: cost of structured output. Part masks (native) and part tab (browser, in
// turns with xgrammar) compute a token mask at every position of texts that match eight schemas,
// for three vocabularies. Part decode compares native decoding with and without a schema.
//   npm run bench:grammar -- [--part masks|tab|decode]… [--vocabulary 0|1|2]… [--rounds 10] [--model SHAPE:TYPE|FILE]
//                            [-n 64] [--turns 5] [--threads 2] [--ours-only] [--no-build] [--json]
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cmakeBuild, finishBinary } from '../../web/scripts/wasm.mjs';
import { capture, inRoot } from '../../web/scripts/lib.mjs';
import { buildProgram } from '../wasm/gtest.mjs';
import { Bench } from './browser.mjs';
import { installPeer, jsonOf, modelFile, modelLabel, table } from './lib.mjs';
import { cases, forced, unforced } from './schemas.mjs';
import { byteLevelName, vocabularies } from './vocabularies.mjs';

const { values } = parseArgs({
  options: {
    part: { type: 'string', multiple: true, default: ['masks', 'tab', 'decode'] },
    vocabulary: { type: 'string', multiple: true, default: ['0', '1', '2'] },
    rounds: { type: 'string', default: '10' },
    turns: { type: 'string', default: '5' },
    model: { type: 'string', default: 'tinyllama-1.1b:q4_0' },
    generate: { type: 'string', short: 'n', default: '64' },
    threads: { type: 'string', default: '2' },
    'ours-only': { type: 'boolean' },
    'no-build': { type: 'boolean' },
    json: { type: 'boolean' },
  },
});
const rounds = Number(values.rounds);

/** Token ids of a text by greedy longest match. */
function idsOf(text, tokens) {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const bytes = Buffer.from(text).toString('latin1');
  const out = [];
  for (let at = 0; at < bytes.length;) {
    let size = Math.min(24, bytes.length - at);
    while (size > 0 && !ids.has(bytes.slice(at, at + size))) size--;
    if (size === 0) throw new Error(`no token begins ${bytes.slice(at)}`);
    out.push(ids.get(bytes.slice(at, at + size)));
    at += size;
  }
  return out;
}

function vocabularyFile(tokens) {
  const parts = tokens.flatMap((token) => [
    Buffer.from([token.length & 255, token.length >> 8]),
    Buffer.from(token, 'latin1'),
  ]);
  return Buffer.concat(parts);
}

/**
 * Statistics over all cases in milliseconds. At each position the best round counts, so that a busy
 * machine does not distort them.
 */
function summed(list, cases) {
  const result = {};
  for (const name of ['compile', 'mask', 'step']) {
    const best = list
      .flatMap(({ [name]: times }, which) => {
        const places = Math.min(times.length, name === 'compile' ? 1 : cases[which].ids.length);
        return Array.from(
          { length: places },
          (_, i) => Math.min(...times.filter((_, at) => at % places === i)) / 1000,
        );
      })
      .sort((a, b) => a - b);
    const at = (share) => best[Math.floor(share * (best.length - 1))];
    result[name] = {
      mean: best.reduce((a, b) => a + b, 0) / best.length,
      p50: at(0.5),
      p99: at(0.99),
      max: at(1),
    };
  }
  return result;
}

// --- in a worker of the page (sent as text) ------------------------------------------------------

async function measureOurs({ origin, rounds, files }) {
  importScripts(`${origin}/program/grammar_bench.js`);
  const lines = [];
  const memory = new WebAssembly.Memory({ initial: 1024, maximum: 16384, shared: true });
  const wasm = await WebAssembly.compileStreaming(
    fetch(`${origin}/program/grammar_bench.simd128.wasm`),
  );
  const program = await createProgram({
    wasmMemory: memory,
    print: (line) => lines.push(line),
    printErr: (line) => lines.push(`! ${line}`),
    instantiateWasm(imports, receive) {
      WebAssembly.instantiate(wasm, imports).then((instance) => receive(instance, wasm));
      return {};
    },
  });
  for (const name of files)
    program.FS.writeFile(
      `/${name}`,
      new Uint8Array(await (await fetch(`${origin}/input/${name}`)).arrayBuffer()),
    );
  try {
    program.callMain(['/vocabulary', '/cases', `${rounds}`]);
  } catch (error) {
    if (error?.status !== 0) throw error;
  }
  const wrong = lines.filter((line) => line.startsWith('!'));
  if (wrong.length) throw new Error(wrong.join('\n'));
  return lines.map((line) => JSON.parse(line));
}

async function measurePeer({ origin, rounds }) {
  importScripts(`${origin}/peer/index.js`);
  const { TokenizerInfo, GrammarCompiler, GrammarMatcher } = self.xgrammar;
  const { names, cases } = await (await fetch(`${origin}/input/peer.json`)).json();
  const info = await TokenizerInfo.createTokenizerInfo(names, 'byte_level', false, names.length, [
    names.length - 1,
  ]);
  const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
  const micro = () => performance.now() * 1000;
  // At most one second for all rounds together.
  const until = (most, begun) => (done) => done < most && (done === 0 || micro() - begun < 1e6);
  const out = [];
  for (const { schema, ids } of cases) {
    const times = { compile: [], mask: [], step: [], refused: false };
    // Compact, as ours: an indent of -1 means none (the default is 2). Not strict: properties that
    // the schema does not forbid are allowed.
    const compile = () => compiler.compileJSONSchema(schema, false, -1, [',', ':'], false);
    let grammar;
    for (let round = 0, more = until(rounds, micro()); more(round); round++) {
      grammar?.dispose();
      const start = micro();
      grammar = await compile();
      times.compile.push(micro() - start);
    }
    for (let round = 0, more = until(rounds, micro()); more(round) && !times.refused; round++) {
      const matcher = await GrammarMatcher.createGrammarMatcher(grammar);
      for (const id of ids) {
        let start = micro();
        const mask = await matcher.getNextTokenBitmask();
        times.mask.push(micro() - start);
        start = micro();
        const taken = matcher.acceptToken(id);
        times.step.push(micro() - start);
        times.refused = !taken || !((mask[id >> 5] >>> (id & 31)) & 1);
        if (times.refused) break; // the times so far still count
      }
      matcher.dispose();
    }
    grammar.dispose();
    out.push(times);
  }
  return out;
}

/** In the page: runs each function in a worker of its own, one after the other. */
async function inWorkers({ works, args }) {
  const results = [];
  for (const work of works) {
    const code = `onmessage = ({ data }) => (${work})(data).then((result) => postMessage({ result }), (error) => postMessage({ error: String(error?.stack ?? error) }));`;
    const worker = new Worker(URL.createObjectURL(new Blob([code])));
    const { result, error } = await new Promise((done) => {
      worker.onmessage = ({ data }) => done(data);
      worker.onerror = (event) => done({ error: event.message });
      worker.postMessage({ origin: location.origin, ...args });
    });
    worker.terminate();
    if (error) throw new Error(error);
    results.push(result);
  }
  return results;
}

// --- in Node -------------------------------------------------------------------------------------

async function costs(folder, { name, tokens }) {
  const list = cases.map(({ schema, text }) => ({
    schema: JSON.stringify(schema),
    ids: idsOf(text, tokens),
  }));
  writeFileSync(join(folder, 'vocabulary'), vocabularyFile(tokens));
  writeFileSync(
    join(folder, 'cases'),
    list.map(({ schema, ids }) => `${schema}\n${ids.join(' ')}\n`).join(''),
  );
  const row = {
    vocabulary: `${tokens.length} (${name})`,
    places: list.reduce((n, { ids }) => n + ids.length, 0),
  };
  if (values.part.includes('masks')) {
    const program = inRoot('build', 'native', 'tests', 'bench', 'grammar_bench');
    const { code, output } = await capture(program, [
      join(folder, 'vocabulary'),
      join(folder, 'cases'),
      values.rounds,
    ]);
    if (code !== 0) throw new Error(output);
    row.native = summed(
      output
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
      list,
    );
  }
  if (values.part.includes('tab')) {
    writeFileSync(
      join(folder, 'peer.json'),
      JSON.stringify({
        names: tokens.map((token, i) => byteLevelName(token) || `<${i}>`),
        cases: list,
      }),
    );
    const bench = await Bench.open([
      ['/program/', inRoot('build', 'wasm', 'tests', 'bench')],
      ['/input/', folder],
      [
        '/peer/',
        inRoot('tests', 'bench', 'baselines', 'node_modules', '@mlc-ai', 'web-xgrammar', 'lib'),
      ],
    ]);
    const works = [measureOurs, ...(values['ours-only'] ? [] : [measurePeer])].map(String);
    const { result } = await bench.run(inWorkers, {
      works,
      args: { rounds, files: ['vocabulary', 'cases'] },
    });
    await bench.close();
    row.tab = summed(result[0], list);
    if (result[1]) {
      row.peer = summed(result[1], list);
      row.refused = result[1].filter(({ refused }) => refused).length;
      if (row.refused)
        console.error(
          `  xgrammar refuses ${row.refused} of ${cases.length} texts that match their schemas`,
        );
    }
  }
  return row;
}

function printCosts(rows) {
  const places = ['native', 'tab', 'peer'];
  const said = { native: 'native', tab: 'Chromium', peer: 'xgrammar, Chromium' };
  const cells = (row, place) => {
    const { compile, mask, step } = row[place];
    return [
      row.vocabulary,
      said[place],
      ...[
        compile.p50,
        compile.max,
        mask.mean,
        mask.p50,
        mask.p99,
        mask.max,
        step.mean,
        step.p99,
      ].map((ms) => ms.toFixed(3)),
    ];
  };
  console.log('\nmilliseconds; a mask at every position');
  console.log(
    table([
      [
        'vocabulary',
        'where',
        'compile',
        'max',
        'mask mean',
        'p50',
        'p99',
        'max',
        'step mean',
        'p99',
      ],
      ...rows.flatMap((row) =>
        places.filter((place) => row[place]).map((place) => cells(row, place)),
      ),
    ]),
  );
}

/**
 * Tokens per second of one model without a schema and with two, in turns; each round starts with
 * another one. The best round counts.
 */
async function decodes(folder) {
  const file = modelFile(values.model);
  const best = {};
  for (const [name, schema] of Object.entries({ forced, unforced }))
    writeFileSync(join(folder, name), JSON.stringify(schema));
  const common = [
    'run',
    '--raw',
    file,
    '-p',
    'The river ran past a small mill',
    '-n',
    values.generate,
    '--temp',
    '0.8',
    '--seed',
    '1',
    '--threads',
    values.threads,
    '--json',
  ];
  const sides = {
    free: ['--ignore-eos'],
    unforced: ['--json-schema', join(folder, 'unforced')],
    forced: ['--json-schema', join(folder, 'forced')],
  };
  const turns = Object.entries(sides);
  for (let round = 0; round < Number(values.turns); round++, turns.push(turns.shift())) {
    for (const [name, args] of turns) {
      const { generatedTokens, generateMs, forwardPasses } = await jsonOf(
        inRoot('build', 'native', 'sluice'),
        [...common, ...args],
      );
      const rate = ((generatedTokens - 1) * 1000) / generateMs;
      if (!(best[name]?.rate >= rate)) best[name] = { rate, generatedTokens, forwardPasses };
    }
  }
  return { model: modelLabel(file), ...best };
}

function printDecodes({ model, ...sides }) {
  const said = {
    free: 'no schema',
    unforced: 'any string',
    forced: 'an object with long names',
  };
  console.log(`\n${model}, ${values.threads} thread(s)`);
  console.log(
    table([
      ['output', 'tokens', 'passes', 'tokens/s', 'ratio'],
      ...Object.entries(sides).map(([name, { rate, generatedTokens, forwardPasses }]) => [
        said[name],
        generatedTokens,
        forwardPasses,
        rate,
        rate / sides.free.rate,
      ]),
    ]),
  );
}

const wants = (...parts) => parts.some((part) => values.part.includes(part));
if (!values['no-build']) {
  if (wants('masks'))
    cmakeBuild('native', {
      targets: ['grammar_bench'],
      variables: ['-DSLUICE_BENCH=ON', '-DSLUICE_TESTS=ON'],
    });
  if (wants('decode')) cmakeBuild('native', { targets: ['sluice'] });
  if (wants('tab'))
    await buildProgram('grammar_bench', ['simd128'], {
      below: 'bench/',
      variables: ['-DSLUICE_BENCH=ON'],
      finish: finishBinary,
    });
}
if (wants('tab') && !values['ours-only']) installPeer('@mlc-ai/web-xgrammar');
const folder = mkdtempSync(join(tmpdir(), 'sluice-grammar-'));
const report = { costs: [] };
try {
  if (wants('masks', 'tab')) {
    const all = vocabularies();
    for (const i of values.vocabulary) report.costs.push(await costs(folder, all[Number(i)]));
  }
  if (wants('decode')) report.decode = await decodes(folder);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
if (values.json) console.log(JSON.stringify(report, null, 1));
else {
  if (report.costs.length) printCosts(report.costs);
  if (report.decode) printDecodes(report.decode);
}
