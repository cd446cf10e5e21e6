// Finds the end of the last complete sentence in a growing text, for screen readers. Processes each
// character once, so the cost does not depend on the length of the text.

export class Sentences {
  /** Number of characters up to the end of the last complete sentence, its mark included. */
  end = 0;
  private length = 0;
  private marked = false;

  push(text: string): void {
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (this.marked && isSpace(code)) this.end = this.length + i;
      this.marked = code === 0x2e || code === 0x21 || code === 0x3f || code === 0x3a; // . ! ? :
    }
    this.length += text.length;
  }
}

const isSpace = (code: number): boolean =>
  code === 0x20 || (code >= 9 && code <= 13) || code === 0xa0 || code === 0x3000;
