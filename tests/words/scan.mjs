// Finds the names and phrases of words.mjs in texts. Pure functions of a path and its text; files()
// alone reads the tree, so that the tests can feed samples.
//
// A finding is { path, line, kind, word, instead }. Phrases are looked for in the unwrapped text, in
// which a line break with the comment marks around it is one space, since most of them are wrapped.
import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { inRoot } from '../../web/scripts/lib.mjs';
import * as data from './words.mjs';

/** Files of the tree that git would track, without those that are excluded: { path, text }. */
export function files(excluded = data.excluded) {
  const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], {
    cwd: inRoot(),
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  return [...new Set(listed.split('\0'))]
    .filter((path) => path && !excluded.some((e) => e.path.test(path)))
    .filter((path) => existsSync(inRoot(path)) && lstatSync(inRoot(path)).isFile())
    .map((path) => ({ path, text: readFileSync(inRoot(path), 'utf8') }))
    .filter(({ text }) => !text.includes('\0'));
}

/** The index of the last of ascending `starts`, which begin with 0, that is at most `offset`. */
function lastAtMost(starts, offset) {
  let low = 0;
  let high = starts.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= offset) low = middle;
    else high = middle;
  }
  return low;
}

/** Turns offsets of a text into line numbers, from 1. */
function lineOf(text) {
  const starts = [0];
  for (let i = text.indexOf('\n'); i >= 0; i = text.indexOf('\n', i + 1)) starts.push(i + 1);
  return (offset) => lastAtMost(starts, offset) + 1;
}

/**
 * The text with every line break, the marks of comments and quotes around it, and runs of blanks as
 * one space; and a function from its offsets to those of the text.
 */
