// Operations on @huggingface/jinja's values with Python's semantics: str() and repr(), equality,
// order, tuples, generators, Markup, and dictionaries whose keys are not strings. The number of
// characters processed is limited.

/** A value of the library; `value` is its JavaScript value. */
export interface Value {
  type: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- depends on the value's class
  value: any;
  builtins: Map<string, Value>;
  __bool__(): Value;
  toString(): string;
}
export interface Node {
  type: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- depends on `type`
  [field: string]: any;
}
export interface Scope {
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
  lookupVariable(name: string): Value;
}
export interface Base {
  evaluate(node: Node | undefined, scope: Scope): Value;
  run(program: Node): Value;
}
/** The part of the library that is used. */
export interface Jinja {
  Environment: new (parent?: Scope) => Scope;
  Interpreter: new (scope: Scope) => Base;
  tokenize(source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }): unknown[];
  parse(tokens: unknown[]): Node;
}

type Construct = new (value: unknown) => Value;

/** Limit on the characters read and written by all operations; each new value costs kThing. */
const kMaxWork = 1 << 27;
export const kThing = 32;

export function fail(message: string): never {
  throw new Error(message);
}

function escapeHtml(text: string): string {
  const names: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    "'": '&#39;',
    '"': '&#34;',
  };
  return text.replace(/[&<>'"]/g, (char) => names[char]!);
}

function reprString(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const named: Record<string, string> = {
    '\n': '\\n',
    '\r': '\\r',
    '\t': '\\t',
    '\\': '\\\\',
    [quote]: `\\${quote}`,
  };
  const body = text.replace(/[\\'"\x00-\x1f\x7f-\xa0\xad]/g, (char) => {
    if (named[char]) return named[char]!;
    return char === "'" || char === '"'
      ? char
      : `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return quote + body + quote;
}

/** Operations on the values of a loaded library. begin() resets the work counter for a run. */
export function pythonValues(jinja: Jinja) {
  const probe = new jinja.Environment();
  const classOf = (name: string, sample: unknown): Construct =>
    probe.set(`class ${name}`, sample).constructor as Construct;
  const Integer = classOf('int', 1);
  const Float = classOf('float', 0.5);
  const Text = classOf('str', '');
  const Bool = classOf('bool', true);
  const List = classOf('list', []);
  const Dict = classOf('dict', {});
  const None = classOf('none', null);
  const Undefined = classOf('undefined', undefined);
  const Func = classOf('function', () => null);

  const is = (v: Value | undefined, C: Construct): boolean => v instanceof C;
  const isNumber = (v: Value): boolean => is(v, Integer) || is(v, Float) || is(v, Bool);
  const isList = (v: Value): boolean => is(v, List);
  const functionOf = (run: (args: Value[]) => Value): Value => new Func(run);
  const tuples = new WeakSet<Value>();
  const generators = new WeakSet<Value>();
  const markup = new WeakSet<Value>();
  const keysOf = new WeakMap<Value, Map<string, Value>>();
  /** Work of the current run. */
  let work = 0;
  let look = (text: string): string => text;
  const plain = (text: string): string => look(text);
  function begin(seen: (text: string) => string): void {
    work = 0;
    look = seen;
  }

  function spend(amount: number): void {
    work += amount;
    if (work > kMaxWork) fail('The template processes too much data.');
  }
  /** Cost of reading a value, without its items. */
  function size(value: Value | undefined): number {
    if (!value) return 0;
    if (is(value, Text)) return value.value.length;
    if (isList(value)) return 8 * value.value.length;
    return value.value instanceof Map ? 8 * value.value.size : 0;
  }
  /** Spends the cost of a value and everything in it. */
  function weigh(value: Value): void {
    spend(kThing + size(value));
    if (isList(value)) for (const item of value.value as Value[]) weigh(item);
    else if (value.value instanceof Map)
      for (const [key, item] of value.value as Map<string, Value>) {
        spend(key.length);
        weigh(item);
      }
  }

  function str(value: Value): string {
    if (is(value, Text)) return value.value;
    return is(value, Undefined) ? '' : repr(value);
  }
  function repr(value: Value): string {
    spend(16 + 2 * size(value));
    if (is(value, Text)) return reprString(value.value);
    if (is(value, Bool)) return value.value ? 'True' : 'False';
    if (is(value, None)) return 'None';
    if (is(value, Undefined)) return 'Undefined';
    if (generators.has(value)) return '<generator object>';
    if (isList(value)) {
      const items = (value.value as Value[]).map(repr);
      if (!tuples.has(value)) return `[${items.join(', ')}]`;
      return items.length === 1 ? `(${items[0]},)` : `(${items.join(', ')})`;
    }
    if (is(value, Dict)) {
      const keys = keysOf.get(value);
      const pairs = [...(value.value as Map<string, Value>)].map(([key, item]) => {
        const named = keys?.get(key);
        return `${named ? repr(named) : reprString(key)}: ${repr(item)}`;
      });
      return `{${pairs.join(', ')}}`;
    }
    if (value.value instanceof Map) weigh(value);
    return value.toString();
  }
  function equal(a: Value, b: Value): boolean {
    spend(16);
    if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
    if (isList(a) && isList(b)) {
      return (
        a.value.length === b.value.length &&
        a.value.every((item: Value, i: number) => equal(item, b.value[i]))
      );
    }
    if (is(a, Dict) && is(b, Dict)) {
      if (a.value.size !== b.value.size) return false;
      for (const [key, item] of a.value)
        if (!b.value.has(key) || !equal(item, b.value.get(key))) return false;
      return true;
    }
    if (!(is(a, Text) && is(b, Text)))
      return a.constructor === b.constructor && a.value === b.value;
    if (a.value.length !== b.value.length) return false;
    spend(a.value.length);
    return a.value === b.value || plain(a.value) === plain(b.value);
  }
  function less(a: Value, b: Value): boolean {
    if (isNumber(a) && isNumber(b)) return Number(a.value) < Number(b.value);
    if (is(a, Text) && is(b, Text)) {
      spend(Math.min(a.value.length, b.value.length));
      return plain(a.value) < plain(b.value);
    }
    return fail(`'<' not supported between ${a.type} and ${b.type}`);
  }
  function items(value: Value): Value[] {
    if (isList(value)) return value.value;
    if (is(value, Text)) {
      spend(kThing * value.value.length);
      return Array.from(value.value as string, (char) => new Text(char));
    }
    if (is(value, Dict))
      return [...value.value.keys()].map((key) => keysOf.get(value)?.get(key) ?? new Text(key));
    if (is(value, Undefined)) return [];
    return fail(`${value.type} is not iterable`);
  }
  function concat(a: Value, b: Value): Value {
    if (!markup.has(a) && !markup.has(b)) return new Text(str(a) + str(b));
    const part = (v: Value): string =>
      markup.has(v)
        ? v.value
        : str(v).replace(/[^\w\s]/g, (char) =>
            plain(char) === char ? escapeHtml(char) : escapeHtml(plain(char)),
          );
    const out = new Text(part(a) + part(b));
    markup.add(out);
    return out;
  }
  function generator(values: Value[]): Value {
    const out = new List(values);
    generators.add(out);
    return out;
  }
  function format(template: string, args: Value[]): string {
    const named =
      args.at(-1)?.type === 'KeywordArgumentsValue'
        ? (args.at(-1)!.value as Map<string, Value>)
        : null;
    let next = 0;
    return template.replace(/\{\{|\}\}|\{([^{}]*)\}/g, (match, field?: string) => {
      if (field === undefined) return match[0]!;
      const index = field === '' ? next++ : /^\d+$/.test(field) ? Number(field) : -1;
      const value = index >= 0 ? args[index] : named?.get(field);
      spend(size(value));
      return value ? str(value) : fail(`format() field '${field}' is not supported`);
    });
  }
  /** A dictionary whose keys are not all strings. */
  function keyed(entries: [Value, Value][]): Value {
    const keys = new Map<string, Value>();
    const map = new Map<string, Value>();
    for (const [key, value] of entries) {
      const name = is(key, Text)
        ? key.value
        : isNumber(key) || is(key, None)
          ? repr(key)
          : fail(`unhashable type: ${key.type}`);
      keys.set(name, key);
      map.set(name, value);
    }
    const out = new Dict(map);
    keysOf.set(out, keys);
    const pairs = (list: [Value, Value][]): Value => new List(list.map((pair) => new List(pair)));
    const sorted = (): [Value, Value][] =>
      [...entries].sort(([a], [b]) => (less(a, b) ? -1 : less(b, a) ? 1 : 0));
    out.builtins.set(
      'items',
      functionOf(() => pairs(entries)),
    );
    out.builtins.set(
      'keys',
      functionOf(() => new List(entries.map(([key]) => key))),
    );
    out.builtins.set(
      'dictsort',
      functionOf(() => pairs(sorted())),
    );
    out.builtins.set(
      'get',
      functionOf(([key, other]) => map.get(str(key!)) ?? other ?? new None(null)),
    );
    return out;
  }
  let serial = 0;
  /** Converts a JavaScript value to a value of the library. */
  const wrap = (value: unknown): Value => probe.set(`value ${++serial}`, value);

  return {
    Integer,
    Float,
    Text,
    Bool,
    List,
    Dict,
    None,
    Undefined,
    functionOf,
    is,
    isNumber,
    isList,
    tuples,
    generators,
    markup,
    keysOf,
    spend,
    size,
    weigh,
    str,
    repr,
    equal,
    less,
    items,
    concat,
    generator,
    format,
    keyed,
    plain,
    begin,
    wrap,
  };
}

export type PythonValues = ReturnType<typeof pythonValues>;
