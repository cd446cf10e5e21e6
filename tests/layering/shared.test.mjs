// Values that C++ and TypeScript both define must agree: numbers that cross the binding, the layout
// of the fill queue, error codes. The tests compare the sources, so they need no build.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { errorCodes } from '../../web/scripts/errors.mjs';
import { typesOf } from '../../web/scripts/def.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (path) => readFileSync(join(root, path), 'utf8');
const plain = (text) => text.replace(/\/\*[^]*?\*\//g, '').replace(/\/\/.*/g, '');

/** The first group of `pattern` in a file; fails if the pattern does not match. */
function find(path, pattern) {
  const match = pattern.exec(read(path));
  assert.ok(match, `${path} has nothing like ${pattern}`);
  return match[1];
}

/** { name: value } of an enumeration in either language; strips the prefix (k) from the names. */
function enumeration(path, name, prefix = 'k') {
  const body = plain(find(path, new RegExp(`enum (?:class )?${name}\\b[^{;]*\\{([^}]*)\\}`)));
  let next = 0;
  return Object.fromEntries(
    body
      .split(',')
      .map((entry) => entry.trim())
      .filter(Boolean)
      .map((entry) => {
        const [, key, value] = /^(\w+)(?:\s*=\s*(\d+))?$/.exec(entry);
        next = value === undefined ? next : Number(value);
        return [key.startsWith(prefix) ? key.slice(prefix.length) : key, next++];
      }),
  );
}

const binding = 'web/worker/binding.ts';
const embind = {
  header: 'src/bindings/engine_binding.h',
  text: 'src/bindings/values.cpp',
  units: 'src/bindings/stats.cpp',
};
const queue = 'src/residency/fill_queue.h';
const server = 'web/io/fill-server.ts';

test('Step and FileRequestKind have the same numbers', () => {
  assert.deepEqual(enumeration(binding, 'Step'), enumeration('src/session/executor.h', 'Step'));
  assert.deepEqual(
    enumeration('web/protocol/file-request.ts', 'FileRequestKind'),
    enumeration('src/open/opener.h', 'FileRequestKind'),
  );
});

test('the tokenize flags are the same bits', () => {
  const bits = [...read(embind.text).matchAll(/\.(\w+) = \(how & (\d+)\) != 0/g)].map(
    ([, name, bit]) => [name, Number(bit)],
  );
  const snake = (name) => name.replace(/(?<!^)[A-Z]/g, '_$&').toLowerCase();
  const flags = enumeration(binding, 'TokenizeFlags');
  assert.deepEqual(
    Object.fromEntries(Object.entries(flags).map(([name, bit]) => [snake(name), bit])),
    Object.fromEntries(bits),
  );
});

test('browser code formats no floating-point numbers (src/bindings/libc.cpp cannot)', () => {
  const elsewhere = new Set([
    'api',
    'cli',
    'convert',
    'io',
    'measure',
    'native',
    'platform',
    'serve',
  ]);
  const rooms = readdirSync(join(root, 'src'), { withFileTypes: true }).filter(
    (f) => f.isDirectory() && !elsewhere.has(f.name),
  );
  assert.ok(rooms.length > 10);
  for (const { name } of rooms) {
    for (const file of readdirSync(join(root, 'src', name)).filter((f) => /\.(cpp|h)$/.test(f))) {
      const text = read(`src/${name}/${file}`).replace(/\/\/.*/g, '');
      assert.doesNotMatch(text, /"[^"\n]*%[-+ #0-9.*]*[aefgAEFG]\b[^"\n]*"/, `src/${name}/${file}`);
    }
  }
});

test('the staging buffer of states has the same size on both sides', () => {
  const size = (path) => find(path, /\bkStageBytes = (1 << \d+)/);
  assert.equal(size(binding), size(embind.header));
});

test('GPU kernels decode every quantization type of kernels/types.def', () => {
  const listed = typesOf(read('kernels/types.def'));
  for (const { name, kind, ...numbers } of listed) {
    assert.ok(['ELEMENT', 'BLOCK', 'DECODED', 'QSF', 'OTHER'].includes(kind), name);
    for (const n of Object.values(numbers)) assert.ok(Number.isInteger(n) && n >= 0, name);
  }
  const of = (name) => Object.values(listed.find((type) => type.name === name));
  assert.deepEqual(
    [of('BF16'), of('Q6_K'), of('QSF3'), of('I64')],
    [
      ['BF16', 'ELEMENT', 30, 1, 2],
      ['Q6_K', 'BLOCK', 14, 256, 210],
      ['QSF3', 'QSF', 226, 64, 28],
      ['I64', 'OTHER', 27, 1, 8],
    ],
  );
  const weights = (...kinds) =>
    listed.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
  const gpu = (path) =>
    [...find(path, /decoders: Record<string, string> = \{([^}]*)\}/).matchAll(/(\w+): /g)].map(
      ([, name]) => name,
    );
  assert.deepEqual(gpu('web/gpu/kernels/types.ts').sort(), weights('ELEMENT', 'BLOCK').sort());
  assert.deepEqual(gpu('web/gpu/kernels/rare-types.ts').sort(), weights('DECODED', 'QSF').sort());
});

test('GpuPass has the same fields, and operations the same numbers, on both sides', () => {
  const gpu = 'web/gpu/program.ts';
  const header = 'src/gpu/gpu_executor.h';
  const upper = (name) => name.replace(/(?:^|_)([a-z])/g, (_, letter) => letter.toUpperCase());
  const body = plain(find(header, /struct GpuPass \{([^]*?)\n\};/)).replace(/enum [^;]*;/g, '');
  const fields = [...body.matchAll(/\bu?int32_t ([^;]+);/g)].flatMap(([, names]) =>
    names.split(',').map((name) => upper(/\w+/.exec(name)[0])),
  );
  assert.deepEqual(
    Object.entries(enumeration(gpu, 'Word')),
    fields.map((name, at) => [name, at]),
  );
  assert.deepEqual(enumeration(gpu, 'PassState'), enumeration(header, 'State'));
  assert.deepEqual(enumeration(gpu, 'CpuFallback'), enumeration(header, 'CpuFallback'));
  assert.deepEqual(enumeration(gpu, 'NonCausal'), enumeration(header, 'NonCausal'));
  for (const name of ['OpKind', 'Buf', 'NormKind']) {
    const { Count: _, ...numbers } = enumeration('src/model/op.h', name);
    assert.deepEqual(enumeration(gpu, name), numbers, name);
  }
});

test('inputs of vision encoders have the same fields, and operations the same numbers', () => {
  const input = 'web/gpu/pictures/input.ts';
  const header = 'src/vision/flat_input.h';
  const program = 'src/vision/program.h';
  const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  const fields = (path, struct) =>
    [
      ...plain(find(path, new RegExp(`struct ${struct} \\{([^]*?)\\n\\};`))).matchAll(
        /\b(?:u?int32_t|float) ([^;]+);/g,
      ),
    ].flatMap(([, names]) => names.split(',').map((name) => camel(name.trim())));
  const listed = (name) =>
    [...find(input, new RegExp(`const ${name} = (\\[[^;]*)`)).matchAll(/'(\w+)'/g)].map(
      ([, field]) => field,
    );
  assert.deepEqual(listed('kOp'), fields(header, 'FlatOp'));
  assert.deepEqual(listed('kTensor'), fields(header, 'FlatTensor'));
  assert.deepEqual(listed('kInput'), fields('src/bindings/pictures/pictures.cpp', 'GpuInput'));
  for (const name of ['OpKind', 'NormKind', 'Activation'])
    assert.deepEqual(enumeration(input, name), enumeration(program, name), name);
  assert.equal(find(input, /kBuffers = (\d+)/), find(program, /kBuffers = (\d+)/));
});

test('the fill queue has the layout of its C++ header', () => {
  const states = enumeration(queue, 'FillState', 'kFill');
  for (const [name, value] of Object.entries(enumeration(server, 'State')))
    assert.equal(value, states[name], name);
  assert.equal(find(queue, /kFillRow = (\w+);/), 'UINT32_MAX');
  assert.equal(find(server, /kRow = (\w+);/), '0xffffffff');
  assert.equal(
    find(queue, /sizeof\(FillRequest\) == (\d+)/),
    find(server, /kRequestBytes = (\d+)/),
  );
  assert.equal(find(queue, /sizeof\(FillQueue\) == (\d+) \+/), find(server, /kHeadBytes = (\d+)/));
  const words = (struct) => {
    const fields = [
      ...plain(find(queue, new RegExp(`struct ${struct} \\{([^]*?)\\n(?:\\n|\\};)`))).matchAll(
        /^ *(?:std::atomic<)?uint(32|64)_t>? (\w+)/gm,
      ),
    ];
    let at = 0;
    return Object.fromEntries(
      fields.map(([, bits, name]) => [name, (at += bits / 32) - bits / 32]),
    );
  };
  const lower = (names) =>
    Object.fromEntries(Object.entries(names).map(([name, at]) => [name.toLowerCase(), at]));
  assert.deepEqual(lower(enumeration(server, 'Request')), words('FillRequest'));
  assert.deepEqual(lower(enumeration(server, 'Head')), words('FillQueue'));
});

test('unit states have the same numbers in the binding and in TypeScript', () => {
  const names = find('web/api/weight-units.ts', /kUnitStates: UnitState\[\] = \[([^\]]*)\]/)
    .split(', ')
    .map((name) => name.slice(1, -1));
  const code = find(embind.units, / unit_states\(EngineBinding& b\) \{([^]*?)\n\}/);
  const numbers = [
    ...code.matchAll(
      /kAbsent:\s+b\.states\[u\] = pinned \? (\d) : (\d);|kLoading:\s+b\.states\[u\] = (\d);|kReady:\s+b\.states\[u\] = pinned \? (\d) : (\d);/g,
    ),
  ]
    .flatMap((match) => match.slice(1).filter((n) => n !== undefined))
    .map((n) => names[n]);
  assert.deepEqual(numbers, ['pinned-pending', 'absent', 'loading', 'pinned', 'resident']);
});

test('the engine and SluiceError have the same codes', () => {
  const engine = [...read('src/base/status.cpp').matchAll(/return "([A-Z_]+)";/g)].map(
    ([, code]) => code,
  );
  const codes = errorCodes().map(({ code }) => code);
  const own = ['OK', 'ABORTED']; // never thrown: an abort is an AbortError
  assert.deepEqual(
    [...new Set(engine)].filter((code) => !codes.includes(code) && !own.includes(code)),
    [],
  );
  const web = [
    'WORKER_LOST',
    'DISPOSED',
    'WORKER_LOAD',
    'WASM_LOAD',
    'MODULE_LOAD',
    'QUOTA',
    'DEVICE_LOST',
  ];
  assert.deepEqual(codes.filter((code) => !engine.includes(code)).sort(), web.sort());
});