export function unwrapped(text) {
  const breaks =
    /[ \t]*["'`]?[ \t]*(?:\+|\\n\\)?[ \t]*\n[ \t]*(?:(?:\/\/[/!]?|\*(?!\/)|#+|>|--|;)[ \t]*|["'`](?=\S))?|[ \t]{2,}/g;
  const from = [0];
  const to = [0];
  let out = '';
  let last = 0;
  for (const { 0: found, index } of text.matchAll(breaks)) {
    out += `${text.slice(last, index)} `;
    last = index + found.length;
    from.push(out.length);
    to.push(last);
  }
  out += text.slice(last);
  const original = (offset) => {
    const i = lastAtMost(from, offset);
    return to[i] + offset - from[i];
  };
  return { text: out, original };
}

/** C-like code with comments and the insides of strings as blanks, of the same length. */
export function codeOnly(text) {
  const parts =
    /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`/g;
  return text.replace(parts, (part) => part.replace(/[^\n]/g, ' '));
}

/** getHTTPName, get_name, kMostBytes → their words. */
export function segmentsOf(identifier) {
  return identifier
    .split(/[_$]+/)
    .flatMap((part) => part.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g) ?? []);
}

const identifier = /[A-Za-z_$][\w$]*/g;

function segmentRule(name) {
  if (!/[A-Z_]/.test(name)) return undefined;
  const words = segmentsOf(name);
  for (const rule of data.segments) {
    if (rule.first) {
      if (words.length > 2 && rule.word.test(words[0] + words[1])) return rule;
    } else if ((words.length > 1 || rule.alone) && words.some((word) => rule.word.test(word))) {
      return rule;
    }
  }
  return undefined;
}

const rules = new Map(); // of identifiers seen: undefined where they are right

function identifierRule(name) {
  if (!rules.has(name)) {
    const instead = Object.hasOwn(data.identifiers, name) ? data.identifiers[name] : undefined;
    rules.set(name, instead ?? segmentRule(name)?.instead);
  }
  return rules.get(name);
}

const spaced = (pattern) => pattern.replaceAll(' ?', '\\s?').replaceAll(' ', '\\s');
const phrases = data.phrases.map((phrase) => ({
  ...phrase,
  pattern: new RegExp(`(?<![\\w-])(?:${spaced(phrase.find)})(?![\\w-])`, 'gi'),
}));
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
const either = (names) => Object.keys(names).map(escaped).join('|');
const optionPattern = new RegExp(`(?<![\\w-])(?:${either(data.options)})(?![\\w-])`, 'g');
const scriptPattern = new RegExp(`\\b(?:${either(data.scripts)})(?![\\w-])`, 'g');
const directoryPattern = new RegExp(`(?<![\\w])(?:${either(data.directories)})(?![\\w.-])`, 'g');
const headingPattern = new RegExp(`^#+ +(${either(data.headings)}) *$`, 'gm');

const suffixes = ['', '_native', '_posix', '_windows', '.test'];
const suffix = `(?:${suffixes.map(escaped).join('|')})`;

/** What files of a directory end in. */
function extensionsOf(path) {
  if (path.startsWith('kernels/wgsl/')) return ['wgsl'];
  if (/^(kernels|src)\//.test(path)) return ['h', 'cpp'];
  if (/^(web|examples)\//.test(path)) return ['ts', 'js'];
  return /^tests\/(web|bench)\//.test(path) ? ['mjs', 'ts'] : ['h', 'cpp', 'mjs'];
}

/** By old path without extension: the new one. */
const renamed = Object.entries(data.files).flatMap(([folder, names]) =>
  Object.entries(names).map(([from, to]) => [`${folder}/${from}`, `${folder}/${to}`]),
);
const oldFile = new RegExp(
  `^(${renamed.map(([from]) => escaped(from)).join('|')})${suffix}\\.\\w+$`,
);

const fileMention = /(?<![\w.<-])([\w-]+\/)*[\w-]+(?:\.test)?\.(?:h|cpp|ts|js|mjs|wgsl)(?![\w-])/g;

/**
 * Old files as they are mentioned, to their new names: by folder and name, and by the name alone
 * where no file of the tree is called so now.
 */
export function mentions(paths) {
  const present = new Set(paths.map((path) => basename(path)));
  const found = new Map();
  for (const [from, to] of renamed) {
    const name = basename(from);
    for (const end of suffixes.flatMap((s) => extensionsOf(to).map((e) => `${s}.${e}`))) {
      found.set(`${from.split('/').slice(-2).join('/')}${end}`, to);
      if (!present.has(`${name}${end}`)) found.set(`${name}${end}`, to);
    }
  }
  return found;
}

/** What is wrong with one file. `mentioned` is of mentions(). */
export function scan({ path, text }, mentioned = mentions([])) {
  const found = [];
  const line = lineOf(text);
  const add = (kind, offset, word, instead) =>
    found.push({ path, line: offset < 0 ? 1 : line(offset), kind, word, instead });

  const old = oldFile.exec(path)?.[1];
  if (old) add('file', -1, path, renamed.find(([from]) => from === old)[1]);
  for (const [from, to] of Object.entries(data.directories)) {
    if (path.startsWith(`${from}/`)) add('file', -1, path, to);
  }
  if (/_absent\.\w+$/.test(path)) add('file', -1, path, '_stub');

  for (const { 0: name, index } of text.matchAll(identifier)) {
    const instead = identifierRule(name);
    if (instead) add('identifier', index, name, instead);
  }
  const each = (pattern, kind, names) => {
    for (const { 0: word, index } of text.matchAll(pattern)) add(kind, index, word, names[word]);
  };
  each(optionPattern, 'option', data.options);
  each(scriptPattern, 'script', data.scripts);
  each(directoryPattern, 'path', data.directories);
  for (const { 0: word, index } of text.matchAll(fileMention)) {
    const instead = mentioned.get(word.split('/').slice(-2).join('/'));
    if (instead) add('path', index, word, instead);
  }
  if (path.endsWith('.md')) {
    for (const { 1: heading, index } of text.matchAll(headingPattern))
      add('heading', index, heading, data.headings[heading]);
  }

  let code;
  for (const rule of data.scoped) {
    if (!rule.in.test(path)) continue;
    const where = rule.code ? (code ??= codeOnly(text)) : text;
    for (const { index } of where.matchAll(new RegExp(rule.pattern, 'g')))
      add('scoped', index, rule.word, rule.instead);
  }

  const flat = unwrapped(text);
  const seen = []; // what two patterns find in one place is one finding
  for (const { pattern, instead } of phrases) {
    for (const { 0: word, index } of flat.text.matchAll(pattern)) {
      const end = index + word.length;
      if (seen.some(([from, to]) => index < to && from < end)) continue;
      seen.push([index, end]);
      add('phrase', flat.original(index), word.toLowerCase().replace(/\s+/g, ' '), instead);
    }
  }
  return found;
}

/** Splits findings into those that are errors and the exceptions of words.mjs that no finding needs. */
export function judge(found, texts, allowed = data.allowed) {
  const used = new Set();
  const lines = new Map();
  const lineText = ({ path, line }) => {
    if (!lines.has(path)) lines.set(path, texts.get(path).split('\n'));
    return lines.get(path)[line - 1] ?? '';
  };
  const errors = found.filter((finding) => {
    const exception = allowed.find(
      ({ path, word, text }) =>
        path.test(finding.path) &&
        (word === undefined || word.test(finding.word)) &&
        (text === undefined || lineText(finding).includes(text)),
    );
    if (exception) used.add(exception);
    return !exception;
  });
  return { errors, unused: allowed.filter((exception) => !used.has(exception)) };
}

/** The whole tree. */
export function scanTree(tree = files()) {
  const mentioned = mentions(tree.map(({ path }) => path));
  const found = tree.flatMap((file) => scan(file, mentioned));
  return judge(found, new Map(tree.map(({ path, text }) => [path, text])));
}
