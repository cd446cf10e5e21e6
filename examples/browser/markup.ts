// Just enough Markdown for answers: code blocks, code, bold, headings; all else stays as written. Makes
// elements, never HTML text, so that nothing a model says can become part of the page.

import { iconButton, make } from './dom.js';

export function render(text: string): Node[] {
  return text.split(/^(```[^\n]*\n[\s\S]*?(?:^```[^\S\n]*$|(?![\s\S])))/m).map((part) => {
    const block = /^```([^\n]*)\n([\s\S]*?)\n?(?:```\s*)?$/.exec(part);
    return block ? codeBlock(block[1]!.trim(), block[2]!) : prose(part);
  });
}

function codeBlock(language: string, code: string): HTMLElement {
  const copy = iconButton('copy', 'Copy this code', () => void navigator.clipboard.writeText(code));
  return make('div', { class: 'code' },
    make('div', { class: 'code-head' }, make('span', {}, language || 'code'), copy),
    make('pre', { tabIndex: 0 }, make('code', {}, code)));
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

/** Takes a thought apart from its answer; a model may have been led into the thought by its template. */
export function splitThought(text: string): { thought: string; answer: string } {
  const closed = /^\s*(?:<think>)?([\s\S]*?)<\/think>\s*([\s\S]*)$/.exec(text);
  if (closed) return { thought: closed[1]!.trim(), answer: closed[2]! };
  const open = /^\s*<think>([\s\S]*)$/.exec(text);
  return open ? { thought: open[1]!.trim(), answer: '' } : { thought: '', answer: text };
}
