// Makes @huggingface/jinja behave like the reference: Python's jinja2 with the settings of
// transformers. This subclass of its Interpreter corrects str() and repr() of printed values,
// equality, dictionaries with number keys, tuples, generators, Markup, str methods and undefined
// values. It uses only what the library exports: all nodes pass through evaluate(), and the value
// classes are obtained from Environment.set().
//
// Templates come from untrusted files, so steps, sizes and characters processed are limited.
// Strings may contain stand-ins (quoted.ts); `plain` maps them back wherever strings are compared,
// searched or cut.

import {
  fail,
  kThing,
  pythonValues,
  type Base,
  type Jinja,
  type Node,
  type Scope,
  type Value,
} from './python-values.js';
import { countOf, stringMethods, strip } from './python-strings.js';

const kMaxSteps = 2_000_000;
const kMaxText = 1 << 24;
const kMaxIndent = 1000;
const kBlocks = ['body', 'alternate', 'defaultBlock'];
const kSilent = new Set([
  'Set',
  'If',
  'For',
  'Macro',
  'CallStatement',
  'FilterStatement',
  'Break',
  'Continue',
  'Comment',
  'StringLiteral',
]);

/** The interpreter class for a loaded library. */
export function pythonInterpreter(
  jinja: Jinja,
): new (scope: Scope, plain: (text: string) => string) => Base {
  const python = pythonValues(jinja);
  const stringMethod = stringMethods(python);
  const {
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
    keyed,
    plain,
    begin,
  } = python;

  return class PythonInterpreter extends jinja.Interpreter {
    readonly #printed = new WeakSet<Node>();
    #steps = 0;

    readonly #look: (text: string) => string;

    constructor(scope: Scope, look: (text: string) => string) {
      super(scope);
      this.#look = look;
    }

    override run(program: Node): Value {
      this.#mark(program);
      begin(this.#look);
      return super.run(program);
    }

    override evaluate(node: Node | undefined, scope: Scope): Value {
      if (++this.#steps > kMaxSteps) fail('The template takes too many steps.');
      const value =
        (node && this.#special(node, scope)) ??
        super.evaluate(node, scope) ??
        new Undefined(undefined);
      if (is(value, Text) && value.value.length > kMaxText)
        fail('The template produces too much text.');
      if (node?.type === 'CallExpression')
        spend(isList(value) ? kThing * value.value.length : size(value));
      return node && this.#printed.has(node) ? new Text(str(value)) : value;
    }

    /** Collects the expressions whose values are printed. */
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
        case 'Ready':
          return node['value'];
        case 'TupleLiteral':
          return this.#tuple(node, scope);
        case 'ObjectLiteral':
          return this.#dict(node, scope);
        case 'BinaryExpression':
          return this.#binary(node, scope);
        case 'MemberExpression':
          return this.#member(node, scope);
        case 'FilterExpression':
          return this.#filter(node, scope);
        case 'TestExpression':
          return this.#test(node, scope);
        case 'For':
          return this.#loop(node, scope);
        case 'FilterStatement':
          return this.#filterBlock(node, scope);
        default:
          return undefined;
      }
    }

    /** A node with a value that is already evaluated. */
    #ready(value: Value): Node {
      return { type: 'Ready', value };
    }
    #evaluateWith(node: Node, field: string, value: Value, scope: Scope): Value {
      const copy = Object.assign(Object.create(Object.getPrototypeOf(node)), node, {
        [field]: this.#ready(value),
      }) as Node;
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
      if (entries.some(([key]) => !is(key, Text))) return keyed(entries);
      return new Dict(new Map(entries.map(([key, value]) => [key.value as string, value])));
    }

    #binary(node: Node, scope: Scope): Value | undefined {
      const operator = node['operator'].value as string;
      if (operator === 'and' || operator === 'or') return undefined;
      const a = this.evaluate(node['left'], scope);
      const b = this.evaluate(node['right'], scope);
      spend(size(a) + size(b));
      switch (operator) {
        case '==':
          return new Bool(equal(a, b));
        case '!=':
          return new Bool(!equal(a, b));
        case '~':
          return new Text(str(a) + str(b));
        case 'in':
        case 'not in': {
          const found = is(b, Text)
            ? is(a, Text)
              ? plain(b.value).includes(plain(a.value))
              : fail(`'in <string>' requires a string, not ${a.type}`)
            : items(b).some((item) => equal(item, a));
          return new Bool(found === (operator === 'in'));
        }
        case '+':
          if (is(a, Undefined) || is(b, Undefined)) fail('a value is undefined');
          if (is(a, Text) && is(b, Text)) return concat(a, b);
          if (is(a, Text) || is(b, Text))
            fail(`can only concatenate str, not ${a.type} and ${b.type}`);
          break;
        case '*':
          if (is(a, Text) && is(b, Integer)) return new Text(this.#repeat(a.value, b.value));
          break;
        case '%':
          if (is(a, Integer) && is(b, Integer) && b.value !== 0) {
            return new Integer(((a.value % b.value) + b.value) % b.value);
          }
      }
      const copy = Object.assign(Object.create(Object.getPrototypeOf(node)), node, {
        left: this.#ready(a),
        right: this.#ready(b),
      }) as Node;
      return super.evaluate(copy, scope);
    }

    #repeat(text: string, count: number): string {
      if (text.length * count > kMaxText) fail('The template produces too much text.');
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
        return typeof method !== 'function'
          ? object.builtins.get(name)
          : functionOf((args, ...rest: unknown[]) => {
              spend(object.value.length + args.reduce((sum, value) => sum + size(value), 0));
              return (method as (args: Value[], ...rest: unknown[]) => Value)(args, ...rest);
            });
      }
      if (property.type === 'SliceExpression') spend(8 * size(object));
      if (is(object, Dict) && name !== null && /^(items|keys|values|get)$/.test(name)) {
        return object.builtins.get(name); // an attribute takes precedence over an item
      }
      if (is(object, Dict) && node['computed'] && property.type !== 'SliceExpression') {
        const key = this.evaluate(property, scope);
        if (!is(key, Text))
          return (keysOf.has(object) && object.value.get(repr(key))) || new Undefined(undefined);
        return this.#evaluateWith({ ...node, property: this.#ready(key) }, 'object', object, scope);
      }
      return this.#evaluateWith(node, 'object', object, scope);
    }

    #filter(node: Node, scope: Scope): Value | undefined {
      const operand = this.evaluate(node['operand'], scope);
      const call = node['filter'] as Node;
      const name = (call.type === 'Identifier' ? call['value'] : call['callee'].value) as string;
      const args = (call.type === 'Identifier' ? [] : call['args']) as Node[];
      const arg = (i: number): Value | undefined =>
        args[i] && args[i]!.type !== 'KeywordArgumentExpression'
          ? this.evaluate(args[i], scope)
          : undefined;
      const again = (filter: Node, value: Value): Value =>
        this.evaluate({ type: 'FilterExpression', operand: this.#ready(value), filter }, scope);
      spend(size(operand));
      switch (name) {
        case 'string':
          return is(operand, Text) ? operand : new Text(str(operand));
        case 'trim':
          return new Text(strip(str(operand), '', arg(0)?.value));
        case 'safe': {
          const out = new Text(str(operand));
          markup.add(out);
          return out;
        }
        case 'e':
        case 'escape':
          return markup.has(operand)
            ? operand
            : concat(again({ type: 'Identifier', value: 'safe' }, new Text('')), operand);
        case 'd':
          return again(
            { type: 'CallExpression', callee: { type: 'Identifier', value: 'default' }, args },
            operand,
          );
        case 'default':
          if (args.length === 0) return is(operand, Undefined) ? new Text('') : operand;
          break;
        case 'min':
        case 'max':
          if (args.length > 0) break;
          return (
            items(operand).reduce<Value | undefined>(
              (best, item) =>
                !best || (name === 'min' ? less(item, best) : less(best, item)) ? item : best,
              undefined,
            ) ?? new Undefined(undefined)
          );
        case 'count':
        case 'length':
          if (generators.has(operand)) fail("object of type 'generator' has no len()");
          if (is(operand, Text) || is(operand, Undefined))
            return new Integer(is(operand, Text) ? countOf(operand.value) : 0);
          if (name === 'count') return again({ type: 'Identifier', value: 'length' }, operand);
          break;
        case 'list':
          return new List([...items(operand)]);
        case 'first':
          return items(operand)[0] ?? new Undefined(undefined);
        case 'last':
          return items(operand).at(-1) ?? new Undefined(undefined);
        case 'sum':
          return new (items(operand).some((v) => is(v, Float)) ? Float : Integer)(
            items(operand).reduce((sum, v) => sum + Number(v.value), 0),
          );
        case 'join':
          if (is(operand, Undefined) || isList(operand)) {
            const separator = arg(0) ?? new Text('');
            if (args.length > 1) fail('join() by an attribute is not supported');
            for (const item of items(operand)) spend(size(item) + size(separator));
            return new Text(items(operand).map(str).join(str(separator)));
          }
          break;
        case 'replace': {
          const values = args.map((node) =>
            this.evaluate(node.type === 'KeywordArgumentExpression' ? node['value'] : node, scope),
          );
          spend(values.reduce((sum, value) => sum + size(value), 0));
          return stringMethod(str(operand), 'replace')!(values);
        }
        case 'indent':
          spend(
            (4 + this.#indentOf(args, scope)) *
              (is(operand, Text) ? operand.value.split('\n').length : 0),
          );
          break;
        case 'sort':
        case 'unique':
        case 'map':
        case 'groupby':
          for (const item of items(operand)) spend(kThing + 16 * size(item));
          for (const node of args)
            if (node.type === 'KeywordArgumentExpression')
              spend(items(operand).length * size(this.evaluate(node['value'], scope)));
          if (name !== 'map') break;
          if (is(operand, None) || is(operand, Undefined)) return generator([]);
          return this.#mapped(node, operand, args, scope);
        case 'tojson':
          this.#indentOf(args, scope);
          weigh(operand);
          if (generators.has(operand) || is(operand, Undefined))
            fail(
              `Object of type ${generators.has(operand) ? 'generator' : 'Undefined'} is not ` +
                'JSON serializable',
            );
          break;
        case 'selectattr':
        case 'rejectattr':
          if (is(operand, None) || is(operand, Undefined)) return generator([]);
          return generator(this.#evaluateWith(node, 'operand', operand, scope).value);
        case 'select':
        case 'reject':
          return generator(this.#select(operand, args, name === 'select', scope));
      }
      if (is(operand, Bool) && (name === 'abs' || name === 'round'))
        return new Integer(Number(operand.value));
      return this.#evaluateWith(node, 'operand', operand, scope);
    }

    #mapped(node: Node, operand: Value, args: Node[], scope: Scope): Value {
      const first =
        args[0] && args[0].type !== 'KeywordArgumentExpression'
          ? this.evaluate(args[0], scope)
          : undefined;
      if (!is(first, Text))
        return generator(this.#evaluateWith(node, 'operand', operand, scope).value);
      const callee: Node = { type: 'Identifier', value: first!.value };
      const filter: Node =
        args.length > 1 ? { type: 'CallExpression', callee, args: args.slice(1) } : callee;
      return generator(
        items(operand).map((item) =>
          this.evaluate({ type: 'FilterExpression', operand: this.#ready(item), filter }, scope),
        ),
      );
    }

    /** Evaluates {% filter … %} as the filter of an expression. */
    #filterBlock(node: Node, scope: Scope): Value {
      const text = super.evaluate({ type: 'Program', body: node['body'] }, scope);
      return this.evaluate(
        { type: 'FilterExpression', operand: this.#ready(text), filter: node['filter'] },
        scope,
      );
    }

    /** The largest number among the arguments. */
    #indentOf(args: Node[], scope: Scope): number {
      const values = args.map((node) =>
        this.evaluate(node.type === 'KeywordArgumentExpression' ? node['value'] : node, scope),
      );
      const width = Math.max(0, ...values.filter(isNumber).map((value) => Number(value.value)));
      return width > kMaxIndent ? fail('The template indents by too many spaces.') : width;
    }

    #select(operand: Value, args: Node[], keep: boolean, scope: Scope): Value[] {
      if (is(operand, None) || is(operand, Undefined)) return [];
      const name = args[0] && str(this.evaluate(args[0], scope));
      const other = args[1] && this.evaluate(args[1], scope);
      return items(operand).filter((item) => {
        if (name === undefined) return item.__bool__().value === keep;
        if (/^(equalto|eq|==|ne|!=|in)$/.test(name)) {
          const truth =
            name === 'in'
              ? items(other!).some((v) => equal(v, item))
              : equal(item, other!) !== /^(ne|!=)$/.test(name);
          return truth === keep;
        }
        const test: Node = {
          type: 'TestExpression',
          operand: this.#ready(item),
          negate: false,
          test: { value: name },
        };
        return this.evaluate(test, scope).value === keep;
      });
    }

    #test(node: Node, scope: Scope): Value | undefined {
      const operand = this.evaluate(node['operand'], scope);
      const name = node['test'].value as string;
      let truth: boolean | undefined;
      if (name === 'iterable')
        truth = isList(operand) || is(operand, Text) || is(operand, Dict) || is(operand, Undefined);
      else if (name === 'float') truth = is(operand, Float);
      else if (name === 'number') truth = isNumber(operand);
      if (truth !== undefined) return new Bool(truth !== Boolean(node['negate']));
      return this.#evaluateWith(node, 'operand', operand, scope);
    }

    /** A loop over undefined has no iterations; one over a string iterates its characters. */
    #loop(node: Node, scope: Scope): Value {
      const source = node['iterable'] as Node;
      const selected = source.type === 'SelectExpression';
      const value = this.evaluate(selected ? source['lhs'] : source, scope);
      spend(16 * kThing * items(value).length);
      const list = this.#ready(new List(items(value)));
      const iterable = selected
        ? Object.assign(Object.create(Object.getPrototypeOf(source)), source, { lhs: list })
        : list;
      return super.evaluate(
        Object.assign(Object.create(Object.getPrototypeOf(node)), node, { iterable }),
        scope,
      );
    }
  };
}
