// Sentences of Markdown documents, and how long they are. Prose only: code blocks, headings, images
// and HTML do not count; a link counts as its text, inline code as one word. An item of a list ends
// a sentence, and so does a cell of a table; cells are held to the longest length and do not lower
// the mean, since most of them are a word or two.

export const limits = { mean: 20, longest: 30, readmeLines: 250 };

/** Documents among paths: what a user or contributor reads. */
export const isDocument = (path) =>
  /^(README|CONTRIBUTING|CHANGELOG|SECURITY)\.md$|^docs\/[^/]+\.md$|(^|\/)README\.md$/.test(path);

const blank = '\u0001'; // a space inside inline code, which is one word

/** Inline Markdown as plain text. */
function plain(text) {
  return text
    .replace(/(`+)(?!`)[\s\S]*?[^`]\1(?!`)/g, (code) => code.replace(/\s+/g, blank))
    .replace(/!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])/g, ' ')
    .replace(/\[([^\]]*)\](\([^()]*(\([^()]*\)[^()]*)*\)|\[[^\]]*\])/g, '$1')
    .replace(/<https?:[^>]*>/g, 'address')
    .replace(/<\/?[a-z][^>]*>/gi, ' ')
    .replace(/(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)/g, '');
}

const abbreviation = /(?:^|[\s(])(?:e\.g|i\.e|E\.g|I\.e|etc|vs|cf|approx|v|[A-Z])\.$/;

/** Splits running text at . ! ? with white space behind. */
function split(text) {
  const sentences = [];
  let start = 0;
  for (const { 0: end, index } of text.matchAll(/[.!?…]+["'”’)\]*_]*(?=\s)/g)) {
    const stop = index + end.length;
    if (abbreviation.test(text.slice(start, index + 1)) && end.startsWith('.')) continue;
    if (/^(\.\.\.|…)/.test(end) && /^\s+[a-z]/.test(text.slice(stop))) continue;
    sentences.push(text.slice(start, stop));
    start = stop;
  }
  sentences.push(text.slice(start));
  return sentences;
}

/** Words: what has a letter or a digit, or is inline code. */
export const countWords = (sentence) =>
  sentence.split(/\s+/).filter((word) => /[\p{L}\p{N}`]/u.test(word)).length;

/** Sentences of a Markdown text: { text, words, line, cell }. */
export function sentencesOf(markdown) {
  const found = [];
  let block = []; // lines of the paragraph or item so far
  let first = 0;
  const push = (text, line, cell) => {
    for (const sentence of split(plain(text))) {
      const words = countWords(sentence);
      const shown = sentence.replaceAll(blank, ' ').replace(/\s+/g, ' ').trim();
      if (words) found.push({ text: shown, words, line, cell });
    }
  };
  const flush = () => {
    if (block.length) push(block.join(' '), first, false);
    block = [];
  };

  let fence;
  let comment = false;
  for (const [i, whole] of markdown.split('\n').entries()) {
    const fenceMark = /^\s*(?:>\s*)?(```+|~~~+)/.exec(whole)?.[1];
    if (fence) {
      if (fenceMark && fenceMark[0] === fence[0] && fenceMark.length >= fence.length)
        fence = undefined;
      continue;
    }
    if (fenceMark) {
      flush();
      fence = fenceMark;
      continue;
    }
    if (comment || /^\s*<!--/.test(whole)) {
      comment = !whole.includes('-->');
      continue;
    }
    const line = whole.replace(/^\s*(>\s?)+/, '').replace(/^\[!\w+\]$/, '');
    if (/^\s*$/.test(line) || /^\s*([-*_=]\s*){3,}$/.test(line)) flush();
    else if (/^#{1,6}\s/.test(line)) flush();
    else if (/^\[[^\]]+\]:\s/.test(line)) flush();
    else if (/^\s*\|/.test(line)) {
      flush();
      if (/^[\s|:-]+$/.test(line)) continue;
      const cells = line
        .trim()
        .replace(/^\||\|$/g, '')
        .split(/(?<!\\)\|/);
      for (const cell of cells) push(cell.trim(), i + 1, true);
    } else {
      const item = /^\s*([-*+]|\d+[.)])\s+(\[[ x]\]\s+)?/.exec(line);
      if (item) flush();
      if (block.length === 0) first = i + 1;
      block.push(item ? line.slice(item[0].length) : line.trim());
    }
  }
  flush();
  return found;
}

/** { mean, longest, sentences } of a document; longest has words 0 where there is no prose. */
export function measure(markdown) {
  const all = sentencesOf(markdown);
  const running = all.filter(({ cell }) => !cell);
  const total = running.reduce((sum, { words }) => sum + words, 0);
  const longest = all.reduce((a, b) => (b.words > a.words ? b : a), {
    words: 0,
    text: '',
    line: 0,
  });
  return {
    sentences: running.length,
    mean: running.length ? total / running.length : 0,
    longest,
    all,
  };
}

/** What is wrong with a document, one message each. */
export function faults(path, markdown) {
  const { mean, all } = measure(markdown);
  const messages = all
    .filter(({ words }) => words > limits.longest)
    .map(
      ({ words, text, line }) =>
        `${path}:${line}: a sentence of ${words} words, at most ${limits.longest}: ${text}`,
    );
  if (mean > limits.mean)
    messages.push(`${path}: ${mean.toFixed(1)} words a sentence, at most ${limits.mean}`);
  const lines = markdown.trimEnd().split('\n').length;
  if (path === 'README.md' && lines > limits.readmeLines)
    messages.push(`${path}: ${lines} lines, at most ${limits.readmeLines}`);
  return messages;
}
