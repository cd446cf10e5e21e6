// A copy of dist/ whose gpu-pictures.js also appends what the GPU has encoded to a file: the rows of
// each input, as f32. A second file gets a line of JSON for each: its dispatches, those from one
// attention to the next, weight bytes that were uploaded, bytes of the projector that were read, and
// the most bytes on the GPU.
import assert from 'node:assert/strict';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './helpers.mjs';

const kRows = 10; // fields of GpuInput (src/bindings/pictures/pictures.cpp)
const kNRows = 11;
const kWidth = 12;

const wrapper = (rows, counts) => `
import { appendFileSync } from 'node:fs';
import * as own from './gpu-pictures-own.js';
export async function encode(executor, pictures, stopped) {
  const { counts, host, kernels } = executor.shared;
  const { read } = host;
  let words, before, bytesRead, most, names;
  const look = () => (most = Math.max(most, executor.bytes));
  host.read = (file, offset, length) => {
    look();
    bytesRead += length;
    return read(file, offset, length);
  };
  kernels.begin = (...given) => {
    const recorder = Object.getPrototypeOf(kernels).begin.apply(kernels, given);
    const { run } = recorder;
    recorder.run = (variant, values, size, ...rest) => {
      if (!size.includes(0)) names.push(variant.name);
      run.call(recorder, variant, values, size, ...rest);
    };
    return recorder;
  };
  try {
    return await own.encode(executor, {
      gpuInput() {
        const address = pictures.gpuInput();
        words = new Uint32Array(host.memory.buffer, address, 21);
        before = { ...counts };
        [bytesRead, most, names] = [0, 0, []];
        return address;
      },
      markEncoded() {
        look();
        const floats = words[${kNRows}] * words[${kWidth}];
        appendFileSync(${JSON.stringify(rows)}, new Uint8Array(host.memory.buffer, words[${kRows}], 4 * floats).slice());
        const attention = names.flatMap((name, i) => (name.startsWith('attention') ? [i] : []));
        const line = {
          dispatches: counts.dispatches - before.dispatches,
          layers: attention.slice(1).map((at, i) => at - attention[i]),
          uploaded: counts.uploaded - before.uploaded,
          bytesRead,
          most,
        };
        appendFileSync(${JSON.stringify(counts)}, JSON.stringify(line) + '\\n');
        pictures.markEncoded();
      },
    }, stopped);
  } finally {
    host.read = read;
    delete kernels.begin;
  }
}
`;

/** `Engine` of a copy of dist/, after `change` of its directory. `close` deletes the copy. */
async function changedEngine(change) {
  mkdirSync(join(root, 'build', 'web-tests'), { recursive: true });
  const folder = mkdtempSync(join(root, 'build', 'web-tests', 'gpu-encoder-'));
  const dist = join(folder, 'dist');
  cpSync(join(root, 'dist'), dist, {
    recursive: true,
    filter: (path) => !path.endsWith('.map') && !/^engine\.(?!gpu-full)/.test(basename(path)),
  });
  change(dist);
  const { Engine } = await import(pathToFileURL(join(dist, 'node.js')).href);
  return { Engine, folder, close: () => rmSync(folder, { recursive: true }) };
}

/** The encoder's shaders do not compile. */
export const brokenEngine = () =>
  changedEngine((dist) => {
    const file = join(dist, 'gpu-pictures.js');
    const text = readFileSync(file, 'utf8');
    const broken = text.replaceAll('fn main(', 'fn main((');
    assert.notEqual(broken, text);
    writeFileSync(file, broken);
  });

/** `take` returns what was encoded since its last call. */
export async function recordingEngine() {
  const names = (folder) => ['rows', 'counts'].map((name) => join(folder, name));
  const { Engine, folder, close } = await changedEngine((dist) => {
    cpSync(join(dist, 'gpu-pictures.js'), join(dist, 'gpu-pictures-own.js'));
    writeFileSync(join(dist, 'gpu-pictures.js'), wrapper(...names(dirname(dist))));
  });
  const [rows, counts] = names(folder);
  const take = () => {
    const bytes = existsSync(rows) ? readFileSync(rows) : Buffer.alloc(0);
    const lines = existsSync(counts) ? readFileSync(counts, 'utf8').trim().split('\n') : [];
    for (const file of [rows, counts]) rmSync(file, { force: true });
    return {
      rows: new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4),
      inputs: lines.map((line) => JSON.parse(line)),
    };
  };
  return { Engine, take, close };
}
