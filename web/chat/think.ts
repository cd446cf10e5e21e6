// Separates reasoning (<think>…</think>) from content in streamed text. A tag may be split between
// chunks, so a suffix that could become a tag is held back.

export interface Split {
  reasoning: string;
  content: string;
}

const kOpen = '<think>';
const kClose = '</think>';

export class ThinkFilter {
  #held = '';
  #state: 'start' | 'thinking' | 'answer';
  /** White space between reasoning and content is dropped. */
  #trim = true;

  /** `open`: the prompt itself ends with the opening tag. */
  constructor(open: boolean) {
    this.#state = open ? 'thinking' : 'start';
  }

  push(text: string): Split {
    this.#held += text;
    const out: Split = { reasoning: '', content: '' };
    if (this.#state === 'start') this.#begin();
    if (this.#state === 'thinking') this.#think(out);
    if (this.#state === 'answer') {
      out.content += this.#lead(this.#held);
      this.#held = '';
    }
    return out;
  }

  finish(): Split {
    const rest = this.#held;
    this.#held = '';
    return this.#state === 'thinking'
      ? { reasoning: this.#lead(rest), content: '' }
      : { reasoning: '', content: rest };
  }

  /** Only a tag at the start of the text counts. */
  #begin(): void {
    const text = this.#held.trimStart();
    if (text.startsWith(kOpen)) {
      this.#held = text.slice(kOpen.length);
      this.#state = 'thinking';
    } else if (!kOpen.startsWith(text)) {
      this.#state = 'answer';
      this.#trim = false;
    }
  }

  #think(out: Split): void {
    const at = this.#held.indexOf(kClose);
    if (at >= 0) {
      out.reasoning += this.#lead(this.#held.slice(0, at)).trimEnd();
      this.#held = this.#held.slice(at + kClose.length);
      this.#state = 'answer';
      this.#trim = true;
      return;
    }
    let keep = /\s*$/.exec(this.#held)![0].length;
    for (let n = Math.min(kClose.length - 1, this.#held.length); n > 0; n--) {
      if (!this.#held.endsWith(kClose.slice(0, n))) continue;
      keep = n + /\s*$/.exec(this.#held.slice(0, -n))![0].length;
      break;
    }
    out.reasoning += this.#lead(this.#held.slice(0, this.#held.length - keep));
    this.#held = this.#held.slice(this.#held.length - keep);
  }

  #lead(text: string): string {
    if (!this.#trim) return text;
    const trimmed = text.trimStart();
    if (trimmed !== '') this.#trim = false;
    return trimmed;
  }
}
