// Writes unicode_tables.cpp: the general category of every code point, reduced to the seven classes
// that pre-tokenizers use. A class takes four bits, and a three-stage table takes a few kB. The data
// comes from the running Node (process.versions.unicode).
//   node src/tokenizer/unicode_tables.mjs > src/tokenizer/unicode_tables.cpp
//   node src/tokenizer/unicode_tables.mjs nfc > src/tokenizer/nfc_tables.cpp
//   node src/tokenizer/unicode_tables.mjs fold > src/tokenizer/fold_tables.cpp
// The second command writes the tables of normalization form C, the third those of lower case and of
// marks. Only native builds use these two.
const kLimit = 0x110000;
// White_Space, not JavaScript's \s, which adds U+FEFF and omits U+0085.
const classes = [/^\p{White_Space}$/u, /^\p{L}$/u, /^\p{N}$/u, /^\p{P}$/u, /^\p{M}$/u, /^\p{S}$/u];
const classValue = [6, 1, 2, 3, 4, 5];

function classOf(cp) {
  if (cp >= 0xd800 && cp < 0xe000) return 0;
  const text = String.fromCodePoint(cp);
  for (let i = 0; i < classes.length; i++) if (classes[i].test(text)) return classValue[i];
  return 0;
}

// Splits `values` into blocks and numbers the distinct ones.
function fold(values, size) {
  const seen = new Map();
  const index = [];
  const blocks = [];
  for (let i = 0; i < values.length; i += size) {
    const block = values.slice(i, i + size);
    const key = block.join();
    if (!seen.has(key)) {
      seen.set(key, seen.size);
      blocks.push(...block);
    }
    index.push(seen.get(key));
  }
  return { index, blocks };
}

function list(name, type, values) {
  const lines = [];
  let line = '   ';
  for (const v of values) {
    const item = ` ${v},`;
    if (line.length + item.length > 100) {
      lines.push(line);
      line = '   ';
    }
    line += item;
  }
  lines.push(line);
  return `extern const ${type} ${name}[${values.length}] = {\n${lines.join('\n')}\n};\n`;
}

// --- normalization -------------------------------------------------------------------------------

const kHangul = 0xac00,
  kHangulEnd = 0xd7a4;
const text = (...cps) => String.fromCodePoint(...cps);

/** Code points that decompose, a single level of it: [cp, first, second or 0]. */
function decompositions() {
  const whole = new Map(); // by decomposition
  const out = [];
  for (let cp = 0xc0; cp < kLimit; cp++) {
    if ((cp >= 0xd800 && cp < 0xe000) || (cp >= kHangul && cp < kHangulEnd)) continue;
    const nfd = text(cp).normalize('NFD');
    if (nfd === text(cp)) continue;
    out.push([cp, ...nfd].map((x) => x.codePointAt?.(0) ?? x));
    if (!whole.has(nfd) || text(cp).normalize('NFC') === text(cp)) whole.set(nfd, cp);
  }
  return out.map(([cp, ...parts]) => {
    if (parts.length === 1) return [cp, parts[0], 0];
    const second = parts.pop();
    return [cp, parts.length === 1 ? parts[0] : whole.get(text(...parts)), second];
  });
}

/** Runs of marks of one combining class. Classes are numbered by their order; only the order counts. */
function combiningRanges() {
  const swaps = (a, b) => text(a, b).normalize('NFD') !== text(a, b);
  const marks = [];
  for (let cp = 0x300; cp < kLimit; cp++) {
    if (cp >= 0xd800 && cp < 0xe000) continue;
    if (!/\p{M}/u.test(text(cp)) || text(cp).normalize('NFD') !== text(cp)) continue;
    if (swaps(cp, 0x334) || swaps(0x345, cp)) marks.push(cp);
  }
  const ordered = [...marks].sort((a, b) => (swaps(a, b) ? 1 : swaps(b, a) ? -1 : 0));
  const number = new Map();
  let n = 1;
  ordered.forEach((cp, i) =>
    number.set(
      cp,
      i > 0 && swaps(cp, ordered[i - 1]) === false && swaps(ordered[i - 1], cp) === false
        ? n
        : i > 0
          ? ++n
          : n,
    ),
  );
  const ranges = [];
  for (const cp of marks) {
    const last = ranges.at(-1);
    if (last && last[1] + 1 === cp && last[2] === number.get(cp)) last[1] = cp;
    else ranges.push([cp, cp, number.get(cp)]);
  }
  return ranges;
}

