// Where @huggingface/jinja differs from the reference (Python's jinja2, set up as transformers does),
// this subclass of its Interpreter answers as Python would: str() and repr() of what is printed,
// equality, dictionaries with number keys, tuples, generators, Markup, methods of str, undefined
// values. It uses only what the library exports: evaluate() is its one point of dispatch, and
// Environment.set() returns the classes of its values. Steps, sizes and characters worked on are
// capped: a template is part of a file that anybody may have written. What a caller says may hold
// stand-ins (quoted.ts), which `plain` looks through wherever texts are compared, searched or cut.

/** A value of the renderer; `value` is the JavaScript side of it. */
export interface Value {
  type: string;
  value: any;
  builtins: Map<string, Value>;
  __bool__(): Value;
  toString(): string;
}
export interface Node {
  type: string;
  [field: string]: any;
}
export interface Scope {
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
  lookupVariable(name: string): Value;
}
interface Base {
  evaluate(node: Node | undefined, scope: Scope): Value;
  run(program: Node): Value;
}
/** What is used of the library. */
export interface Jinja {
  Environment: new (parent?: Scope) => Scope;
  Interpreter: new (scope: Scope) => Base;
  tokenize(source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }): unknown[];
  parse(tokens: unknown[]): Node;
}

type Construct = new (value: unknown) => Value;

const kMaxSteps = 2_000_000;
const kMaxText = 1 << 24;
/** Characters read and written by all operations together; a thing that is made counts for more. */
const kMaxWork = 1 << 27;
const kThing = 32;
const kMaxIndent = 1000;
const kSpace = '\\t\\n\\v\\f\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const kBlocks = ['body', 'alternate', 'defaultBlock'];
const kSilent = new Set(['Set', 'If', 'For', 'Macro', 'CallStatement', 'FilterStatement', 'Break', 'Continue', 'Comment', 'StringLiteral']);

function fail(message: string): never {
  throw new Error(message);
}

/** Number of code points. */
function countOf(text: string): number {
  let n = text.length;
  for (let i = 0; i + 1 < text.length; i++) if (text.charCodeAt(i) >> 10 === 0x36 && text.charCodeAt(i + 1) >> 10 === 0x37) n--;
  return n;
}

/** str.strip and its sides, of white space or of the characters given. */
function strip(text: string, side: 'l' | 'r' | '', chars?: string): string {
  const set = chars === undefined ? kSpace : chars.replace(/[\]\\^-]/g, '\\$&');
  if (set === '') return text;
  if (side !== 'r') text = text.replace(new RegExp(`^[${set}]+`, 'u'), '');
  if (side === 'l') return text;
  // From the end by hand: an unanchored expression would look at every run of white space.
  const member = new RegExp(`[${set}]`, 'u');
  let end = text.length;
  while (end > 0 && member.test(text[end - 1]!)) end--;
  return text.slice(0, end);
}

