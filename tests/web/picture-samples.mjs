// What the files of tests/data/pictures show, as tests/unit/vision_decode_test.cpp has it for
// upright pictures.
export const kWidth = 21;
export const kHeight = 13;

const formula = (x, y, c) => [x * 12, y * 19, 255 - x * 6 - y * 10, x < 4 ? 0 : 15 + x * 12][c];
const grey = (x, y) => formula(x, y, 0);
const blended = (shown) => (x, y, c) => {
  const alpha = formula(x, y, 3);
  return Math.floor((shown(x, y, c) * alpha + 255 * (255 - alpha) + 127) / 255);
};
const columns = (x, y, c) => formula(x, 0, c);
const columnsBlended = (x, y, c) => {
  const alpha = formula(x, 0, 3);
  return Math.floor((formula(x, 0, c) * alpha + 255 * (255 - alpha) + 127) / 255);
};
const lowBits = (bits) => (x) => {
  const most = (1 << bits) - 1;
  return Math.floor(((x & most) * 255) / most);
};
const deep = (x, y, c) => Math.round((formula(x, y, c) * 256 + 200) / 257);
const framed = (x, y, c) => (x >= 4 && x < 20 && y >= 2 && y < 10 ? formula(x, y, c) : 255);
const gifFrame = (x, y, c) =>
  x >= 4 && x < 20 && y >= 2 && y < 10 && x !== 9 ? formula(x, 0, c) : 255;
const noise = (x, y, c) => formula((x * 7 + y * 13 + x * y * 5) % 21, 0, c);

/** By file: what it shows, how far lossy formats are off, and its orientation. */
export const kFiles = {
  'rgb.png': { shown: formula },
  'rgb-interlaced.png': { shown: formula },
  'rgb16.png': { shown: deep },
  'rgba.png': { shown: blended(formula) },
  'rgba-interlaced.png': { shown: blended(formula) },
  'grey.png': { shown: grey },
  'grey-alpha.png': { shown: blended(grey) },
  'grey1.png': { shown: lowBits(1) },
  'grey2.png': { shown: lowBits(2) },
  'grey4.png': { shown: lowBits(4) },
  'palette-alpha.png': { shown: columnsBlended },
  'turned.png': { shown: formula, orientation: 6 },
  'rgb.jpg': { shown: formula, off: 12 },
  'halved.jpg': { shown: formula, off: 24 },
  'progressive.jpg': { shown: formula, off: 12 },
  'grey.jpg': { shown: grey, off: 6 },
  'turned.jpg': { shown: formula, off: 12, orientation: 6 },
  'lossless.webp': { shown: formula },
  // A canvas multiplies colours by alpha.
  'lossless-alpha.webp': { shown: blended(formula), off: 2 },
  'lossy.webp': { shown: formula, off: 32 },
  'turned.webp': { shown: formula, orientation: 8 },
  'rgb.bmp': { shown: formula },
  'top-down.bmp': { shown: formula },
  'palette.bmp': { shown: columns },
  'columns.gif': { shown: columns },
  'long.gif': { shown: noise },
  'frame.gif': { shown: gifFrame },
  'animation.webp': { shown: framed },
};

/** null, or where a decoded picture is not what the sample shows. */
export function differs({ width, height, rgb }, { shown, off = 0, orientation = 1 }) {
  const turned = orientation >= 5;
  const size = turned ? [kHeight, kWidth] : [kWidth, kHeight];
  if (width !== size[0] || height !== size[1]) return `${width} x ${height}`;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [u, v] =
        orientation === 6 ? [y, kHeight - 1 - x] : orientation === 8 ? [kWidth - 1 - y, x] : [x, y];
      for (let c = 0; c < 3; c++) {
        const is = rgb[3 * (y * width + x) + c];
        const wanted = shown(u, v, c);
        if (Math.abs(is - wanted) > off) return `at ${x}, ${y}, ${c}: ${is}, not ${wanted}`;
      }
    }
  return null;
}
