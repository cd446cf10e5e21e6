// Writes unicode_tables.cpp: the general category of every code point, reduced to the seven classes
// that pre-tokenizers ask for, four bits each, in three stages so that it is a few kB. The data is
// that of the running Node (process.versions.unicode).
//   node src/tokenizer/unicode_tables.mjs > src/tokenizer/unicode_tables.cpp
const kLimit = 0x110000;
// White_Space, not \s of JavaScript, which adds U+FEFF and leaves out U+0085.
const classes = [/^\p{White_Space}$/u, /^\p{L}$/u, /^\p{N}$/u, /^\p{P}$/u, /^\p{M}$/u, /^\p{S}$/u];
const classValue = [6, 1, 2, 3, 4, 5];

function classOf(cp) {
  if (cp >= 0xd800 && cp < 0xe000) return 0;
  const text = String.fromCodePoint(cp);
  for (let i = 0; i < classes.length; i++) if (classes[i].test(text)) return classValue[i];
  return 0;
}

// Cuts `values` into blocks and numbers the distinct ones.
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
const text = `// Made by unicode_tables.mjs from Unicode ${process.versions.unicode}; do not edit. Character classes in three
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
process.stdout.write(text);
