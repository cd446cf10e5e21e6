// Reads streamed text character by character. Parsers are generators that pause while the next
// character is missing, so their results do not depend on how the text was split into chunks.

/** A parser, which pauses while it waits for text. */
export type Step<T> = Generator<void, T, void>;

/** The text does not have the expected form. */
export const kNothing = Symbol('nothing');

export class TextReader {
  text = '';
  at = 0;
  ended = false;
  /** What '#' matched in the last mark that was read. */
  wild = '';

  /** The next character; '' at the end of the text. */
  *peek(): Step<string> {
    while (this.at >= this.text.length) {
      if (this.ended) return '';
      yield;
    }
    return this.text[this.at]!;
  }

  *skip(pattern: RegExp): Step<void> {
    while (pattern.test(yield* this.peek())) this.at++;
  }

  /** Reads all characters that match. */
  *run(pattern: RegExp): Step<string> {
    const start = this.at;
    yield* this.skip(pattern);
    return this.text.slice(start, this.at);
  }

  /**
   * Reads `mark`. White space before and inside it is optional, and '#' matches a word. If the text
   * differs, reads nothing and returns false.
   */
  *take(mark: string): Step<boolean> {
    const start = this.at;
    yield* this.skip(/\s/);
    for (const wanted of mark) {
      if (/\s/.test(wanted)) {
        yield* this.skip(/\s/);
      } else if (wanted === '#') {
        this.wild = yield* this.run(/[\w-]/);
      } else if ((yield* this.peek()) === wanted) {
        this.at++;
      } else {
        this.at = start;
        return false;
      }
    }
    return true;
  }

  /** Reads up to and including `mark`, and returns the text before it; null if it never comes. */
  *until(mark: string): Step<string | null> {
    const start = this.at;
    for (;;) {
      const found = this.text.indexOf(mark, this.at);
      if (found >= 0) {
        this.at = found + mark.length;
        return this.text.slice(start, found);
      }
      if (this.ended) {
        this.at = start;
        return null;
      }
      // Does not search the same text again.
      this.at = Math.max(this.at, this.text.length - mark.length + 1);
      yield;
    }
  }

  /** Reads a JSON object, array or string. */
  *json(): Step<unknown> {
    const start = this.at;
    let depth = 0;
    do {
      const c = yield* this.peek();
      this.at++;
      if (c === '"') {
        for (let d = ''; d !== '"';) {
          d = yield* this.peek();
          if (d === '') return kNothing;
          this.at += d === '\\' ? 2 : 1;
        }
      } else if (c !== '' && '{['.includes(c)) {
        depth++;
      } else if (c !== '' && '}]'.includes(c)) {
        depth--;
      } else if (c === '' || depth === 0) {
        return kNothing;
      }
    } while (depth > 0);
    try {
      return JSON.parse(this.text.slice(start, this.at));
    } catch {
      return kNothing;
    }
  }

  /** Reads a Python literal, or one of Gemma's, whose strings are enclosed in <|"|>. */
  *literal(depth = 0): Step<unknown> {
    if (depth > 100) return kNothing;
    yield* this.skip(/\s/);
    const c = yield* this.peek();
    if (c === '"' || c === "'") return yield* this.#pythonString(c);
    if (c === '<')
      return (yield* this.take('<|"|>')) ? ((yield* this.until('<|"|>')) ?? kNothing) : kNothing;
    if (c === '{') {
      this.at++;
      return yield* this.members(':', '}', depth + 1);
    }
    if (c === '[' || c === '(') {
      this.at++;
      return yield* this.#list(c === '[' ? ']' : ')', depth + 1);
    }
    const word = yield* this.run(/[\w.+-]/);
    const known: Record<string, unknown> = {
      True: true,
      true: true,
      False: false,
      false: false,
      None: null,
      null: null,
    };
    if (Object.hasOwn(known, word)) return known[word];
    return word !== '' && Number.isFinite(Number(word)) ? Number(word) : kNothing;
  }

  /** Reads members up to and including `close`. */
  *members(colon: string, close: string, depth = 0): Step<unknown> {
    const out: [string, unknown][] = [];
    for (;;) {
      yield* this.skip(/[\s,]/);
      const c = yield* this.peek();
      if (c === close) {
        this.at++;
        return Object.fromEntries(out);
      }
      const name = /["'<]/.test(c) ? yield* this.literal() : yield* this.run(/[^\s:=,{}()[\]]/);
      if (typeof name !== 'string' || name === '' || !(yield* this.take(colon))) return kNothing;
      const value = yield* this.literal(depth);
      if (value === kNothing) return kNothing;
      out.push([name, value]);
    }
  }

  *#list(close: string, depth: number): Step<unknown> {
    const out: unknown[] = [];
    for (;;) {
      yield* this.skip(/[\s,]/);
      if ((yield* this.peek()) === close) {
        this.at++;
        return out;
      }
      const value = yield* this.literal(depth);
      if (value === kNothing) return kNothing;
      out.push(value);
    }
  }

  *#pythonString(quote: string): Step<unknown> {
    let out = '';
    for (this.at++; ;) {
      const c = yield* this.peek();
      if (c === '') return kNothing;
      this.at++;
      if (c === quote) return out;
      out += c === '\\' ? yield* this.#escape() : c;
    }
  }

  *#escape(): Step<string> {
    const c = yield* this.peek();
    this.at++;
    const digits = { x: 2, u: 4, U: 8 }[c];
    if (digits === undefined)
      return (
        { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f', '\n': '' }[c] ??
        (/["'\\]/.test(c) ? c : `\\${c}`)
      );
    let hex = '';
    while (hex.length < digits && /[\da-f]/i.test(yield* this.peek())) hex += this.text[this.at++];
    const code = parseInt(hex, 16);
    return hex.length === digits && code <= 0x10ffff ? String.fromCodePoint(code) : `\\${c}${hex}`;
  }
}
