// Writes PNG files of every kind with random samples, and says what they show over white. Each row
// has another filter. The text of the standard: https://www.w3.org/TR/png-3/
import { crc32, deflateSync } from 'node:zlib';
import { random } from './random.mjs';

const kChannels = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
const kPasses = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
];

/** Colour types with their depths, with and without transparent colours. */
export const kinds = Object.entries({ 0: [1, 2, 4, 8, 16], 2: [8, 16], 3: [1, 2, 4, 8] })
  .flatMap(([colour, depths]) =>
    depths.flatMap((depth) => [false, true].map((hidden) => ({ colour: +colour, depth, hidden }))),
  )
  .concat([4, 6].flatMap((colour) => [8, 16].map((depth) => ({ colour, depth }))));

export function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), Buffer.from(data)]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(body.length - 4, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

const paeth = (a, b, c) => {
  const p = a + b - c;
  const [pa, pb, pc] = [Math.abs(p - a), Math.abs(p - b), Math.abs(p - c)];
  if (pa <= pb && pa <= pc) return a;
  return pb <= pc ? b : c;
};

/** Rows of samples as bytes, each behind its filter. */
function filtered(rows, depth, channels) {
  const step = Math.max(1, (depth * channels) / 8);
  let above = null;
  return Buffer.concat(
    rows.map((samples, y) => {
      const row = Buffer.alloc(Math.ceil((samples.length * depth) / 8));
      samples.forEach((sample, i) => {
        if (depth === 16) row.writeUInt16BE(sample, 2 * i);
        else row[(i * depth) >> 3] |= sample << (8 - depth - ((i * depth) & 7));
      });
      above ??= Buffer.alloc(row.length);
      const filter = y % 5;
      const out = Buffer.alloc(row.length + 1);
      out[0] = filter;
      for (let i = 0; i < row.length; i++) {
        const a = i < step ? 0 : row[i - step];
        const b = above[i];
        const c = i < step ? 0 : above[i - step];
        out[1 + i] = row[i] - [0, a, b, (a + b) >> 1, paeth(a, b, c)][filter];
      }
      above = row;
      return out;
    }),
  );
}

/**
 * `hidden`: a transparent colour, or a palette with alpha. `packed`: in place of the rows. `more`:
 * chunks before the rows.
 */
export function pngOf({ colour, depth, hidden, interlaced, width, height, packed, more = [] }) {
  const next = random(colour * 100 + depth);
  const below = (n) => Math.floor(next() * n);
  const channels = kChannels[colour];
  const most = 2 ** depth - 1;
  const pixels = Array.from({ length: height }, () =>
    Array.from({ length: width }, () => Array.from({ length: channels }, () => below(most + 1))),
  );
  const entries = colour === 3 ? most + 1 : 0;
  const palette = Array.from({ length: entries }, () => [below(256), below(256), below(256)]);
  const alphas = Array.from({ length: hidden ? Math.ceil(entries / 2) : 0 }, () => below(256));
  const key = hidden && colour !== 3 ? pixels[0][0] : null;
  const rgb = new Uint8Array(3 * width * height);
  const byte = (sample) => Math.round((sample * 255) / most);
  pixels.flat().forEach((pixel, i) => {
    let shown =
      channels < 3 ? [pixel[0], pixel[0], pixel[0]].map(byte) : pixel.slice(0, 3).map(byte);
    let alpha = channels % 2 === 0 ? byte(pixel.at(-1)) : 255;
    if (key && key.every((sample, c) => sample === pixel[c])) alpha = 0;
    if (colour === 3) [shown, alpha] = [palette[pixel[0]], alphas[pixel[0]] ?? 255];
    shown.forEach((value, c) => {
      rgb[3 * i + c] = Math.floor((value * alpha + 255 * (255 - alpha) + 127) / 255);
    });
  });
  const rows = (interlaced ? kPasses : [[0, 0, 1, 1]]).map(([x, y, stepX, stepY]) => {
    const own = [];
    for (let v = y; v < height && x < width; v += stepY) {
      own.push([]);
      for (let u = x; u < width; u += stepX) own.at(-1).push(...pixels[v][u]);
    }
    return filtered(own, depth, channels);
  });
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([depth, colour, 0, 0, interlaced ? 1 : 0], 8);
  const data = packed ?? deflateSync(Buffer.concat(rows));
  const keyBytes = (key ?? []).flatMap((sample) => [sample >> 8, sample & 255]);
  const parts = [
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    ...(entries ? [chunk('PLTE', palette.flat())] : []),
    ...(hidden ? [chunk('tRNS', key ? keyBytes : alphas)] : []),
    ...more,
    chunk('IDAT', data.subarray(0, 30)),
    chunk('IDAT', data.subarray(30)),
    chunk('IEND', []),
  ];
  return { file: new Uint8Array(Buffer.concat(parts)), rgb };
}
