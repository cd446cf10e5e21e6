// Renders a subset of Markdown: code blocks, code, bold and headings. Other text stays as it is.
// Creates elements and never parses HTML, so model output cannot inject markup into the page.

import { iconButton, make } from './dom.js';

export function render(text: string): Node[] {
  return text.split(/^(```[^\n]*\n[\s\S]*?(?:^```[^\S\n]*$|(?![\s\S])))/m).map((part) => {
    const block = /^```([^\n]*)\n([\s\S]*?)\n?(?:```\s*)?$/.exec(part);
    return block ? codeBlock(block[1]!.trim(), block[2]!) : prose(part);
  });
}

function codeBlock(language: string, code: string): HTMLElement {
  const copy = iconButton('copy', 'Copy this code', () => navigator.clipboard.writeText(code));
  return make(
    'div',
    { class: 'code' },
    make('div', { class: 'code-head' }, make('span', {}, language || 'code'), copy),
    make('pre', { tabIndex: 0 }, make('code', {}, code)),
  );
}

function prose(text: string): HTMLElement {
  const out = make('div', { class: 'prose' });
  for (const part of text.split(/(^#{1,4} [^\n]+$|`[^`\n]+`|\*\*[^*\n]+\*\*)/m)) {
    if (/^`.+`$/.test(part)) out.append(make('code', {}, part.slice(1, -1)));
    else if (/^\*\*.+\*\*$/.test(part)) out.append(make('strong', {}, part.slice(2, -2)));
    else if (/^#{1,4} /.test(part)) out.append(make('strong', {}, part.replace(/^#+ /, '')));
    else out.append(part);
  }
  return out;
}

const kOpen = '<think>';
const kClose = '</think>';

/** Splits reasoning and content. The opening tag may be missing, if the chat template wrote it. */
export function splitReasoning(text: string): { thought: string; answer: string } {
  const begun = text.trimStart();
  const opened = begun.startsWith(kOpen);
  const rest = opened ? begun.slice(kOpen.length) : text;
  const end = rest.indexOf(kClose);
  if (end < 0) return opened ? { thought: rest.trim(), answer: '' } : { thought: '', answer: text };
  return {
    thought: rest.slice(0, end).trim(),
    answer: rest.slice(end + kClose.length).trimStart(),
  };
}
