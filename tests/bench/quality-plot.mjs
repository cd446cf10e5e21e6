// Draws the plot of npm run bench:quality: one row per switch, with one panel per figure over the
// levels of the switch, from the exact model on the left to the roughest approximation. Colours are
// legible on light and dark backgrounds.
const kWidth = 900;
const kRow = 210;
const kPanel = { left: 46, top: 46, width: 236, height: 108, step: 300 };
const kColours = ['#2f81f7', '#d2691e'];

const text = (x, y, words, extra = '') =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${extra}>${words}</text>`;
const number = (v) => (v >= 100 ? v.toFixed(0) : v.toPrecision(3));

/**
 * Returns the SVG. switches: [{ name, levels: [label], panels: [panel] }]; a panel is
 * { title, most?, lines: [[name, [value per level]]] }, where `most` is the top of its axis.
 */
export function drawPanels(switches) {
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${kWidth} ${kRow * switches.length}" font-family="system-ui, sans-serif" font-size="11" fill="#808080">`,
  ];
  for (const [row, { name, levels, panels }] of switches.entries()) {
    out.push(text(12, row * kRow + 18, name, 'font-size="14"'));
    for (const [i, panel] of panels.entries()) {
      out.push(...drawPanel(panel, levels, kPanel.left + i * kPanel.step, row * kRow + kPanel.top));
    }
  }
  return `${out.join('\n')}\n</svg>\n`;
}

function drawPanel({ title, lines, most }, levels, left, top) {
  const { width, height } = kPanel;
  const all = lines.flatMap(([, line]) => line);
  const high = most ?? Math.max(...all) * 1.05;
  const low = Math.min(...all) > high / 2 ? Math.min(...all) * 0.95 : 0;
  const x = (i) => left + (levels.length > 1 ? (i / (levels.length - 1)) * width : 0);
  const y = (v) => top + height - ((v - low) / (high - low || 1)) * height;
  const out = [text(left, top - 8, title)];
  for (const v of [low, high]) {
    out.push(
      `<line x1="${left}" y1="${y(v)}" x2="${left + width}" y2="${y(v)}" stroke="#808080" stroke-opacity="0.3"/>`,
    );
    out.push(text(left - 6, y(v) + 4, number(v), 'text-anchor="end"'));
  }
  for (const [i, level] of levels.entries())
    out.push(text(x(i), top + height + 16, level, 'text-anchor="middle"'));
  for (const [i, [name, line]] of lines.entries()) {
    const points = line.map((v, at) => `${x(at).toFixed(1)},${y(v).toFixed(1)}`);
    out.push(
      `<polyline fill="none" stroke="${kColours[i]}" stroke-width="2" points="${points.join(' ')}"/>`,
    );
    out.push(
      ...points.map(
        (p) =>
          `<circle cx="${p.split(',')[0]}" cy="${p.split(',')[1]}" r="3" fill="${kColours[i]}"/>`,
      ),
    );
    out.push(
      text(
        left + width - 4 - 60 * (lines.length - 1 - i),
        top + height - 5,
        name,
        `text-anchor="end" fill="${kColours[i]}"`,
      ),
    );
  }
  return out;
}
