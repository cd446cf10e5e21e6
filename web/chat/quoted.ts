// Prevents control token injection: message contents, tools, arguments and documents must never
// become control tokens, not even joined with text of the template or of another message. Yet the
// template must see them unchanged.
//
// Each character that a control token begins or ends with is passed to the template as a stand-in
// from the private use area. The interpreter maps stand-ins back (`plain`) wherever strings are
// compared, searched or cut. In the finished prompt they are mapped back too. Where that spells a
// control token, the character is marked as a literal span (src/tokenizer/literal_spans.h).

const kBegin = '\uFDD0';
const kEnd = '\uFDD1';
const kMaxDepth = 200;
/** Only short strings are checked for being the inside of a control token. */
const kMaxWord = 256;
/** No stand-ins for white space, characters that JSON escapes, and surrogates. */
const kKept = /[\s"\\\x00-\x1f\x7f\ud800-\udfff]/;

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** Marks `text` as a literal span for the tokenizer. */
export function marked(text: string): string {
  return kBegin + text.replace(/[\uFDD0\uFDD1]/g, '\uFFFD') + kEnd;
}

export class Quotation {
  readonly #controls: ReadonlySet<string>;
  readonly #lengths: number[];
  readonly #ends: ReadonlySet<string>;
  /** Control tokens without their first and last character, one per line. */
  readonly #insides: string;
  /** Private use characters that occur in the given texts. */
  readonly #taken = new Set<string>();
  readonly #standIns = new Map<string, string>();
  readonly #originals = new Map<string, string>();
  #lastCode = 0xf900;
  readonly #known: ReadonlySet<string>;

  /**
   * `controls`: texts of the model's control tokens. `known`: strings that occur in the template,
   * which may compare with them. `given`: everything that will be quoted, and the template.
   */
  constructor(controls: readonly string[], known: ReadonlySet<string>, given: unknown) {
    this.#known = known;
    this.#controls = new Set(controls);
    this.#lengths = [...new Set(controls.map((text) => text.length))];
    const usable = controls.map((text) => [...text].filter((char) => !kKept.test(char)));
    this.#ends = new Set(usable.flatMap((chars) => chars.slice(0, 1).concat(chars.slice(-1))));
    this.#insides = controls.map((text) => text.slice(1, -1)).join('\n');
    this.#note(given, 0);
  }

  /** A copy of the value for the template, with stand-ins in its strings. */
  quote(value: unknown, name = ''): unknown {
    // Templates make control tokens from roles by adding brackets.
    if (typeof value === 'string') return this.#quoteText(value, name !== 'role');
    if (Array.isArray(value)) return value.map((item) => this.quote(item, name));
    if (!isObject(value)) return value;
    const entries = Object.entries(value);
    return Object.fromEntries(
      entries.map(([key, item]) => [
        this.#known.has(key) ? key : this.#quoteText(key, true),
        this.quote(item, key),
      ]),
    );
  }

  /** The text with stand-ins mapped back to their characters. */
  readonly plain = (text: string): string => {
    if (this.#originals.size === 0 || !/[\ue000-\uf8ff]/.test(text)) return text;
    return text.replace(/[\ue000-\uf8ff]/g, (char) => this.#originals.get(char) ?? char);
  };

  /** The finished prompt: maps stand-ins back and marks literal spans where needed. */
  finish(rendered: string): string {
    // JSON in which all non-ASCII characters are escaped has escaped the stand-ins too.
    rendered = rendered
      .replace(/[\uFDD0\uFDD1]/g, '\uFFFD')
      .replace(/\\u([ef][0-9a-f]{3})/g, (escape, hex: string) => {
        const code = String.fromCharCode(parseInt(hex, 16));
        const char = this.#originals.get(code);
        return char === undefined
          ? escape
          : char < '\x7f'
            ? code
            : `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
      });
    const text = this.plain(rendered);
    if (text === rendered) return text;
    let out = '';
    let done = 0;
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      if (!this.#ends.has(text[at]!)) continue;
      for (const length of this.#lengths) {
        if (!this.#controls.has(text.slice(at, at + length))) continue;
        for (from = Math.max(from, at); from < at + length; from++) {
          if (rendered[from] === text[from]) continue;
          out += text.slice(done, from) + kBegin + text[from] + kEnd;
          done = from + 1;
        }
      }
    }
    return out + text.slice(done);
  }

  #note(value: unknown, depth: number): void {
    if (depth > kMaxDepth) throw new Error('The messages are nested too deeply.');
    if (typeof value === 'string')
      for (const char of value.match(/[\ue000-\uf8ff]/g) ?? []) this.#taken.add(char);
    else if (isObject(value))
      for (const [key, item] of Object.entries(value)) {
        this.#note(key, depth + 1);
        this.#note(item, depth + 1);
      }
  }

  #quoteText(text: string, word: boolean): string {
    let out = '';
    let done = 0;
    for (let i = 0; i < text.length; i++) {
      if (!this.#ends.has(text[i]!)) continue;
      out += text.slice(done, i) + this.#standIn(text[i]!);
      done = i + 1;
    }
    out += text.slice(done);
    // For example "eos", if a template writes "<" + text + ">".
    const inside = text.trim();
    if (
      !word ||
      !inside ||
      inside.length > kMaxWord ||
      this.#known.has(text) ||
      !this.#insides.includes(inside)
    )
      return out;
    return out.replace(/\S/, (char) =>
      kKept.test(char) || this.#originals.has(char) ? char : this.#standIn(char),
    );
  }

  #standIn(char: string): string {
    let code = this.#standIns.get(char);
    if (code === undefined) {
      do code = String.fromCharCode(--this.#lastCode);
      while (this.#taken.has(code));
      if (this.#lastCode < 0xe000) throw new Error('The messages use too many private characters.');
      this.#standIns.set(char, code);
      this.#originals.set(code, char);
    }
    return code;
  }
}
