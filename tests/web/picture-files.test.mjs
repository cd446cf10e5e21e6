// Decoding in the worker: the pictures of tests/data/pictures (tests/reference/make_pictures.cpp)
// show what their makers' formula says, as they do to the native decoders; damaged and hostile files
// are errors. In Chromium, the package suite reads the same files.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { importWeb, root } from './helpers.mjs';
import { kFiles, differs } from './picture-samples.mjs';

const folder = join(root, 'tests', 'data', 'pictures');
const read = (name) => new Uint8Array(readFileSync(join(folder, name)));
const error = (code, message) => Object.assign(new Error(message), { code });

let decode;
before(async () => {
  const { decodeImage } = await importWeb('worker/pictures/decode');
  decode = (image, file) => decodeImage(image, { file: file ?? refuse }, error);
});
const refuse = async () => {
  throw error('NOT_SUPPORTED', 'only PNG');
};

test('PNG files of all kinds show what they should', async () => {
  for (const [name, sample] of Object.entries(kFiles)) {
    if (!name.endsWith('.png')) continue;
    assert.equal(differs(await decode(read(name)), sample), null, name);
    assert.equal(differs(await decode(new Blob([read(name)])), sample), null, name);
  }
});

test('every other format goes to the platform with its name', async () => {
  for (const name of readdirSync(folder)) {
    if (name.endsWith('.png')) continue;
    const formats = [];
    const pixels = { width: 21, height: 13, data: new Uint8Array(4 * 21 * 13).fill(255) };
    await decode(read(name), async (bytes, format) => (formats.push(format), pixels));
    assert.deepEqual(formats, [name.split('.').pop().replace('jpg', 'jpeg')], name);
  }
});

test('pixels are blended with white', async () => {
  const data = new Uint8ClampedArray([10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 200, 128]);
  const { rgb } = await decode({ width: 3, height: 1, data });
  assert.deepEqual([...rgb], [10, 20, 30, 255, 255, 255, 127, 177, 227]);
  await assert.rejects(decode({ width: 3, height: 2, data }), { code: 'INVALID_ARGUMENT' });
  for (const size of [
    [0, 1],
    [1, NaN],
    [65536, 1],
    [65535, 65535],
    [-2, -2],
    [1.5, 2],
  ])
    await assert.rejects(decode({ width: size[0], height: size[1], data }), {
      code: 'INVALID_ARGUMENT',
    });
});

test('cut and damaged files are errors or pictures, never anything else', async () => {
  for (const name of readdirSync(folder)) {
    const whole = read(name);
    const step = Math.max(1, Math.floor(whole.length / 60));
    for (let n = 0; n < whole.length; n += step) {
      await decode(whole.slice(0, n)).then(
        ({ width, height, rgb }) => assert.equal(rgb.length, 3 * width * height),
        ({ code, message }) => assert.match(code, /^(INVALID_ARGUMENT|NOT_SUPPORTED)$/, message),
      );
      const bad = whole.slice();
      bad[n] ^= 0x55;
      await decode(bad).then(
        ({ width, height, rgb }) => assert.equal(rgb.length, 3 * width * height),
        ({ code, message }) => assert.match(code, /^(INVALID_ARGUMENT|NOT_SUPPORTED)$/, message),
      );
    }
  }
});

test('a header that claims too much is refused before anything is decoded', async () => {
  const claims = async (bytes) => {
    const called = [];
    await assert.rejects(
      decode(bytes, async (_, format) => called.push(format)),
      ({ code, message }) => code === 'INVALID_ARGUMENT' && /pixels; at most/.test(message),
    );
    assert.deepEqual(called, []);
  };
  const png = read('rgb.png');
  new DataView(png.buffer).setUint32(16, 60000);
  new DataView(png.buffer).setUint32(20, 60000);
  await claims(png);
  const jpeg = read('rgb.jpg');
  const at = jpeg.findIndex((byte, i) => byte === 0xff && (jpeg[i + 1] & 0xfe) === 0xc0);
  new DataView(jpeg.buffer).setUint16(at + 5, 65000);
  new DataView(jpeg.buffer).setUint16(at + 7, 65000);
  await claims(jpeg);
  const bmp = read('rgb.bmp');
  new DataView(bmp.buffer).setInt32(18, 100000, true);
  await claims(bmp);
  const gif = read('columns.gif');
  new DataView(gif.buffer).setUint16(6, 65000, true);
  new DataView(gif.buffer).setUint16(8, 65000, true);
  await claims(gif);
  await assert.rejects(decode(new TextEncoder().encode('<svg/>')), {
    code: 'INVALID_ARGUMENT',
    message: /not a picture that can be read/,
  });
});
