// Traces of a router's choices: recorded by `run`, replayed by `bench`, made and simulated by
// tests/bench. The engine's cache and its simulation are written apart, and hit alike. Needs
// build/native.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { turnsOf } from '../bench/expert-device-tab.mjs';
import { policies, simulate } from '../bench/expert-policies.mjs';
import { markdown, steps as stepsOf, summarize } from '../bench/expert-steps.mjs';
import { formatTrace, parseTrace, readTrace, syntheticTrace } from '../bench/expert-trace.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-experts-'));
after(() => rmSync(folder, { recursive: true }));
const dense = inRoot('tests', 'data', 'arch', 'llama-gqa.gguf');
const at = (name) => join(folder, name);
// 2 of 16 experts in each of four layers, most of the file's bytes.
const model = at('mixture.gguf');
const shapeOptions = '--shape tiny --experts 16 --experts-used 2 --ff 128 --quiet'.split(' ');
before(() => {
  const made = spawnSync(inRoot('build', 'native', 'sluice-make-model'), [...shapeOptions, model]);
  assert.equal(made.status, 0, made.stderr.toString());
});
function sluice(...args) {
  const { status, stdout, stderr } = spawnSync(inRoot('build', 'native', 'sluice'), args);
  return { status, stdout: stdout.toString(), stderr: stderr.toString() };
}
function json(...args) {
  const { status, stdout, stderr } = sluice(...args);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

const shape = { layers: 4, experts: 32, used: 4, tokens: 400 };
const habits = {
  uniform: {},
  skewed: { skew: 0.8 },
  repeating: { skew: 0.5, reuse: 0.6, distance: 4 },
};

test('a synthetic trace has the habits that it is asked for', () => {
  const counts = (trace) => {
    const uses = new Array(shape.experts).fill(0);
    for (const token of trace.tokens) for (const e of token[0]) uses[e] += 1;
    return uses.sort((a, b) => b - a);
  };
  const again = (trace) =>
    trace.tokens.slice(1).reduce((sum, token, t) => {
      const last = trace.tokens[t][0];
      return sum + token[0].filter((e) => last.includes(e)).length;
    }, 0) /
    (4 * (shape.tokens - 1));
  const traces = Object.fromEntries(
    Object.entries(habits).map(([name, habit]) => [name, syntheticTrace({ ...shape, ...habit })]),
  );
  const mean = (shape.tokens * shape.used) / shape.experts;
  assert.ok(counts(traces.uniform)[0] < 1.6 * mean);
  assert.ok(counts(traces.skewed)[0] > 3 * mean);
  assert.ok(again(traces.uniform) < 0.16 && again(traces.repeating) > 0.25);
  for (const trace of Object.values(traces)) {
    assert.deepEqual(parseTrace(formatTrace(trace)), { ...trace });
  }
});

test('no policy exceeds the oracle, and the measured one is never worse than LRU', () => {
  for (const [name, habit] of Object.entries(habits)) {
    const trace = syntheticTrace({ ...shape, ...habit });
    for (const capacity of [16, 48]) {
      const rates = Object.fromEntries(
        Object.keys(policies).map((p) => [p, simulate(trace, p, capacity, 64).hitRate]),
      );
      for (const rate of Object.values(rates)) assert.ok(rate <= rates.belady, name);
      assert.ok(rates.measured > rates.lru - 0.02, `${name}: ${JSON.stringify(rates)}`);
      if (name !== 'uniform') assert.ok(rates.measured > rates.static + 0.1, name);
    }
  }
});

test('a recorded trace replays', () => {
  const trace = at('trace.jsonl');
  const prompt = ['--raw', '-p', 'a b c d e f', '-n', '40', '--temp', '0', '--json'];
  const args = ['run', model, '-c', '128', '--threads', '1', ...prompt];
  const whole = json(...args, '--record-experts', trace);
  assert.equal(whole.expertMisses, 0);
  const { layers, experts, used, tokens } = readTrace(trace);
  const info = json('info', model, '-c', '128', '--threads', '1', '--json');
  assert.equal(layers, info.layers);
  assert.equal(experts, info.experts);
  assert.equal(used, info.expertsUsed);
  assert.equal(tokens.length, whole.promptTokens + whole.generatedTokens - 1);
  assert.ok(tokens.at(-1).every((chosen) => chosen.length === used));
  // Under a budget: the same text and the same choices.
  const budget = String(Math.round((info.plan.minimum + info.plan.total) / 2));
  const half = json(...args, '--record-experts', at('half.jsonl'), '--memory-budget', budget);
  assert.equal(half.text, whole.text);
  assert.deepEqual(readTrace(at('half.jsonl')).tokens, tokens);
  assert.ok(half.expertHits > 0 && half.expertMisses > 0 && half.expertBytesRead > 0);
});

test('a replayed trace decides which experts are read', () => {
  const { layers, experts, expertsUsed: used } = json('info', model, '--json');
  const bench = (name, trace, ...more) => {
    writeFileSync(at(name), formatTrace(trace));
    const plan = ['-c', '128', '-p', '0', '-n', '100', '-r', '1', '-t', '1', '-o', 'json'];
    const { plan: sizes } = json('info', model, '--json', '-c', '128', '--threads', '1');
    const budget = String(Math.round((sizes.minimum + sizes.total) / 2));
    const given = [...plan, '--memory-budget', budget, '--expert-trace', at(name), ...more];
    return json('bench', model, ...given)[0];
  };
  const one = { layers, experts, used };
  const always = Array.from({ length: layers }, () => Array.from({ length: used }, (_, i) => i));
  const same = bench('same.jsonl', { ...one, tokens: [always] });
  assert.equal(same.expertHits + same.expertMisses, 100 * layers * used);
  assert.ok(same.expertMisses < 0.05 * same.expertHits, `${same.expertMisses} misses`);
  const fixed = bench('same.jsonl', { ...one, tokens: [always] }, '--fixed-experts');
  assert.ok(fixed.expertMisses > 10 * (same.expertMisses + 1), `${fixed.expertMisses} misses`);
  const random = bench('random.jsonl', syntheticTrace({ ...one, tokens: 100 }));
  assert.ok(random.expertMisses > 0.2 * random.expertHits);
  assert.ok(random.bytesPerToken > same.bytesPerToken);
});

test('bench reads with and without the page cache, and turns each step off', (t) => {
  const records = at('records.qsf');
  const converted = sluice('convert', model, records, '--expert-records');
  assert.equal(converted.status, 0, converted.stderr);
  const size = ['-c', '128', '-t', '1'];
  const { plan } = json('info', records, ...size, '--json');
  const bench = (bytes, ...args) => {
    const budget = ['--memory-budget', String(plan.minimum + bytes)];
    const measured = ['-p', '0', '-n', '40', '-r', '2', '-o', 'json', ...budget];
    return json('bench', records, ...size, ...measured, ...args)[0];
  };
  const [cached, direct] = [562_240, 9_000_000]; // buffers take 8,437,760 bytes
  const rows = {
    off: bench(cached, '--direct-io', 'off'),
    alone: bench(direct, '--direct-io', 'on', '--no-joined-reads'),
    joined: bench(direct, '--direct-io', 'on'),
    ascending: bench(cached, '--ascending-experts'),
    fixed: bench(cached, '--fixed-experts'),
  };
  for (const [name, row] of Object.entries(rows)) {
    if (name === 'alone' && !row.directIo) return t.skip(`no direct I/O in ${folder}`);
    assert.ok(row.expertMisses > 0 && row.readsPerToken > 0 && row.bytesPerRead > 0, name);
  }
  assert.equal(rows.off.directIo, false);
  assert.equal(rows.ascending.directIo, false, 'the file fits the page cache');
  assert.equal(rows.ascending.expertMisses, rows.off.expertMisses);
  assert.equal(rows.alone.expertMisses, rows.joined.expertMisses);
  assert.ok(rows.joined.readsPerToken < rows.alone.readsPerToken);
  assert.ok(rows.joined.bytesPerRead > rows.alone.bytesPerRead);
  const wrong = sluice('bench', records, '--direct-io', 'maybe');
  assert.notEqual(wrong.status, 0);
  assert.match(wrong.stderr, /direct-io/);
});

test('steps are compared in turns', (t) => {
  const [large, records] = [at('steps.gguf'), at('steps.qsf')]; // 28 MB of experts
  const shape = '--shape tiny --experts 16 --experts-used 2 --ff 1024 --quiet'.split(' ');
  const planned = spawnSync(inRoot('build', 'native', 'sluice-make-model'), [...shape, large]);
  assert.equal(planned.status, 0, planned.stderr.toString());
  const converted = sluice('convert', large, records, '--expert-records');
  assert.equal(converted.status, 0, converted.stderr);
  const { plan } = json('info', records, '-c', '128', '-t', '1', '--json');
  const budget = String(plan.minimum + 14_000_000); // buffers of direct I/O take 8,437,760 bytes
  const script = inRoot('tests', 'bench', 'experts.mjs');
  const steps = (file, ...args) => {
    const size = ['--threads', '1', '--ctx', '128', '-n', '20', '--warmup', '20', '--rounds', '2'];
    const ran = spawnSync(process.execPath, [script, 'steps', file, ...size, ...args]);
    return { status: ran.status, stdout: ran.stdout.toString(), stderr: ran.stderr.toString() };
  };
  const saved = at('steps.json');
  const made = steps(large, '--budget', budget, '--records', records, '--out', saved);
  assert.equal(made.status, 0, made.stderr);
  const rows = JSON.parse(readFileSync(saved, 'utf8'));
  const names = [...Object.keys(stepsOf), 'the matrices of an expert side by side'];
  assert.deepEqual(
    rows.map(({ step }) => step),
    names,
  );
  const [head, , ...lines] = made.stdout.trim().split('\n');
  assert.match(head, /^\| Step \| tokens\/s with \| without \| ratio \|/);
  assert.equal(lines.length, names.length);
  for (const [i, row] of rows.entries()) {
    assert.ok(lines[i].startsWith(`| ${names[i]} | `), lines[i]);
    assert.ok(row.low <= row.ratio && row.ratio <= row.high && row.low > 0, lines[i]);
    assert.ok(row.bytesPerToken > 0 && row.readsPerToken > 0, lines[i]);
  }
  const runs = made.stderr.split('\n').filter((line) => line.startsWith('{'));
  const order = runs.map((line) => JSON.parse(line)).map(({ round, side }) => `${round} ${side}`);
  const turns = (round, ...sides) => names.flatMap(() => sides.map((side) => `${round} ${side}`));
  assert.deepEqual(order, [...turns(0, 'on', 'off'), ...turns(1, 'off', 'on')]);
  const row = Object.fromEntries(rows.map((r) => [r.step, r]));
  const fixed = row['experts in memory change'];
  assert.ok(fixed.bytesPerToken < fixed.bytesPerTokenWithout, 'fixed experts are read again');
  assert.match(steps(dense).stderr, /is no mixture of experts/);
  if (row['direct I/O'].directIo === 0) return t.skip(`no direct I/O in ${folder}`);
  assert.equal(row['direct I/O'].directIo, 1);
});

test('medians and ratios of pairs of runs', () => {
  const run = (tokensPerSecond, directIo = true) => ({
    tokensPerSecond,
    hitRate: 0.5,
    bytesPerToken: 2e6,
    readsPerToken: 3,
    directIo,
  });
  const pairs = [
    { on: run(3), off: run(2) },
    { on: run(8), off: run(4) },
    { on: run(2, false), off: run(2) },
  ];
  const row = summarize('a step', pairs);
  assert.deepEqual([row.tokensPerSecond, row.without], [3, 2]);
  assert.deepEqual([row.low, row.ratio, row.high], [1, 1.5, 2]);
  assert.equal(
    markdown([row]).split('\n')[2],
    '| a step | 3.00 | 2.00 | 1.50 (1.00 to 2.00) | 2.00, 2.00 | 3.00, 3.00 | 0.67 |',
  );
});

test('random reads of a device', (t) => {
  const script = inRoot('tests', 'bench', 'experts.mjs');
  const device = (...args) => spawnSync(process.execPath, [script, 'device', model, ...args]);
  const sizes = ['--sizes', '4K,64K', '--depths', '1,3', '--seconds', '0.02', '--json'];
  const { status, stdout, stderr } = device(...sizes);
  if (status !== 0 && /Invalid argument/.test(stderr)) return t.skip(`no direct I/O in ${folder}`);
  assert.equal(status, 0, stderr.toString());
  const rows = JSON.parse(stdout);
  assert.deepEqual(
    rows.map(({ size, depth }) => [size, depth]),
    [4096, 65536].flatMap((size) => [1, 3].map((depth) => [size, depth])),
  );
  for (const { size, bytesPerSecond, readsPerSecond } of rows) {
    assert.ok(readsPerSecond > 0 && Math.abs(bytesPerSecond / readsPerSecond - size) < 1);
  }
  assert.match(device('--sizes', '100').stderr.toString(), /100 is no multiple of 4K/);
});

test('workers of a tab read every place once, in turns', () => {
  const turns = turnsOf(64 * 2 ** 20, 2 ** 20, [1, 2, 4]);
  assert.deepEqual(
    turns.map(([depth]) => depth),
    [1, 2, 4, 4, 2, 1, 1, 2, 4, 4, 2, 1],
  );
  const places = turns.flatMap(([, of]) => of);
  assert.equal(places.length, 12 * 5);
  assert.equal(new Set(places).size, places.length);
  assert.ok(places.every((at) => at % 2 ** 20 === 0 && at >= 0 && at < 64 * 2 ** 20));
  assert.throws(() => turnsOf(16 * 2 ** 20, 2 ** 20, [1, 2, 4]), /too few/);
});

test('info estimates what a token reads from a trace', () => {
  const size = ['-c', '128', '--threads', '1', '--json'];
  const whole = json('info', model, ...size);
  const { layers, experts, expertsUsed: used } = whole;
  const budget = String(Math.round((whole.plan.minimum + whole.plan.total) / 2));
  const rate = 10_000; // bytes per second, so that reading is the limit
  const streamed = [...size, '--memory-budget', budget, '--read-rate', String(rate)];
  // Three matrices of 256 × 128 values in Q4_0.
  const expertBytes = 3 * 256 * 128 * (18 / 32);
  const near = (a, b, error = 1e-9) => assert.ok(Math.abs(a / b - 1) < error, `${a}, not ${b}`);
  const holds = ({ speed }, hitRate, from) => {
    assert.equal(speed.expertHitRateFrom, from);
    near(speed.expertHitRate, hitRate);
    near(speed.bytesReadPerToken, (1 - hitRate) * layers * used * expertBytes);
    near(speed.tokensPerSecond, rate / speed.bytesReadPerToken, 1e-2);
  };
  const uniform = json('info', model, ...streamed);
  const { expertsInMemory: share } = uniform.speed;
  assert.ok(share > 0.2 && share < 0.8, `${share}`);
  holds(uniform, share, 'uniform');

  const traced = (tokens) => {
    const path = at('info.jsonl');
    writeFileSync(path, formatTrace({ layers, experts, used, tokens }));
    return json('info', model, ...streamed, '--expert-trace', path);
  };
  const always = Array.from({ length: layers }, () => [0, 1]);
  const same = traced(Array.from({ length: 300 }, () => always)).speed;
  assert.deepEqual([same.expertHitRate, same.bytesReadPerToken], [1, 0]);
  for (const habit of [{}, { skew: 1 }, { skew: 0.5, reuse: 0.6, distance: 4 }]) {
    const trace = syntheticTrace({ layers, experts, used, tokens: 600, ...habit });
    const capacity = Math.round(share * layers * experts);
    const found = traced(trace.tokens);
    const { hitRate } = simulate(trace, 'measured', capacity, 64);
    assert.ok(
      Math.abs(found.speed.expertHitRate - hitRate) < 0.02,
      `${found.speed.expertHitRate}, not ${hitRate}`,
    );
    holds(found, found.speed.expertHitRate, 'trace');
  }
  const text = sluice('info', model, '-c', '128', '--memory-budget', budget).stdout;
  assert.match(text, /\n {2}experts +\d\d\.?\d* % in memory, hit rate .* uniformly at random\n/);
  assert.match(text, /\n {2}reads +\d+.* kB per token\n/);
  assert.doesNotMatch(sluice('info', dense).stdout, /hit rate/);
});

test('a curve has three traces under budgets up to the whole model', () => {
  const { layers, experts, expertsUsed: used } = json('info', model, '--json');
  const always = Array.from({ length: layers }, () => Array.from({ length: used }, (_, i) => i));
  const recorded = at('recorded.jsonl');
  writeFileSync(recorded, formatTrace({ layers, experts, used, tokens: [always] }));
  const bench = (...args) => {
    const script = inRoot('tests', 'bench', 'experts.mjs');
    const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args]);
    return { status, stdout: stdout.toString(), stderr: stderr.toString() };
  };
  const size = ['--points', '3', '-n', '60', '--threads', '1', '--ctx', '128'];
  const made = bench('curve', model, '--trace', recorded, ...size, '--no-page-cache', '--json');
  assert.equal(made.status, 0, made.stderr);
  const rows = JSON.parse(made.stdout);
  const names = ['uniform', 'recorded', 'skew 0.5, reuse 0.6, distance 4'];
  assert.deepEqual(
    rows.map(({ trace }) => trace),
    [...names, ...names, ...names],
  );
  const { plan } = json('info', model, '-c', '128', '-t', '1', '--json');
  const budgets = [plan.minimum, Math.round((plan.minimum + plan.total) / 2), plan.total];
  rows.forEach((row, i) => {
    const { trace, expertsInMemory: share, hitRate, oracle, bytesPerToken, tokensPerSecond } = row;
    const label = JSON.stringify(row);
    assert.equal(row.budget, budgets[Math.floor(i / 3)], label);
    assert.ok(tokensPerSecond > 0, label);
    assert.ok(hitRate <= oracle + 0.03, label);
    if (i < 3) assert.ok(share < 0.1 && bytesPerToken > 0, label);
    else if (i >= 6) assert.ok(share * hitRate * oracle === 1 && bytesPerToken < 3000, label);
    else if (trace === 'recorded') assert.ok(hitRate > 0.9 && oracle > 0.9, label);
    else assert.ok(hitRate > share - 0.1 && hitRate < 0.95 && row.readRate > 0, label);
  });
  const text = bench('curve', model, ...size).stdout.split('\n');
  assert.match(text[0], /^trace +budget +expertsInMemory +tokensPerSecond +hitRate +oracle/);
  assert.equal(text.filter((line) => line.includes('uniform')).length, 3);
  assert.match(bench('curve', dense, ...size).stderr, /is no mixture of experts/);
});

