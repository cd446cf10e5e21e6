// docs/qsf.md, read by another program: tests/reference/qsf.py checks every field and decodes every
// value of files that `sluice convert` writes, and writes a file as a program would that knows only
// the format. Needs build/native and Python.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-qsf-'));
after(() => rmSync(folder, { recursive: true }));
const fixture = (name) => inRoot('tests', 'data', 'arch', `${name}.gguf`);
const model = fixture('llama-gqa');
const python = spawnSync('python3', ['-c', 'import zlib']).status === 0;
const options = python ? {} : { skip: 'python3 is not there' };
const tokens = ['--tokens', '1,17,29,45,31,8,12,77,5'];

function start(program, args) {
  const { status, stdout, stderr } = spawnSync(program, args, { maxBuffer: 1 << 26 });
  return { status, stdout: stdout.toString(), stderr: stderr.toString() };
}
function ok(program, ...args) {
  const ended = start(program, args);
  assert.equal(ended.status, 0, `${args.join(' ')}: ${ended.stderr}`);
  return ended.stdout;
}
const sluice = (...args) => ok(inRoot('build', 'native', 'sluice'), ...args);
const refused = (...args) => {
  const ended = start(inRoot('build', 'native', 'sluice'), args);
  assert.equal(ended.status, 1, ended.stdout);
  return ended.stderr;
};
const reader = (...args) => ok('python3', inRoot('tests', 'reference', 'qsf.py'), ...args);
const at = (name) => join(folder, name);

function logits(file, ...args) {
  const out = at('logits.f32');
  sluice('logits', file, ...tokens, '--out', out, ...args);
  const bytes = readFileSync(out);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}
function expectNear(got, wanted) {
  let error = 0;
  let power = 0;
  assert.equal(got.length, wanted.length);
  wanted.forEach((x, i) => {
    error += (got[i] - x) ** 2;
    power += x ** 2;
  });
  assert.ok(power > 0 && error < 1e-5 * power, `${error} of ${power}`);
}

// The header's bytes 48 to 51: quantization, activation, norm, positions.
const cases = [
  ['llama-gqa', 'f16', 'none', [5, 1, 1, 1]],
  ['llama-gqa', 'q8_0', 'lz4', [5, 1, 1, 1]],
  ['llama-gqa', 'qsf2', 'none', [1, 1, 1, 1]],
  ['llama-gqa', 'qsf3', 'lz4hc', [2, 1, 1, 1]],
  ['llama-gqa', 'qsf4', 'none', [3, 1, 1, 1]],
  ['llama-gqa', 'qsft', 'none', [4, 1, 1, 1]],
  ['gemma2', 'bf16', 'none', [5, 0, 1, 1]],
  ['gpt2', 'qsf3', 'none', [2, 0, 0, 0]],
];
for (const [name, type, compression, bytes] of cases) {
  test(
    `${name}, ${type}, ${compression}: every value and field is where the page says`,
    options,
    () => {
      const file = at(`${type}.qsf`);
      const as = ['--type', type, '--pure', '--compress', compression, '--quiet'];
      sluice('convert', fixture(name), file, '--force', ...as);
      sluice('convert', file, at(`${type}.gguf`), '--type', 'f32', '--force', '--quiet');
      const { header, tensors } = JSON.parse(reader('list', file));
      const wanted = JSON.parse(reader('list', at(`${type}.gguf`))).tensors;
      assert.ok(Object.keys(wanted).length > 10);
      const hashes = (of) =>
        Object.fromEntries(Object.entries(of).map(([name, t]) => [name, [t.shape, t.hash]]));
      assert.deepEqual(hashes(tensors), hashes(wanted));
      const { quantization, activation, norm, positions } = header;
      assert.deepEqual([quantization, activation, norm, positions], bytes);
    },
  );
}

