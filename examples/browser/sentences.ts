// Finds the end of the last complete sentence in a growing text, for screen readers. Processes each
// character once, so the cost does not depend on the length of the text. A sentence ends with a
// mark before a space, with a line break, or with a mark of Chinese and Japanese.

const kMarks = '.!?…';
const kWideMarks = '。！？';
const kClosing = '"\'”’)]*_»」』';
/** Words that end with a point inside of a sentence, without the points within them. */
const kShort = new Set('mr mrs ms dr prof st vs no fig etc eg ie'.split(' '));

export class Sentences {
  /** Number of characters up to the end of the last complete sentence, its mark included. */
  end = 0;
  private length = 0;
  /** An end, unless a small letter follows; -1: none. */
  private likely = -1;
  /** The last mark, if only closing quotes and brackets came after it. */
  private mark = '';
  private word = '';
  private firstWord = true;

  push(text: string): void {
    for (let i = 0; i < text.length; i++) this.read(text.charAt(i), this.length + i);
    this.length += text.length;
  }

  private read(c: string, place: number): void {
    if (c === '\n') return this.finish(place);
    if (kWideMarks.includes(c)) return this.finish(place + 1);
    if (/\s/.test(c)) {
      if (this.mark && !this.isShort()) this.likely = place;
      if (this.word) this.firstWord = false;
      this.word = this.mark = '';
      return;
    }
    // After an abbreviation or a quotation the sentence goes on with a small letter.
    if (this.likely >= 0 && !/\p{Ll}/u.test(c)) this.end = this.likely;
    this.likely = -1;
    if (kMarks.includes(c)) this.mark = c;
    else if (!this.mark || !kClosing.includes(c)) {
      this.mark = '';
      this.word = (this.word + c.toLowerCase()).slice(-8);
    }
  }

  /** The last word is an abbreviation, or the number of an item of a list. */
  private isShort(): boolean {
    return (
      this.mark === '.' &&
      (kShort.has(this.word) || (this.firstWord && /^\d{1,3}$/.test(this.word)))
    );
  }

  private finish(end: number): void {
    this.end = end;
    this.likely = -1;
    this.word = this.mark = '';
    this.firstWord = true;
  }
}