function rows(declaration, items) {
  const lines = [];
  let line = '   ';
  for (const item of items) {
    const part = ` ${Array.isArray(item) ? `{${item.join(', ')}}` : item},`;
    if (line.length + part.length > 100) {
      lines.push(line);
      line = '   ';
    }
    line += part;
  }
  return `${declaration} = {\n${[...lines, line].join('\n')}\n};\n`;
}

if (process.argv[2] === 'nfc') {
  const entries = decompositions();
  const composing = entries
    .map((_, i) => i)
    .filter(
      (i) =>
        entries[i][2] &&
        text(entries[i][1], entries[i][2]).normalize('NFC') === text(entries[i][0]),
    );
  composing.sort((a, b) => entries[a][1] - entries[b][1] || entries[a][2] - entries[b][2]);
  const ranges = combiningRanges();
  process.stdout
    .write(`// Made by unicode_tables.mjs from Unicode ${process.versions.unicode}; do not edit. Combining classes are numbered by
// their order. In a browser JavaScript normalizes.
// clang-format off
#ifndef __EMSCRIPTEN__
#include "tokenizer/nfc_tables.h"

namespace sluice::tokenizer {

${rows('const Decomposition kDecompositions[]', entries)}const size_t kDecompositionCount = ${entries.length};

${rows('const uint16_t kCompositions[]', composing)}const size_t kCompositionCount = ${composing.length};

${rows('const CombiningRange kCombining[]', ranges)}const size_t kCombiningCount = ${ranges.length};

}  // namespace sluice::tokenizer
#endif
`);
  process.exit();
}

if (process.argv[2] === 'fold') {
  const valid = (cp) => cp < 0xd800 || cp >= 0xe000;
  // Runs of upper-case letters with the same distance to lower case, one or two apart.
  const lower = [];
  for (let cp = 0; cp < kLimit; cp++) {
    if (!valid(cp) || cp === 0x130) continue; // becomes two characters
    const by = text(cp).toLowerCase().codePointAt(0) - cp;
    if (by === 0) continue;
    const last = lower.at(-1);
    const step = last ? cp - last[1] : 0;
    const extends_ =
      last &&
      last[3] === by &&
      (step === 1 || step === 2) &&
      (last[0] === last[1] || last[2] === step);
    if (extends_) last.splice(1, 2, cp, step);
    else lower.push([cp, cp, 1, by]);
  }
  const marks = [];
  for (let cp = 0x300; cp < kLimit; cp++) {
    if (!valid(cp) || !/\p{Mn}/u.test(text(cp))) continue;
    if (marks.at(-1)?.[1] === cp - 1) marks.at(-1)[1] = cp;
    else marks.push([cp, cp]);
  }
  process.stdout
    .write(`// Made by unicode_tables.mjs from Unicode ${process.versions.unicode}; do not edit. In a browser JavaScript
// folds.
// clang-format off
#ifndef __EMSCRIPTEN__
#include "tokenizer/fold_tables.h"

namespace sluice::tokenizer {

${rows('const LowerRange kLower[]', lower)}const size_t kLowerCount = ${lower.length};

${rows('const MarkRange kMarks[]', marks)}const size_t kMarkCount = ${marks.length};

}  // namespace sluice::tokenizer
#endif
`);
  process.exit();
}

const all = Array.from({ length: kLimit }, (_, cp) => classOf(cp));
let best = null;
for (let low = 4; low <= 7; low++) {
  for (let mid = 3; mid <= 7; mid++) {
    const leaf = fold(all, 1 << low);
    const middle = fold(leaf.index, 1 << mid);
    if (middle.blocks.length >> mid > 255) continue;
    const bytes = leaf.blocks.length / 2 + 2 * middle.blocks.length + middle.index.length;
    if (!best || bytes < best.bytes) best = { low, mid, leaf, middle, bytes };
  }
}
const nibbles = [];
for (let i = 0; i < best.leaf.blocks.length; i += 2) {
  nibbles.push(best.leaf.blocks[i] | (best.leaf.blocks[i + 1] << 4));
}
const source = `// Made by unicode_tables.mjs from Unicode ${process.versions.unicode}; do not edit. Character classes in three
// stages, ${best.bytes} bytes: root by cp >> ${best.low + best.mid}, then ${1 << best.mid} leaves, then ${1 << best.low} classes of four bits.
// clang-format off
#include "tokenizer/unicode.h"

namespace sluice::tokenizer {

static_assert(kUnicodeLeafBits == ${best.low} && kUnicodeMiddleBits == ${best.mid});

${list('kUnicodeRoot', 'uint8_t', best.middle.index)}
${list('kUnicodeMiddle', 'uint16_t', best.middle.blocks)}
${list('kUnicodeLeaves', 'uint8_t', nibbles)}
}  // namespace sluice::tokenizer
`;
process.stdout.write(source);
