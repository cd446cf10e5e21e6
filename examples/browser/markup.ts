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

/** The text as it is read aloud: without marks of Markdown. */
export function spokenText(text: string): string {
  return text.replace(/^```.*$|^#{1,4} |\*\*|`/gm, '').trim();
}
