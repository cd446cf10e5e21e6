// Decoding in the worker: the pictures of tests/data/pictures (tests/reference/make_pictures.cpp)
// show what their makers' formula says, as they do to the native decoders; damaged and hostile files
// are errors. JPEG and WebP are those of Node. In Chromium, the package suite reads the same files.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { deflateSync } from 'node:zlib';
import { importWeb, root } from './helpers.mjs';
import { kFiles, differs } from './picture-samples.mjs';
import { chunk, kinds, pngOf } from './png-writer.mjs';

const folder = join(root, 'tests', 'data', 'pictures');
const read = (name) => new Uint8Array(readFileSync(join(folder, name)));
const error = (code, message) => Object.assign(new Error(message), { code });

let decode;
before(async () => {
  const { decodeImage } = await importWeb('worker/pictures/decode');
  const { fileDecoder } = await importWeb('worker/pictures/node-files');
  const inNode = fileDecoder(async (name) => {
    const [format] = name.split('.');
    const codec = join('codec', 'dec', { jpeg: 'mozjpeg_dec.wasm', webp: 'webp_dec.wasm' }[format]);
    const file = join(root, 'node_modules', '@jsquash', format, codec);
    return WebAssembly.compile(readFileSync(file));
  });
  const byNode = (bytes, format, fail) =>
    /jpeg|webp/.test(format) ? inNode(bytes, format, fail) : refuse();
  decode = (image, file) => decodeImage(image, { file: file ?? byNode }, error);
});
const refuse = async () => {
  throw error('NOT_SUPPORTED', 'the engine reads it');
};

test('PNG files of all kinds show what they should', async () => {
  for (const [name, sample] of Object.entries(kFiles)) {
    if (!name.endsWith('.png')) continue;
    assert.equal(differs(await decode(read(name)), sample), null, name);
    assert.equal(differs(await decode(new Blob([read(name)])), sample), null, name);
  }
});

test('JPEG and WebP files show what they should in Node', async () => {
  for (const [name, sample] of Object.entries(kFiles)) {
    if (!/(jpg|webp)$/.test(name)) continue;
    const { off = 0 } = sample;
    assert.equal(differs(await decode(read(name)), { ...sample, off }), null, name);
  }
});

test('a PNG of every kind is the same picture, with all filters, interlaced or not', async () => {
  for (const kind of kinds)
    for (const interlaced of [false, true]) {
      const { file, rgb } = pngOf({ ...kind, interlaced, width: 23, height: 11 });
      const shown = await decode(file);
      assert.deepEqual([shown.width, shown.height], [23, 11]);
      assert.deepEqual(shown.rgb, rgb, JSON.stringify({ ...kind, interlaced }));
    }
  // Passes without pixels.
  for (const [width, height] of [
    [1, 1],
    [3, 1],
    [1, 5],
    [4, 4],
  ]) {
    const { file, rgb } = pngOf({ colour: 2, depth: 8, interlaced: true, width, height });
    assert.deepEqual((await decode(file)).rgb, rgb, `${width} x ${height}`);
  }
});

test('a suggested palette, profiles and texts do not change a PNG', async () => {
  const broken = ['iCCP', 'pHYs', 'tEXt', 'sRGB'].map((type) => chunk(type, [1, 2, 3]));
  const more = [chunk('PLTE', new Uint8Array(48).fill(9)), ...broken];
  for (const colour of [2, 6]) {
    const { file, rgb } = pngOf({ colour, depth: 8, width: 9, height: 7, more });
    assert.deepEqual((await decode(file)).rgb, rgb);
  }
});

test('a PNG that inflates to more than it claims takes no memory', async () => {
  const bomb = deflateSync(new Uint8Array(300 << 20), { level: 9 });
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const watch = setInterval(() => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }, 1);
  const { file } = pngOf({ colour: 2, depth: 8, width: 40, height: 40, packed: bomb });
  assert.equal((await decode(file)).rgb.length, 4800);
  const profile = pngOf({
    colour: 2,
    depth: 8,
    width: 9,
    height: 7,
    more: [chunk('iCCP', [65, 0, 0, ...bomb])],
  });
  assert.deepEqual((await decode(profile.file)).rgb, profile.rgb);
  clearInterval(watch);
  assert.ok(most < 32 << 20, `${most} bytes`);
});

test('a PNG with a wrong checksum or too few rows is an error', async () => {
  const { file } = pngOf({ colour: 2, depth: 8, width: 23, height: 11 });
  const flipped = file.slice();
  flipped[file.length - 20] ^= 1; // in IDAT
  await assert.rejects(decode(flipped), { code: 'INVALID_ARGUMENT', message: /checksum of IDAT/ });
  const few = pngOf({
    colour: 2,
    depth: 8,
    width: 23,
    height: 11,
    packed: deflateSync(new Uint8Array(100)),
  });
  await assert.rejects(decode(few.file), { code: 'INVALID_ARGUMENT', message: /ends too early/ });
  const junk = pngOf({ colour: 2, depth: 8, width: 3, height: 3, packed: Buffer.alloc(50, 7) });
  await assert.rejects(decode(junk.file), { code: 'INVALID_ARGUMENT', message: /damaged/ });
});

test('JPEG files in CMYK and cut ones are named in Node, and good ones are read behind them', async () => {
  for (const name of ['cmyk.jpg', 'ycck.jpg'])
    await assert.rejects(decode(read(name)), { code: 'NOT_SUPPORTED', message: /CMYK/ });
  for (const name of ['progressive.jpg', 'rgb.jpg']) {
    const whole = read(name);
    const cut = { code: 'INVALID_ARGUMENT', message: /damaged/ };
    await assert.rejects(decode(whole.slice(0, whole.length - 40)), cut, name);
    await assert.rejects(decode(whole.slice(0, whole.length / 2)), cut, name);
  }
  // Without its end mark, a file of one scan is complete.
  const { length } = read('rgb.jpg');
  const open = await decode(read('rgb.jpg').slice(0, length - 2));
  assert.equal(differs(open, kFiles['rgb.jpg']), null);
  assert.equal(differs(await decode(read('progressive.jpg')), kFiles['progressive.jpg']), null);
});

test('a JPEG that repeats its scans is refused before it is decoded', async () => {
  const whole = read('progressive.jpg');
  const scan = whole.findLastIndex((byte, i) => byte === 0xff && whole[i + 1] === 0xda);
  const sized = whole.slice(0, -2);
  const frame = sized.findIndex((byte, i) => byte === 0xff && sized[i + 1] === 0xc2);
  new DataView(sized.buffer).setUint16(frame + 5, 8000);
  new DataView(sized.buffer).setUint16(frame + 7, 8000);
  const scans = Array(40).fill(Buffer.from(whole.slice(scan, -2)));
  const file = new Uint8Array(Buffer.concat([sized, ...scans, Buffer.from([0xff, 0xd9])]));
  await assert.rejects(
    decode(file, async () => assert.fail('decoded')),
    { code: 'INVALID_ARGUMENT', message: /too many scans/ },
  );
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
  const second = 4 + new DataView(jpeg.buffer).getUint16(4); // libjpeg skips bytes between segments
  await claims(Uint8Array.from([...jpeg.slice(0, second), 0, 0, ...jpeg.slice(second)]));
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
