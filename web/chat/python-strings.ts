// Methods of Python's str that @huggingface/jinja lacks or implements differently.

import { fail, kThing, type PythonValues, type Value } from './python-values.js';

const kSpace =
  '\\t\\n\\v\\f\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';

/** Number of code points. */
export function countOf(text: string): number {
  let n = text.length;
  for (let i = 0; i + 1 < text.length; i++)
    if (text.charCodeAt(i) >> 10 === 0x36 && text.charCodeAt(i + 1) >> 10 === 0x37) n--;
  return n;
}

/** str.strip(), lstrip() and rstrip(), of white space or of the given characters. */
export function strip(text: string, side: 'l' | 'r' | '', chars?: string): string {
  const set = chars === undefined ? kSpace : chars.replace(/[\]\\^-]/g, '\\$&');
  if (set === '') return text;
  if (side !== 'r') text = text.replace(new RegExp(`^[${set}]+`, 'u'), '');
  if (side === 'l') return text;
  // A loop from the end, because an unanchored expression would test every run of white space.
  const member = new RegExp(`[${set}]`, 'u');
  let end = text.length;
  while (end > 0 && member.test(text[end - 1]!)) end--;
  return text.slice(0, end);
}

/** Returns a method of `text` by name; null if the library's own agrees with Python. */
export function stringMethods(python: PythonValues) {
  const { Integer, Text, Bool, List, None, is, isList, spend, items, format, plain, wrap } = python;

  /** The argument that limits splitting or replacing; -1: no limit. */
  function most(value: Value | undefined, name: string): number {
    const limit =
      value?.type === 'KeywordArgumentsValue'
        ? (value.value as Map<string, Value>).get(name)
        : value;
    return limit && is(limit, Integer) ? limit.value : -1;
  }
  /**
   * Splits `text` where `seen`, which has the same length, contains the separator. An empty
   * separator splits at each character.
   */
  function cut(text: string, seen: string, separator: string, limit: number): string[] {
    const parts: string[] = [];
    let from = 0;
    for (let at = 0; limit < 0 || parts.length < limit;) {
      at = separator ? seen.indexOf(separator, from) : parts.length === 0 ? 0 : from + 1;
      if (at < 0 || at > text.length) break;
      spend(kThing);
      parts.push(text.slice(from, at));
      from = at + separator.length;
    }
    return [...parts, text.slice(from)];
  }
  /** str.split() between runs of white space. */
  function words(text: string, limit: number): Value {
    const parts: Value[] = [];
    text = text.trimStart();
    for (const { 0: word, index } of text.matchAll(/\S+/g)) {
      spend(kThing);
      const last = limit >= 0 && parts.length >= limit;
      parts.push(new Text(last ? text.slice(index) : word));
      if (last) break;
    }
    return new List(parts);
  }
  function stringMethod(text: string, name: string): ((args: Value[]) => Value) | null {
    const arg = (args: Value[], i = 0): string =>
      is(args[i]!, Text) ? args[i]!.value : fail(`${name}() requires a string`);
    const side = { strip: '', lstrip: 'l', rstrip: 'r' }[name] as '' | 'l' | 'r' | undefined;
    if (side !== undefined) {
      return (args) => {
        const left =
          args[0] && !is(args[0], None)
            ? ([plain(text), plain(arg(args))] as const)
            : ([text, undefined] as const);
        const from = side === 'r' ? 0 : left[0].length - strip(left[0], 'l', left[1]).length;
        return new Text(
          text.slice(
            from,
            side === 'l' ? undefined : Math.max(from, strip(left[0], 'r', left[1]).length),
          ),
        );
      };
    }
    const seen = plain(text);
    const sought = (args: Value[], i = 0): string => plain(arg(args, i));
    const either = (args: Value[], test: (part: string) => boolean): Value =>
      new Bool(
        (args[0] && isList(args[0]) ? (args[0].value as Value[]) : args)
          .slice(0, args[0] && isList(args[0]) ? undefined : 1)
          .some((_, i, all) => test(sought(all as Value[], i))),
      );
    switch (name) {
      case 'startswith':
        return (args) => either(args, (part) => seen.startsWith(part));
      case 'endswith':
        return (args) => either(args, (part) => seen.endsWith(part));
      case 'replace':
        return (args) => {
          const parts = cut(text, seen, sought(args), most(args[2], 'count'));
          const by = arg(args, 1);
          spend(parts.length * (kThing + by.length));
          return new Text(parts.join(by));
        };
      case 'format':
        return (args) => new Text(format(text, args));
      case 'join':
        return (args) =>
          new Text(
            items(args[0]!)
              .map((v) => (is(v, Text) ? v.value : fail('join() requires strings')))
              .join(text),
          );
      case 'find':
        return (args) => {
          const at = seen.indexOf(sought(args));
          return new Integer(at < 0 ? at : countOf(text.slice(0, at)));
        };
      case 'count':
        return (args) =>
          new Integer(
            sought(args) === '' ? countOf(text) + 1 : cut(text, seen, sought(args), -1).length - 1,
          );
      case 'removeprefix':
        return (args) =>
          new Text(seen.startsWith(sought(args)) ? text.slice(arg(args).length) : text);
      case 'removesuffix':
        return (args) =>
          new Text(
            arg(args) && seen.endsWith(sought(args)) ? text.slice(0, -arg(args).length) : text,
          );
      case 'splitlines':
        return () =>
          wrap(
            text
              .replace(/\r\n?|\n$/g, (m, at: number) => (at + m.length === text.length ? '' : '\n'))
              .split('\n')
              .filter((line, i, all) => line !== '' || all.length > 1 || i > 0),
          );
      case 'split':
      case 'rsplit':
        return (args) => {
          const separator = args[0] && is(args[0], Text) ? args[0].value : undefined;
          if (separator === undefined)
            return name === 'split'
              ? words(text, most(args[1], 'maxsplit'))
              : fail('rsplit() requires a separator');
          if (separator === '') fail('empty separator');
          let parts = cut(
            text,
            seen,
            plain(separator),
            name === 'split' ? most(args[1], 'maxsplit') : -1,
          );
          const limit = name === 'rsplit' ? most(args[1], 'maxsplit') : -1;
          if (limit >= 0 && parts.length > limit + 1)
            parts = [
              parts.slice(0, parts.length - limit).join(separator),
              ...parts.slice(parts.length - limit),
            ];
          return new List(parts.map((part) => new Text(part)));
        };
      case 'isdigit':
        return () => new Bool(/^\d+$/.test(text));
      case 'isalpha':
        return () => new Bool(/^\p{L}+$/u.test(text));
      case 'isalnum':
        return () => new Bool(/^[\p{L}\p{N}]+$/u.test(text));
      case 'isspace':
        return () => new Bool(new RegExp(`^[${kSpace}]+$`).test(text));
      case 'capitalize':
        return () => new Text(text.charAt(0).toUpperCase() + text.slice(1).toLowerCase());
      default:
        return null;
    }
  }
  return stringMethod;
}
