// Parses incomplete JSON while it streams: containers and strings as far as they have arrived.
// Numbers, literals and property names appear once they are complete. Part of templates.js.

const kNothing = Symbol('nothing');

/** Incremental value of a JSON text. */
export class PartialJson {
  #text = '';
  #last = '';
  #at = 0;
  #ended = false;

  /** Takes more text, or undefined for its end. Returns { value } if it changed, otherwise null. */
  push(more: string | undefined): { value: unknown } | null {
    if (more === undefined) this.#ended = true;
    else this.#text += more;
    this.#at = 0;
    const value = this.#value();
    const now = value === kNothing ? '' : JSON.stringify(value);
    if (now === this.#last) return null;
    this.#last = now;
    return { value };
  }

  #value(): unknown {
    this.#skip();
    const c = this.#text[this.#at];
    if (c === '"') return this.#string().value;
    if (c === '{' || c === '[') return this.#container(c === '{');
    const word = /^[\w.+-]*/.exec(this.#text.slice(this.#at, this.#at + 400))![0];
    const known = /^(true|false|null)$/.test(word);
    this.#at += word.length;
    if (!known && !this.#ended && this.#at === this.#text.length) return kNothing;
    try {
      return JSON.parse(word);
    } catch {
      return kNothing;
    }
  }

  #container(object: boolean): unknown {
    const members: [string, unknown][] = [];
    const items: unknown[] = [];
    const close = object ? '}' : ']';
    for (this.#at++; ;) {
      this.#skip(',');
      if (this.#at >= this.#text.length) break;
      if (this.#text[this.#at] === close) {
        this.#at++;
        break;
      }
      let name = '';
      if (object) {
        const key =
          this.#text[this.#at] === '"' ? this.#string() : { value: kNothing, whole: false };
        this.#skip(':');
        if (!key.whole || this.#at >= this.#text.length) break;
        name = key.value as string;
      }
      const value = this.#value();
      if (value === kNothing) break;
      members.push([name, value]);
      items.push(value);
    }
    return object ? Object.fromEntries(members) : items;
  }

  #string(): { value: unknown; whole: boolean } {
    const start = this.#at++;
    while (this.#at < this.#text.length && this.#text[this.#at] !== '"')
      this.#at += this.#text[this.#at] === '\\' ? 2 : 1;
    const whole = this.#at < this.#text.length;
    // An incomplete escape or surrogate pair is held back.
    const inside = this.#text.slice(start + 1, this.#at);
    const sure = whole
      ? inside
      : inside
          .replace(/(?<=(^|[^\\])(\\\\)*)\\(u[\da-fA-F]{0,3})?$/, '')
          .replace(/\\u[dD][89abAB][\da-fA-F]{2}$|[\ud800-\udbff]$/, '');
    this.#at = Math.min(this.#at + 1, this.#text.length);
    try {
      return { value: JSON.parse(`"${sure}"`), whole };
    } catch {
      return { value: kNothing, whole: false };
    }
  }

  #skip(also = ''): void {
    while (
      this.#at < this.#text.length &&
      (/\s/.test(this.#text[this.#at]!) || this.#text[this.#at] === also)
    )
      this.#at++;
  }
}