// Layers, experts, billions of weights and gigabytes of files as on the model cards and of
// llama-quantize.
test('the made shapes of published mixtures are whole', () => {
  const makeModel = inRoot('build', 'native', 'sluice-make-model');
  for (const [shape, type, layers, experts, used, billions, gigabytes] of [
    ['gpt-oss-20b', 'mxfp4', 24, 32, 4, 20.9, 12.1],
    ['qwen3-30b-a3b', 'q4_0', 48, 128, 8, 30.5, 17.3],
    ['lfm2-8b-a1b', 'q4_0', 24, 32, 4, 8.3, 4.7],
  ]) {
    const file = at(`${shape}.gguf`);
    const made = spawnSync(makeModel, ['-q', '-s', shape, '-t', type, '--no-weights', file]);
    assert.equal(made.status, 0, made.stderr.toString());
    const { size, blocks } = statSync(file);
    const info = json(
      'info',
      file,
      '-c',
      '512',
      '--threads',
      '1',
      '--memory-budget',
      '2G',
      '--json',
    );
    rmSync(file);
    assert.ok(512 * blocks < 64e6, `${shape} takes ${512 * blocks} bytes on the disk`);
    assert.equal(Math.round(size / 1e8) / 10, gigabytes, shape);
    assert.equal(Math.round(info.parameters / 1e8) / 10, billions, shape);
    assert.deepEqual([info.layers, info.experts, info.expertsUsed], [layers, experts, used], shape);
    assert.ok(info.speed.expertsInMemory > 0 && info.speed.expertsInMemory < 0.6, shape);
  }
});

