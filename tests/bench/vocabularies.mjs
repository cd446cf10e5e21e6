// Vocabularies for the grammar benchmark, as lists of bytes: those of real tokenizers if ../shared
// has them, with all their tokens together as the largest, or else random words.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inRoot } from '../../web/scripts/lib.mjs';

const fixtures = inRoot('..', 'shared', 'fixtures', 'tokenizer');
const kControl = 3; // a value of tokenizer.ggml.token_type

/**
 * [{ name, tokens }]. Tokens are Latin-1 strings, one character per byte; control tokens are empty,
 * and the last token ends the text.
 */
export function vocabularies() {
  if (!existsSync(fixtures))
    return [32_000, 151_936, 262_144].map((n) => ({ name: 'random', tokens: madeWords(n) }));
  const real = (name, n) => resized(tokensOf(join(fixtures, `ggml-vocab-${name}.gguf`)), n);
  const all = readdirSync(fixtures)
    .filter((name) => /^ggml-vocab-(?!bert).*\.gguf$/.test(name))
    .flatMap((name) => tokensOf(join(fixtures, name)));
  return [
    { name: "Llama 2's", tokens: real('llama-spm', 32_000) },
    { name: "Qwen 2's", tokens: real('qwen2', 151_936) },
    { name: 'seven together', tokens: resized([...new Set(all)], 262_144) },
  ];
}

/** Extends or cuts the list to n tokens, the last of which is empty. */
function resized(tokens, n) {
  const known = new Set(tokens);
  const more = madeWords(n).filter((word) => !known.has(word));
  return [...tokens, ...more].slice(0, n - 1).concat('');
}

/**
 * n random words: plain ones, with punctuation, and in other scripts, in proportions as in large
 * vocabularies.
 */
function madeWords(n) {
  let state = 1;
  const any = (of) => (state = (state * 48271) % 2147483647) % of;
  const marks = ['"', '",', '":', '\n', '\n\n', '  ', '{', '}', '\\', '();', '="', '\t'];
  const byte = (code) => String.fromCharCode(code);
  const words = new Set(Array.from({ length: 256 }, (_, i) => byte(i)));
  const letters = [
    () => byte(97 + Math.min(any(26), any(26))),
    () => byte(0xe4) + byte(0xb8 + any(6)) + byte(0x80 + any(64)),
    () => byte(48 + any(10)),
  ];
  while (words.size < n - 1) {
    const script = letters[[0, 0, 0, 0, 0, 0, 0, 1, 1, 2][any(10)]];
    const word = Array.from({ length: any(8) + 1 }, script).join('');
    words.add((any(2) ? '' : ' ') + word + (any(12) ? '' : marks[any(12)]));
  }
  return [...words, ''];
}

/** The tokens of a GGUF file, as bytes. */
function tokensOf(path) {
  const file = readFileSync(path);
  const { model, tokens, token_type: types } = metadata(file);
  const decode = model === 'llama' ? spaced : byteLevel;
  return tokens.map((token, i) => (types?.[i] === kControl ? '' : decode(token)));
}

const latin = (text) => Buffer.from(text).toString('latin1');
const spaced = (token) =>
  /^<0x[\dA-F]{2}>$/.test(token)
    ? String.fromCharCode(Number(token.slice(1, 5)))
    : latin(token.replaceAll('▁', ' '));

/** GPT-2's byte-level vocabularies write non-printable bytes as other characters. */
const kByteOf = new Map();
for (let byte = 0, other = 256; byte < 256; byte++) {
  const shown = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  kByteOf.set(String.fromCharCode(shown ? byte : other++), String.fromCharCode(byte));
}
const byteLevel = (token) =>
  [...token].every((c) => kByteOf.has(c))
    ? [...token].map((c) => kByteOf.get(c)).join('')
    : latin(token);
const kCharacterOf = new Map([...kByteOf].map(([character, byte]) => [byte, character]));
/** The spelling of bytes in such a vocabulary. */
export const byteLevelName = (bytes) => [...bytes].map((byte) => kCharacterOf.get(byte)).join('');

/** The metadata of a GGUF header whose keys begin with tokenizer.ggml., without that prefix. */
function metadata(file) {
  let at = 16;
  const number = () => Number(file.readBigUInt64LE((at += 8) - 8));
  const text = () => {
    const size = number();
    return file.toString('utf8', at, (at += size));
  };
  const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
  const value = (type) => {
    if (type === 8) return text();
    if (type === 9) {
      const of = file.readUInt32LE(at);
      at += 4;
      return Array.from({ length: number() }, () => value(of));
    }
    at += sizes[type];
    return type === 5 ? file.readInt32LE(at - 4) : null;
  };
  const found = {};
  for (let left = number(); left > 0; left--) {
    const key = text();
    const type = file.readUInt32LE(at);
    at += 4;
    const read = value(type);
    if (key.startsWith('tokenizer.ggml.')) found[key.slice(15)] = read;
  }
  return found;
}