function escapeHtml(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', "'": '&#39;', '"': '&#34;' };
  return text.replace(/[&<>'"]/g, (char) => names[char]!);
}

function reprString(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const named: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\', [quote]: `\\${quote}` };
  const body = text.replace(/[\\'"\x00-\x1f\x7f-\xa0\xad]/g, (char) => {
    if (named[char]) return named[char]!;
    return char === "'" || char === '"' ? char : `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return quote + body + quote;
}

/** The interpreter's class over a loaded library. */
export function pythonInterpreter(jinja: Jinja): new (scope: Scope, plain: (text: string) => string) => Base {
  const probe = new jinja.Environment();
  const classOf = (name: string, sample: unknown): Construct => probe.set(`class ${name}`, sample).constructor as Construct;
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
  /** Of the run under way. */
  let work = 0;
  let plain = (text: string): string => text;

  function spend(amount: number): void {
    work += amount;
    if (work > kMaxWork) fail('The template takes too much work.');
  }
  /** What looking at a value costs, its items not included. */
  function size(value: Value | undefined): number {
    if (!value) return 0;
    if (is(value, Text)) return value.value.length;
    if (isList(value)) return 8 * value.value.length;
    return value.value instanceof Map ? 8 * value.value.size : 0;
  }
  /** Pays for a value with all that is in it. */
  function weigh(value: Value): void {
    spend(kThing + size(value));
    if (isList(value)) for (const item of value.value as Value[]) weigh(item);
    else if (value.value instanceof Map) for (const [key, item] of value.value as Map<string, Value>) spend(key.length), weigh(item);
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
      return a.value.length === b.value.length && a.value.every((item: Value, i: number) => equal(item, b.value[i]));
    }
    if (is(a, Dict) && is(b, Dict)) {
      if (a.value.size !== b.value.size) return false;
      for (const [key, item] of a.value) if (!b.value.has(key) || !equal(item, b.value.get(key))) return false;
      return true;
    }
    if (!(is(a, Text) && is(b, Text))) return a.constructor === b.constructor && a.value === b.value;
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
    if (is(value, Dict)) return [...value.value.keys()].map((key) => keysOf.get(value)?.get(key) ?? new Text(key));
    if (is(value, Undefined)) return [];
    return fail(`${value.type} is not iterable`);
  }
  function concat(a: Value, b: Value): Value {
    if (!markup.has(a) && !markup.has(b)) return new Text(str(a) + str(b));
    const part = (v: Value): string => (markup.has(v) ? v.value : str(v).replace(/[^\w\s]/g, (char) => (plain(char) === char ? escapeHtml(char) : escapeHtml(plain(char)))));
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
    const named = args.at(-1)?.type === 'KeywordArgumentsValue' ? (args.at(-1)!.value as Map<string, Value>) : null;
    let next = 0;
    return template.replace(/\{\{|\}\}|\{([^{}]*)\}/g, (match, field?: string) => {
      if (field === undefined) return match[0]!;
      const index = field === '' ? next++ : /^\d+$/.test(field) ? Number(field) : -1;
      const value = index >= 0 ? args[index] : named?.get(field);
      spend(size(value));
      return value ? str(value) : fail(`format() field '${field}' is not supported`);
    });
  }
  /** A method of str that the library lacks or has with other semantics. */
  function stringMethod(text: string, name: string): ((args: Value[]) => Value) | null {
    const wrap = (value: unknown): Value => probe.set(`value ${++serial}`, value);
    const arg = (args: Value[], i = 0): string => (is(args[i]!, Text) ? args[i]!.value : fail(`${name}() wants a string`));
    const side = { strip: '', lstrip: 'l', rstrip: 'r' }[name] as '' | 'l' | 'r' | undefined;
    if (side !== undefined) {
      return (args) => {
        const left = args[0] && !(is(args[0], None)) ? [plain(text), plain(arg(args))] as const : [text, undefined] as const;
        const from = side === 'r' ? 0 : left[0].length - strip(left[0], 'l', left[1]).length;
        return new Text(text.slice(from, side === 'l' ? undefined : Math.max(from, strip(left[0], 'r', left[1]).length)));
      };
    }
    const seen = plain(text);
    const sought = (args: Value[], i = 0): string => plain(arg(args, i));
    const either = (args: Value[], test: (part: string) => boolean): Value =>
      new Bool((args[0] && isList(args[0]) ? (args[0].value as Value[]) : args).slice(0, args[0] && isList(args[0]) ? undefined : 1).some((_, i, all) => test(sought(all as Value[], i))));
    switch (name) {
      case 'startswith': return (args) => either(args, (part) => seen.startsWith(part));
      case 'endswith': return (args) => either(args, (part) => seen.endsWith(part));
      case 'replace': return (args) => {
        const parts = cut(text, seen, sought(args), most(args[2], 'count'));
        const by = arg(args, 1);
        spend(parts.length * (kThing + by.length));
        return new Text(parts.join(by));
      };
      case 'format': return (args) => new Text(format(text, args));
      case 'join': return (args) => new Text(items(args[0]!).map((v) => (is(v, Text) ? v.value : fail('join() wants strings'))).join(text));
      case 'find': return (args) => {
        const at = seen.indexOf(sought(args));
        return new Integer(at < 0 ? at : countOf(text.slice(0, at)));
      };
      case 'count': return (args) => new Integer(sought(args) === '' ? countOf(text) + 1 : cut(text, seen, sought(args), -1).length - 1);
      case 'removeprefix': return (args) => new Text(seen.startsWith(sought(args)) ? text.slice(arg(args).length) : text);
      case 'removesuffix': return (args) => new Text(arg(args) && seen.endsWith(sought(args)) ? text.slice(0, -arg(args).length) : text);
      case 'splitlines': return () => wrap(text.replace(/\r\n?|\n$/g, (m, at: number) => (at + m.length === text.length ? '' : '\n')).split('\n').filter((line, i, all) => line !== '' || all.length > 1 || i > 0));
      case 'split':
      case 'rsplit': return (args) => {
        const separator = args[0] && is(args[0], Text) ? args[0].value : undefined;
        if (separator === undefined) return name === 'split' ? words(text, most(args[1], 'maxsplit')) : fail('rsplit() wants a separator');
        if (separator === '') fail('empty separator');
        let parts = cut(text, seen, plain(separator), name === 'split' ? most(args[1], 'maxsplit') : -1);
        const limit = name === 'rsplit' ? most(args[1], 'maxsplit') : -1;
        if (limit >= 0 && parts.length > limit + 1) parts = [parts.slice(0, parts.length - limit).join(separator), ...parts.slice(parts.length - limit)];
        return new List(parts.map((part) => new Text(part)));
      };
      case 'isdigit': return () => new Bool(/^\d+$/.test(text));
      case 'isalpha': return () => new Bool(/^\p{L}+$/u.test(text));
      case 'isalnum': return () => new Bool(/^[\p{L}\p{N}]+$/u.test(text));
      case 'isspace': return () => new Bool(new RegExp(`^[${kSpace}]+$`).test(text));
      case 'capitalize': return () => new Text(text.charAt(0).toUpperCase() + text.slice(1).toLowerCase());
      default: return null;
    }
  }
  let serial = 0;
  /** The argument that limits splitting or replacing; -1: no limit. */
  function most(value: Value | undefined, name: string): number {
    const limit = value?.type === 'KeywordArgumentsValue' ? (value.value as Map<string, Value>).get(name) : value;
    return limit && is(limit, Integer) ? limit.value : -1;
  }
  /** `text` without the places where `seen`, which has its length, holds the separator; each character alone for none. */
  function cut(text: string, seen: string, separator: string, limit: number): string[] {
    const parts: string[] = [];
    let from = 0;
    for (let at = 0; limit < 0 || parts.length < limit; ) {
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
  /** A dictionary that has keys other than strings. */
  function keyed(entries: [Value, Value][]): Value {
    const keys = new Map<string, Value>();
    const map = new Map<string, Value>();
    for (const [key, value] of entries) {
      const name = is(key, Text) ? key.value : isNumber(key) || is(key, None) ? repr(key) : fail(`unhashable type: ${key.type}`);
      keys.set(name, key);
      map.set(name, value);
    }
    const out = new Dict(map);
    keysOf.set(out, keys);
    const pairs = (list: [Value, Value][]): Value => new List(list.map((pair) => new List(pair)));
    const sorted = (): [Value, Value][] => [...entries].sort(([a], [b]) => (less(a, b) ? -1 : less(b, a) ? 1 : 0));
    out.builtins.set('items', functionOf(() => pairs(entries)));
    out.builtins.set('keys', functionOf(() => new List(entries.map(([key]) => key))));
    out.builtins.set('dictsort', functionOf(() => pairs(sorted())));
    out.builtins.set('get', functionOf(([key, other]) => map.get(str(key!)) ?? other ?? new None(null)));
    return out;
  }

  return class PythonInterpreter extends jinja.Interpreter {
    readonly #printed = new WeakSet<Node>();
    #steps = 0;

  readonly #look: (text: string) => string;

    constructor(
      scope: Scope,
      look: (text: string) => string,
    ) {
      super(scope);
    this.#look = look;
    }

    override run(program: Node): Value {
      this.#mark(program);
      work = 0;
      plain = this.#look;
      return super.run(program);
    }

    override evaluate(node: Node | undefined, scope: Scope): Value {
      if (++this.#steps > kMaxSteps) fail('The template takes too many steps.');
      const value = (node && this.#special(node, scope)) ?? super.evaluate(node, scope) ?? new Undefined(undefined);
      if (is(value, Text) && value.value.length > kMaxText) fail('The template makes too much text.');
      if (node?.type === 'CallExpression') spend(isList(value) ? kThing * value.value.length : size(value));
      return node && this.#printed.has(node) ? new Text(str(value)) : value;
    }

    /** Notes the expressions whose values are printed. */
    #mark(node: Node): void {
      for (const name of kBlocks) {
        if (!Array.isArray(node[name])) continue;
        for (const child of node[name] as Node[]) {
          if (!kSilent.has(child.type)) this.#printed.add(child);
          this.#mark(child);
        }
      }
    }

    #special(node: Node, scope: Scope): Value | undefined {
      switch (node.type) {
        case 'Ready': return node['value'];
        case 'TupleLiteral': return this.#tuple(node, scope);
        case 'ObjectLiteral': return this.#dict(node, scope);
        case 'BinaryExpression': return this.#binary(node, scope);
        case 'MemberExpression': return this.#member(node, scope);
        case 'FilterExpression': return this.#filter(node, scope);
        case 'TestExpression': return this.#test(node, scope);
        case 'For': return this.#loop(node, scope);
        case 'FilterStatement': return this.#filterBlock(node, scope);
        default: return undefined;
      }
    }

    /** The node with one operand already evaluated. */
    #ready(value: Value): Node {
      return { type: 'Ready', value };
    }
    #evaluateWith(node: Node, field: string, value: Value, scope: Scope): Value {
      const copy = Object.assign(Object.create(Object.getPrototypeOf(node)), node, { [field]: this.#ready(value) }) as Node;
      return super.evaluate(copy, scope);
    }

    #tuple(node: Node, scope: Scope): Value {
      const out = new List((node['value'] as Node[]).map((item) => this.evaluate(item, scope)));
      tuples.add(out);
      return out;
    }

    #dict(node: Node, scope: Scope): Value {
      const entries: [Value, Value][] = [];
      for (const [key, value] of node['value'] as Map<Node, Node>) {
        entries.push([this.evaluate(key, scope), this.evaluate(value, scope)]);
      }
      if (entries.some(([key]) => !(is(key, Text)))) return keyed(entries);
      return new Dict(new Map(entries.map(([key, value]) => [key.value as string, value])));
    }

    #binary(node: Node, scope: Scope): Value | undefined {
      const operator = node['operator'].value as string;
      if (operator === 'and' || operator === 'or') return undefined;
      const a = this.evaluate(node['left'], scope);
      const b = this.evaluate(node['right'], scope);
      spend(size(a) + size(b));
      switch (operator) {
        case '==': return new Bool(equal(a, b));
        case '!=': return new Bool(!equal(a, b));
        case '~': return new Text(str(a) + str(b));
        case 'in':
        case 'not in': {
          const found = is(b, Text)
            ? is(a, Text) ? plain(b.value).includes(plain(a.value)) : fail(`'in <string>' wants a string, not ${a.type}`)
            : items(b).some((item) => equal(item, a));
          return new Bool(found === (operator === 'in'));
        }
        case '+':
          if (is(a, Undefined) || is(b, Undefined)) fail('a value is undefined');
          if (is(a, Text) && is(b, Text)) return concat(a, b);
          if (is(a, Text) || is(b, Text)) fail(`can only concatenate str, not ${a.type} and ${b.type}`);
          break;
        case '*':
          if (is(a, Text) && is(b, Integer)) return new Text(this.#repeat(a.value, b.value));
          break;
        case '%':
          if (is(a, Integer) && is(b, Integer) && b.value !== 0) {
            return new Integer(((a.value % b.value) + b.value) % b.value);
          }
      }
      const copy = Object.assign(Object.create(Object.getPrototypeOf(node)), node, { left: this.#ready(a), right: this.#ready(b) }) as Node;
      return super.evaluate(copy, scope);
    }

    #repeat(text: string, count: number): string {
      if (text.length * count > kMaxText) fail('The template makes too much text.');
      return text.repeat(Math.max(0, count));
    }

    #member(node: Node, scope: Scope): Value | undefined {
      const object = this.evaluate(node['object'], scope);
      const property = node['property'] as Node;
      if (is(object, Undefined)) fail(`'${property['value'] ?? 'value'}' of an undefined value`);
      const name = node['computed'] ? null : (property['value'] as string);
      if (is(object, Text) && typeof name === 'string') {
        spend(object.value.length);
        const method = stringMethod(object.value, name) ?? object.builtins.get(name)?.value;
        return typeof method !== 'function' ? object.builtins.get(name) : functionOf((args, ...rest: unknown[]) => {
          spend(object.value.length + args.reduce((sum, value) => sum + size(value), 0));
          return (method as (args: Value[], ...rest: unknown[]) => Value)(args, ...rest);
        });
      }
      if (property.type === 'SliceExpression') spend(8 * size(object));
      if (is(object, Dict) && name !== null && /^(items|keys|values|get)$/.test(name)) {
        return object.builtins.get(name); // an attribute comes before an item of that name
      }
      if (is(object, Dict) && node['computed'] && property.type !== 'SliceExpression') {
        const key = this.evaluate(property, scope);
        if (!(is(key, Text))) return (keysOf.has(object) && object.value.get(repr(key))) || new Undefined(undefined);
        return this.#evaluateWith({ ...node, property: this.#ready(key) }, 'object', object, scope);
      }
      return this.#evaluateWith(node, 'object', object, scope);
    }

    #filter(node: Node, scope: Scope): Value | undefined {
      const operand = this.evaluate(node['operand'], scope);
      const call = node['filter'] as Node;
      const name = (call.type === 'Identifier' ? call['value'] : call['callee'].value) as string;
      const args = (call.type === 'Identifier' ? [] : call['args']) as Node[];
      const arg = (i: number): Value | undefined => (args[i] && args[i]!.type !== 'KeywordArgumentExpression' ? this.evaluate(args[i], scope) : undefined);
      const again = (filter: Node, value: Value): Value => this.evaluate({ type: 'FilterExpression', operand: this.#ready(value), filter }, scope);
      spend(size(operand));
      switch (name) {
        case 'string': return is(operand, Text) ? operand : new Text(str(operand));
        case 'trim': return new Text(strip(str(operand), '', arg(0)?.value));
        case 'safe': {
          const out = new Text(str(operand));
          markup.add(out);
          return out;
        }
        case 'e':
        case 'escape': return markup.has(operand) ? operand : concat(again({ type: 'Identifier', value: 'safe' }, new Text('')), operand);
        case 'd': return again({ type: 'CallExpression', callee: { type: 'Identifier', value: 'default' }, args }, operand);
        case 'default':
          if (args.length === 0) return is(operand, Undefined) ? new Text('') : operand;
          break;
        case 'min':
        case 'max':
          if (args.length > 0) break;
          return items(operand).reduce<Value | undefined>((best, item) => (!best || (name === 'min' ? less(item, best) : less(best, item)) ? item : best), undefined) ?? new Undefined(undefined);
        case 'count':
        case 'length':
          if (generators.has(operand)) fail("object of type 'generator' has no len()");
          if (is(operand, Text) || is(operand, Undefined)) return new Integer(is(operand, Text) ? countOf(operand.value) : 0);
          if (name === 'count') return again({ type: 'Identifier', value: 'length' }, operand);
          break;
        case 'list': return new List([...items(operand)]);
        case 'first': return items(operand)[0] ?? new Undefined(undefined);
        case 'last': return items(operand).at(-1) ?? new Undefined(undefined);
        case 'sum': return new (items(operand).some((v) => is(v, Float)) ? Float : Integer)(items(operand).reduce((sum, v) => sum + Number(v.value), 0));
        case 'join':
          if (is(operand, Undefined) || isList(operand)) {
            const separator = arg(0) ?? new Text('');
            if (args.length > 1) fail('join() by an attribute is not supported');
            for (const item of items(operand)) spend(size(item) + size(separator));
            return new Text(items(operand).map(str).join(str(separator)));
          }
          break;
        case 'replace': {
          const values = args.map((node) => this.evaluate(node.type === 'KeywordArgumentExpression' ? node['value'] : node, scope));
          spend(values.reduce((sum, value) => sum + size(value), 0));
          return stringMethod(str(operand), 'replace')!(values);
        }
        case 'indent':
          spend((4 + this.#indentOf(args, scope)) * (is(operand, Text) ? operand.value.split('\n').length : 0));
          break;
        case 'sort':
        case 'unique':
        case 'map':
        case 'groupby':
          for (const item of items(operand)) spend(kThing + 16 * size(item));
          for (const node of args) if (node.type === 'KeywordArgumentExpression') spend(items(operand).length * size(this.evaluate(node['value'], scope)));
          if (name !== 'map') break;
          if (is(operand, None) || is(operand, Undefined)) return generator([]);
          return this.#mapped(node, operand, args, scope);
        case 'tojson':
          this.#indentOf(args, scope);
          weigh(operand);
          if (generators.has(operand) || is(operand, Undefined)) fail(`Object of type ${generators.has(operand) ? 'generator' : 'Undefined'} is not JSON serializable`);
          break;
        case 'selectattr':
        case 'rejectattr':
          if (is(operand, None) || is(operand, Undefined)) return generator([]);
          return generator(this.#evaluateWith(node, 'operand', operand, scope).value);
        case 'select':
        case 'reject': return generator(this.#select(operand, args, name === 'select', scope));
      }
      if (is(operand, Bool) && (name === 'abs' || name === 'round')) return new Integer(Number(operand.value));
      return this.#evaluateWith(node, 'operand', operand, scope);
    }

    #mapped(node: Node, operand: Value, args: Node[], scope: Scope): Value {
      const first = args[0] && args[0].type !== 'KeywordArgumentExpression' ? this.evaluate(args[0], scope) : undefined;
      if (!is(first, Text)) return generator(this.#evaluateWith(node, 'operand', operand, scope).value);
      const callee: Node = { type: 'Identifier', value: first!.value };
      const filter: Node = args.length > 1 ? { type: 'CallExpression', callee, args: args.slice(1) } : callee;
      return generator(items(operand).map((item) => this.evaluate({ type: 'FilterExpression', operand: this.#ready(item), filter }, scope)));
    }

    /** {% filter … %}, as the filter of an expression. */
    #filterBlock(node: Node, scope: Scope): Value {
      const text = super.evaluate({ type: 'Program', body: node['body'] }, scope);
      return this.evaluate({ type: 'FilterExpression', operand: this.#ready(text), filter: node['filter'] }, scope);
    }

    /** The largest number among the arguments. */
    #indentOf(args: Node[], scope: Scope): number {
      const values = args.map((node) => this.evaluate(node.type === 'KeywordArgumentExpression' ? node['value'] : node, scope));
      const width = Math.max(0, ...values.filter(isNumber).map((value) => Number(value.value)));
      return width > kMaxIndent ? fail('The template indents too far.') : width;
    }

    #select(operand: Value, args: Node[], keep: boolean, scope: Scope): Value[] {
      if (is(operand, None) || is(operand, Undefined)) return [];
      const name = args[0] && str(this.evaluate(args[0], scope));
      const other = args[1] && this.evaluate(args[1], scope);
      return items(operand).filter((item) => {
        if (name === undefined) return item.__bool__().value === keep;
        if (/^(equalto|eq|==|ne|!=|in)$/.test(name)) {
          const truth = name === 'in' ? items(other!).some((v) => equal(v, item)) : equal(item, other!) !== /^(ne|!=)$/.test(name);
          return truth === keep;
        }
        const test: Node = { type: 'TestExpression', operand: this.#ready(item), negate: false, test: { value: name } };
        return this.evaluate(test, scope).value === keep;
      });
    }

    #test(node: Node, scope: Scope): Value | undefined {
      const operand = this.evaluate(node['operand'], scope);
      const name = node['test'].value as string;
      let truth: boolean | undefined;
      if (name === 'iterable') truth = isList(operand) || is(operand, Text) || is(operand, Dict) || is(operand, Undefined);
      else if (name === 'float') truth = is(operand, Float);
      else if (name === 'number') truth = isNumber(operand);
      if (truth !== undefined) return new Bool(truth !== Boolean(node['negate']));
      return this.#evaluateWith(node, 'operand', operand, scope);
    }

    /** Undefined loops not at all, a string over its characters. */
    #loop(node: Node, scope: Scope): Value {
      const source = node['iterable'] as Node;
      const selected = source.type === 'SelectExpression';
      const value = this.evaluate(selected ? source['lhs'] : source, scope);
      spend(16 * kThing * items(value).length);
      const list = this.#ready(new List(items(value)));
      const iterable = selected ? Object.assign(Object.create(Object.getPrototypeOf(source)), source, { lhs: list }) : list;
      return super.evaluate(Object.assign(Object.create(Object.getPrototypeOf(node)), node, { iterable }), scope);
    }
  };
}