test('wrong traces and models are errors', () => {
  const head = '{"format":"sluice-expert-trace","version":1,"layers":1,"experts":2,"used":1}\n';
  const wrong = {
    '': /no tokens/,
    '{"format":"other"}\n[[0]]\n': /line 1/,
    [`${head}[[2]]\n`]: /line 2/,
    [`${head}[[0]]\n[[0],[1]]\n`]: /line 3/,
    [`${head}[[0,1]]\n`]: /line 2/,
    [`${head}[["a"]]\n`]: /line 2/,
    [`${head}{\n`]: /line 2/,
    [head]: /no tokens/,
    [`${head}[[0]]\n`]: /uses 1 of 2 experts, and this model/,
  };
  for (const [text, message] of Object.entries(wrong)) {
    writeFileSync(at('wrong.jsonl'), text);
    for (const command of ['bench', 'info']) {
      const { status, stderr } = sluice(command, model, '--expert-trace', at('wrong.jsonl'));
      assert.equal(status, 1, text);
      assert.match(stderr, message);
    }
  }
  const args = ['run', dense, '--raw', '-p', 'a', '-n', '1'];
  const { status, stderr } = sluice(...args, '--record-experts', at('dense.jsonl'));
  assert.equal(status, 1);
  assert.match(stderr, /needs a mixture of experts/);
});
