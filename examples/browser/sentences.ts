// Where the last whole sentence of a growing text ends. Each character is looked at once, when it
// comes, however long the text is and whether or not a sentence ever ends.

export class Sentences {
  /** Characters up to the end of the last whole sentence, its mark included. */
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
