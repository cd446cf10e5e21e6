// Writes tests/data/pretokenize.txt: how each pre-tokenizer splits texts with hard cases. The
// reference is independent of the scanners under test: the published regular expressions, run by
// JavaScript's engine.
//   node tests/reference/pretokenize.mjs > tests/data/pretokenize.txt
// A line holds the name, a tab, and the words separated by spaces. Ambiguous bytes are written as
// \xNN.

const S = '[\\p{White_Space}]'; // \s as the tokenizers define it
const notS = '[^\\p{White_Space}]';
const W = '\\p{White_Space}';
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${W}\\p{L}\\p{N}]+|${S}+(?!${notS})|${S}+`;
const any = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]";
const tail = `${S}*[\\r\\n]+|${S}+(?!${notS})|${S}+`;
const likeLlama3 = (digits, ends = '[\\r\\n]*') =>
  `(?:${any})|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^${W}\\p{L}\\p{N}]+${ends}|${tail}`;
const qwen35 = `(?:${any})|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^${W}\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${tail}`;
const up = '(?:(?=\\p{L})[^a-z])';
const low = '(?:(?=\\p{L})[^A-Z])';
const cased = (contraction, digits) =>
  `[^\\r\\n\\p{L}\\p{N}]?${up}*${low}+${contraction}|[^\\r\\n\\p{L}\\p{N}]?${up}+${low}*${contraction}` +
  `|\\p{N}${digits}| ?[^${W}\\p{L}\\p{N}]+[\\r\\n/]*|${tail}`;
const deepseek3 =
  `[!"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_\`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+` +
  `| ?[\\p{P}\\p{S}]+[\\r\\n]*|${tail}`;
const punctuation = '\\p{P}$+<=>^~|';
const cjk = `(?:(?!${S})[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF])+`;
// Cased letters of DeepSeek's list, as far as the texts below need them.
const deepseekLetters =
  'A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u0370-\\u0373\\u0388-\\u038A\\u03A3-\\u03F5\\u0400-\\u0481\\u1E00-\\u1F15';
const bloom = ` ?[^(${W}|.,!?\\u2026\\u3002\\uFF0C\\u3001\\u0964\\u06D4\\u060C)]+`;

const rules = {
  default: [`[${punctuation}]+`, gpt2, '\\p{N}+', '[0-9][0-9][0-9]'],
  'gpt-2': [gpt2],
  'llama-bpe': [likeLlama3('{1,3}')],
  qwen2: [likeLlama3('')],
  qwen35: [qwen35],
  'seed-coder': [likeLlama3('', '').replace(`[^${W}\\p{L}\\p{N}]+`, `[^${W}\\p{L}\\p{N}\\r\\n]+`)],
  minicpm5: ['\\p{N}{1,3}', likeLlama3('+')],
  'deepseek-llm': [
    '[\\r\\n]',
    `${S}?[${deepseekLetters}]+`,
    `${S}?(?:(?!${S})[!-\\/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002])+`,
    `${S}+$`,
    cjk,
    '\\p{N}+',
  ],
  'deepseek-coder': ['[\\r\\n]', `${S}?\\p{L}+`, `${S}?\\p{P}+`, cjk, '\\p{N}'],
  'deepseek-v3': ['\\p{N}{1,3}', '[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+', deepseek3],
  falcon: [`[${punctuation}\`]+`, gpt2, '[0-9][0-9][0-9]'],
  starcoder: ['\\p{N}', gpt2],
  tekken: [cased('', '')],
  'gpt-4o': [cased(`(?:${any})?`, '{1,3}')],
  bloom: [bloom],
  viking: [bloom, '\\p{N}'],
};

// Each pass splits every piece of the previous pass into its matches and the text between them.
function split(text, passes) {
  let pieces = [text];
  for (const source of passes) {
    const next = [];
    for (const piece of pieces) {
      let at = 0;
      for (const match of piece.matchAll(new RegExp(source, 'gu'))) {
        if (match.index > at) next.push(piece.slice(at, match.index));
        next.push(match[0]);
        at = match.index + match[0].length;
      }
      if (at < piece.length) next.push(piece.slice(at));
    }
    pieces = next;
  }
  return pieces;
}

const alphabet = [
  'a',
  'b',
  'S',
  'T',
  'LL',
  "'",
  "'s",
  "'RE",
  "'ll",
  ' ',
  '  ',
  '\t',
  '\n',
  '\r\n',
  '\u00A0',
  '\u3000',
  '\u2028',
  '0',
  '7',
  '12',
  '345',
  '\u00B2',
  '\u0663',
  '\u00E9',
  '\u00C9',
  'e\u0301',
  '\u0301',
  '\u0416',
  '\u044F',
  '\u4F60\u597D',
  '\u3042',
  '\u30AB',
  '\uD55C',
  '\u0E44\u0E17\u0E22',
  '\u0915\u094D',
  '.',
  ',',
  '!',
  '/',
  '$',
  '+',
  '`',
  '~',
  '|',
  '(',
  '_',
  '\u3002',
  '\uFF0C',
  '\u2026',
  '\u20AC',
  '\u{1F680}',
  '\u{1F469}\u200D\u{1F467}',
  '\uFE0F',
  '\u0007',
  '\u0000',
  '\uE000',
];
let state = 12345;
const random = (n) => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % n;
};

const fixed = [
  "Hello, world! It's 2026 and we'LL see\n\n  if (x) {\n\treturn 12345;\n}\n",
  '   leading, trailing   ',
  'HTTPServer iPhone\u00C0BC \u00C0B\u00C9c ABC\u00E9',
];
const escape = (word) =>
  [...word]
    .map((c) =>
      c <= ' ' || c === '\\' || c === '\x7f'
        ? `\\x${c.codePointAt(0).toString(16).padStart(2, '0')}`
        : c,
    )
    .join('');

for (const [name, passes] of Object.entries(rules)) {
  const texts = [...fixed];
  for (let i = 0; i < 24; i++) {
    let text = '';
    for (let n = 4 + random(14); n > 0; n--) text += alphabet[random(alphabet.length)];
    texts.push(text);
  }
  for (const text of texts) {
    console.log(`${name}\t${split(text, passes).map(escape).join(' ')}`);
  }
}
