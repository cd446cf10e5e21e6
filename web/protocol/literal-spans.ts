// Marks around text in which no control token is recognized (src/tokenizer/literal_spans.h).

const kMarks = /[\uFDD0\uFDD1]/g;

/** The text without marks. */
export const unmarked = (text: string): string => text.replace(kMarks, '');

/** A caller's text, in which characters that would be marks are replaced. */
export const withoutMarks = (text: string): string => text.replace(kMarks, '\uFFFD');

/** A caller's text as a literal span. */
export const marked = (text: string): string => `\uFDD0${withoutMarks(text)}\uFDD1`;

/** Stands for the next picture in a prompt, outside of literal spans. */
export const kMediaMark = '<__media__>';

/** A caller's text in which nothing is a mark, and nothing a picture. */
export const withoutPictures = (text: string): string =>
  withoutMarks(text).replaceAll(kMediaMark, marked);

/** What follows the first `length` characters of unmarked(text), with the marks. */
export function afterUnmarked(text: string, length: number): string {
  let at = 0;
  let open = '';
  for (let left = length; left > 0; at++) {
    const mark = text[at] === '\uFDD0' || text[at] === '\uFDD1';
    if (mark) open = text[at] === '\uFDD0' ? '\uFDD0' : '';
    else left--;
  }
  return open + text.slice(at);
}
