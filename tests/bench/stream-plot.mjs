// Draws the plot of npm run bench:stream: tokens per second over the budget, one colour per
// platform. Points and solid lines are measured; dashed lines are the limit of the storage. Both
// axes are logarithmic. Colours are legible on light and dark backgrounds.
const kWidth = 760;
const kHeight = 400;
const kLeft = 60;
const kRight = 150;
const kTop = 34;
const kBottom = 50;
const kColours = ['#2f81f7', '#d2691e'];

/**
 * Returns the SVG. curves: [{ name, rows: [{ budget, decode, store }] }]; size: bytes of the model
 * file.
 */
export function drawCurve(curves, size, label) {
  const points = curves.flatMap(({ rows }) => rows);
  const share = (row) => Math.log2(row.budget / size);
  const xs = points.map(share);
  const ys = points
    .flatMap((row) => [row.decode, row.store])
    .filter(Number.isFinite)
    .map(Math.log2);
  const [x0, x1] = [Math.floor(Math.min(...xs)), Math.ceil(Math.max(...xs))];
  const [y0, y1] = [Math.floor(Math.min(...ys)), Math.ceil(Math.max(...ys))];
  const x = (v) => kLeft + ((v - x0) / (x1 - x0)) * (kWidth - kLeft - kRight);
  const y = (v) => kHeight - kBottom - ((v - y0) / (y1 - y0)) * (kHeight - kTop - kBottom);
  const text = (at, down, words, extra = '') =>
    `<text x="${at.toFixed(1)}" y="${down.toFixed(1)}" ${extra}>${words}</text>`;
  const line = (list, colour, extra = '') =>
    `<polyline fill="none" stroke="${colour}" stroke-width="2" ${extra} points="${list.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(' ')}"/>`;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${kWidth} ${kHeight}" font-family="system-ui, sans-serif" font-size="13" fill="#808080">`,
    text(kLeft, 20, `Decode of ${label}, tokens per second by memory budget`, 'font-size="15"'),
  ];
  const grid = (a, b, c, d) =>
    `<line x1="${a}" y1="${b}" x2="${c}" y2="${d}" stroke="#808080" stroke-opacity="0.3"/>`;
  for (let v = x0; v <= x1; v++) {
    out.push(
      grid(x(v), y(y0), x(v), y(y1)),
      text(x(v), kHeight - kBottom + 18, percent(2 ** v), 'text-anchor="middle"'),
    );
  }
  for (let v = y0; v <= y1; v++) {
    out.push(
      grid(x(x0), y(v), x(x1), y(v)),
      text(kLeft - 8, y(v) + 4, String(2 ** v), 'text-anchor="end"'),
    );
  }
  out.push(
    text(
      (x(x0) + x(x1)) / 2,
      kHeight - 10,
      'budget as a share of the file',
      'text-anchor="middle"',
    ),
  );
  for (const [i, { name, rows }] of curves.entries()) {
    const colour = kColours[i];
    const sorted = [...rows].sort((a, b) => a.budget - b.budget);
    const measured = sorted.map((row) => [x(share(row)), y(Math.log2(row.decode))]);
    const limit = sorted
      .filter((row) => Number.isFinite(row.store))
      .map((row) => [x(share(row)), y(Math.log2(row.store))]);
    out.push(line(limit, colour, 'stroke-dasharray="5 4"'), line(measured, colour));
    out.push(
      ...measured.map(
        ([a, b]) => `<circle cx="${a.toFixed(1)}" cy="${b.toFixed(1)}" r="4" fill="${colour}"/>`,
      ),
    );
    const top = kTop + 20 + i * 60;
    const key = kWidth - kRight + 16;
    out.push(
      line(
        [
          [key, top],
          [key + 26, top],
        ],
        colour,
      ),
      text(key + 32, top + 4, name),
    );
    out.push(
      line(
        [
          [key, top + 20],
          [key + 26, top + 20],
        ],
        colour,
        'stroke-dasharray="5 4"',
      ),
      text(key + 32, top + 24, "store's limit"),
    );
  }
  return `${out.join('\n')}\n</svg>\n`;
}

function percent(share) {
  const value = share * 100;
  return `${value >= 1 ? value.toFixed(0) : value.toFixed(1)} %`;
}