test('experts are in records of their own, one checksum each', options, () => {
  const mixture = inRoot('tests', 'data', 'families', 'qwen3moe.gguf');
  const file = at('experts.qsf');
  const convert = (...args) => sluice('convert', mixture, ...args, '--force', '--quiet');
  for (const type of ['f16', 'q8_0']) {
    convert(file, '--type', type, '--pure', '--expert-records');
    sluice('convert', file, at('wanted.gguf'), '--type', 'f32', '--force', '--quiet');
    const { header, tensors } = JSON.parse(reader('list', file));
    const wanted = JSON.parse(reader('list', at('wanted.gguf'))).tensors;
    assert.equal(header.version, 2);
    assert.ok(header.layers_of_records > 0 && header.records >= 4 * header.layers_of_records);
    const hashes = (of) =>
      Object.fromEntries(Object.entries(of).map(([name, t]) => [name, [t.shape, t.hash]]));
    assert.deepEqual(hashes(tensors), hashes(wanted));
  }
  // The same without records, and the same logits.
  convert(file, '--expert-records', '--compress', 'lz4');
  convert(at('plain.qsf'));
  assert.deepEqual(logits(file), logits(at('plain.qsf')));
  assert.deepEqual(logits(file, '--memory-budget', '1M'), logits(at('plain.qsf')));
  const damaged = readFileSync(file);
  const table = Number(damaged.readBigUInt64LE(112));
  damaged[Number(damaged.readBigUInt64LE(table)) + 100] ^= 1;
  writeFileSync(at('damaged.qsf'), damaged);
  const why = refused('logits', at('damaged.qsf'), ...tokens, '--out', at('x'));
  assert.match(why, /an expert of the model is damaged/);
  assert.match(
    start('python3', [inRoot('tests', 'reference', 'qsf.py'), 'list', at('damaged.qsf')]).stderr,
    /CRC-32 of an expert/,
  );
  damaged.writeUInt32LE(3, 4);
  writeFileSync(at('damaged.qsf'), damaged);
  assert.match(refused('info', at('damaged.qsf')), /QSF version 3 is not supported/);
  assert.match(
    refused('convert', mixture, at('x.gguf'), '--expert-records', '--force'),
    /--expert-records needs a QSF file/,
  );
});

for (const type of ['f16', 'qsf3']) {
  test(`${type}: a file of another program opens`, options, () => {
    const [ours, theirs] = [at('ours.qsf'), at('theirs.qsf')];
    sluice('convert', model, ours, '--type', type, '--force', '--quiet');
    reader('strip', ours, theirs);
    assert.match(refused('logits', theirs, ...tokens, '--out', at('x')), /--tokenizer FILE/);
    const tokenizer = ['--tokenizer', model];
    const wanted = logits(ours);
    expectNear(logits(theirs, ...tokenizer), wanted);
    expectNear(logits(theirs, ...tokenizer, '--memory-budget', '2M'), wanted);
    const text = ['-p', 'Once upon a time', '-n', '20', '--temp', '0'];
    assert.equal(sluice('run', theirs, ...tokenizer, ...text), sluice('run', ours, ...text));
    // Converted, it is a file of ours, with the tokenizer.
    sluice('convert', theirs, at('again.qsf'), ...tokenizer, '--force', '--quiet');
    expectNear(logits(at('again.qsf')), wanted);
  });
}

test('a tokenizer.json is a tokenizer too', options, () => {
  const directory = inRoot('tests', 'data', 'hf', 'llama3');
  const [ours, theirs] = [at('ours.qsf'), at('theirs.qsf')];
  sluice('convert', directory, ours, '--force', '--quiet');
  reader('strip', ours, theirs);
  const text = ['--file', inRoot('LICENSE')];
  const ids = sluice('tokenize', theirs, ...text, '--tokenizer', join(directory, 'tokenizer.json'));
  assert.equal(ids, sluice('tokenize', ours, ...text));
  const none = ['--tokenizer', at('none.json')];
  assert.match(refused('tokenize', theirs, ...text, ...none), /none\.json/);
});

test('every damaged or impossible field is an error that names it', options, () => {
  const [ours, theirs] = [at('ours.qsf'), at('theirs.qsf')];
  sluice('convert', model, ours, '--force', '--quiet');
  reader('strip', ours, theirs);
  const whole = readFileSync(theirs);
  const crcOf = (bytes) => {
    let sum = -1;
    for (const byte of bytes) {
      sum ^= byte;
      for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return ~sum >>> 0;
  };
  const changed = (offset, value, size = 1) => {
    const bytes = Buffer.from(whole);
    bytes.writeUIntLE(value, offset, size);
    bytes.writeUInt32LE(crcOf(bytes.subarray(0, 96)), 96);
    writeFileSync(at('changed.qsf'), bytes);
    return refused('logits', at('changed.qsf'), ...tokens, '--tokenizer', model, '--out', at('x'));
  };
  const index = Number(whole.readBigUInt64LE(56));
  const layer = Number(whole.readBigUInt64LE(index));
  assert.match(changed(12, 0), /another architecture/);
  assert.match(changed(49, 0), /SiLU/);
  assert.match(changed(50, 0), /RMSNorm/);
  assert.match(changed(51, 2), /RoPE/);
  assert.match(changed(24, 0), /attention heads/);
  assert.match(changed(32, 7, 4), /different dimensions/);
  assert.match(changed(layer, 99), /unknown kind 99/);
  assert.match(changed(layer + 12, 0), /type 0/);
  assert.match(changed(layer + 4, 3, 4), /fill their layer/);
  assert.match(changed(index + 18, 1), /fill their layer/);
  assert.match(changed(layer + 2000, 0x5a), /checksum/);
});
