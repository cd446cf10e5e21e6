// Grammars that constrain a response: free reasoning and text, then tool calls in the model's own
// format whose arguments match their schemas, or a JSON value. The engine's GBNF has three extra
// symbols for this: %json and %spaced (a value that matches a schema), and %until (text that
// contains none of the given strings). Part of templates.js.

import { invalid } from '../protocol/errors.js';
import { kHarmonyMarks } from './harmony.js';
import type { ChatTool } from './openai.js';
import { formsToRead, markOf, type Form } from './tool-forms.js';
import { parametersOf, refuse, type Parameter } from './tool-schema.js';

export interface Bound {
  /** Format of tool calls; null: no calls. */
  form: Form | 'harmony' | null;
  tools: readonly ChatTool[];
  /** Start of the response that is already in the prompt: the mark of its first message. */
  begun: string;
  /** A call is required. */
  required: boolean;
  /** Several calls are allowed. */
  parallel: boolean;
  /** JSON schema of text that is not a call; undefined: free text. */
  schema: object | undefined;
  /** The prompt ends inside reasoning. */
  thinking: boolean;
  /** The model may start reasoning. */
  thinks: boolean;
  /** Ids of control tokens, by their texts. */
  tokens: ReadonlyMap<string, number>;
  /** Control tokens that are allowed in free text. */
  loose: readonly string[];
}

const kThink = ['<think>', '</think>'] as const;
const kHarmonyText = ['analysis', 'commentary', 'final', 'assistant'];

/** All literal text that a grammar may contain, to find the control tokens in it. */
export function spelled(form: Form | 'harmony' | null): string {
  if (form === 'harmony') return kHarmonyMarks.join(' ');
  return [
    ...kThink,
    form?.open,
    form?.pre,
    form?.mid,
    form?.post,
    form?.close,
    ...(form?.param ?? []),
  ].join('\n');
}

/** GBNF grammar of a response. Errors: SCHEMA_UNSUPPORTED, INVALID_ARGUMENT. */
export function answerGrammar(bound: Bound): string {
  return bound.form === 'harmony'
    ? new Writer(bound.tokens).harmony(bound)
    : new Writer(bound.tokens).answer(bound, bound.form);
}

/** The text that starts a call of `name`. Without a name: the text up to the name. */
export function callOpening(
  form: Form | 'harmony',
  name?: string,
): [before: string, name: string, behind: string] {
  if (form === 'harmony')
    return [
      ' to=functions.',
      name ?? '',
      name === undefined ? '' : '<|channel|>commentary json<|message|>',
    ];
  const ids = (text: string): string =>
    text.replace('[CALL_ID]#', '[CALL_ID]000000000').replace('#', '0');
  const before = ids((form.open ?? '') + form.pre);
  if (name === undefined) return [before, '', ''];
  return [before, form.body === 'object' ? JSON.stringify(name).slice(1, -1) : name, ids(form.mid)];
}

const any = (...ways: string[]): string =>
  ways.length === 1 ? ways[0]! : `( ${ways.join(' | ')} )`;
const maybe = (part: string): string => `( ${part} )?`;

class Writer {
  readonly #rules: string[] = [];
  readonly #tokens: ReadonlyMap<string, number>;

  constructor(tokens: ReadonlyMap<string, number>) {
    this.#tokens = tokens;
  }

  answer(bound: Bound, form: Form | null): string {
    const calls = form ? this.#calls(bound, form) : '';
    let rest = calls;
    if (!bound.required)
      rest =
        bound.schema !== undefined
          ? any(...[calls, json('json', bound.schema)].filter(Boolean))
          : this.#free(bound, form!, calls);
    const [open, close] = kThink.map((mark) => this.#text(mark)) as [string, string];
    const thought = `${until([kThink[1]])} ${close} "\\n"{0,2} ${this.#rule('answer', rest)}`;
    // If nothing is required, the response may end inside reasoning.
    const unfinished = bound.required || bound.schema !== undefined ? [] : [until([kThink[1]])];
    const think = this.#rule('thought', any(thought, ...unfinished));
    const root = bound.thinking ? think : bound.thinks ? `answer | ${open} ${think}` : 'answer';
    return `root ::= ${root}\n${this.#rules.join('\n')}\n`;
  }

  harmony(bound: Bound): string {
    const [start, end, channel, message, constrain] = [
      'start',
      'end',
      'channel',
      'message',
      'constrain',
    ].map((name) => this.#text(`<|${name}|>`));
    const [analysis, commentary, final, assistant] = kHarmonyText.map((word) => this.#text(word));
    const text = this.#rule('text', until(kHarmonyMarks));
    const head = (words: string): string => `${channel} ${words} ${message}`;
    const tools = bound.tools.map((tool, i) => {
      const name = `" to=functions." ${this.#text(checkedName(tool))}`;
      const ways = any(
        `${name} ${head(`${commentary} " json"`)}`,
        head(`${commentary} ${name} ${maybe('" "')} ${maybe(constrain!)} "json"`),
      );
      return this.#rule(`call-${i}`, `${ways} ${json('spaced', objectSchema(tool))}`);
    });
    const last = bound.required
      ? []
      : [`${head(final!)} ${bound.schema === undefined ? text : json('json', bound.schema)}`];
    const before = this.#rule(
      'before',
      `${head(any(analysis!, commentary!))} ${text} ${end} ${start} ${assistant}`,
    );
    return `root ::= ${before}* ${any(...tools, ...last)}\n${this.#rules.join('\n')}\n`;
  }

  #rule(name: string, body: string): string {
    this.#rules.push(`${name} ::= ${body}`);
    return name;
  }

  /** Grammar of a literal text, with control tokens as tokens. */
  #text(text: string): string {
    const names = [...this.#tokens.keys()]
      .sort((a, b) => b.length - a.length)
      .map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    const parts = names.length ? text.split(new RegExp(`(${names.join('|')})`)) : [text];
    return (
      parts
        .flatMap((part, i) =>
          i % 2 ? [`<[${this.#tokens.get(part)}]>`] : part ? [literal(part)] : [],
        )
        .join(' ') || '""'
    );
  }

  /** The same, where '#' matches an id. */
  #mark(mark: string): string {
    return mark
      .split('#')
      .map((part) => this.#text(part))
      .join(mark.includes('[CALL_ID]') ? ' [0-9A-Za-z]{9} ' : ' [0-9]{1,3} ');
  }

  /** Free text, optionally followed by calls. */
  #free({ loose, begun }: Bound, form: Form, calls: string): string {
    const marks = formsToRead(form, true).map(markOf);
    const text = until(marks);
    const named = loose
      .filter((name) => this.#tokens.has(name) && !marks.some((mark) => mark.startsWith(name)))
      .map((name) => this.#text(name));
    const free = this.#rule('free', named.length ? `${text} ( ${any(...named)} ${text} )*` : text);
    // A call without a mark is the whole response; other text must not start like a call.
    if (form.bare) return any(calls, `[ \\t\\r\\n]* ${maybe(`[^{< \\t\\r\\n] ${free}`)}`);
    if (begun)
      return any(
        calls,
        `${this.#text(form.plain!.slice(begun.length))} ${free} ` +
          `${maybe(`${this.#mark(form.pre)} ${calls}`)}`,
      );
    return `${free} ${maybe(calls)}`;
  }

  #calls({ tools, parallel, begun }: Bound, form: Form): string {
    const ways = tools.map((tool, i) => {
      const name = checkedName(tool);
      const spoken = form.body === 'object' ? JSON.stringify(name).slice(1, -1) : name;
      return this.#rule(
        `call-${i}`,
        `${this.#text(spoken)} ${this.#mark(form.mid)} ${this.#arguments(form, tool, i)} ` +
          `${this.#mark(form.post)}`,
      );
    });
    const [pre, call] = [this.#mark(form.pre), this.#rule('call', any(...ways))];
    const more =
      parallel && form.join !== undefined ? `( ${this.#text(form.join)} ${pre} ${call} )*` : '';
    return this.#rule(
      'calls',
      `${this.#mark(form.open ?? '')} ${begun ? '' : pre} ${call} ${more} ` +
        `${this.#mark(form.close ?? '')}`,
    );
  }

  #arguments(form: Form, tool: ChatTool, i: number): string {
    if (form.body === 'object' || form.body === 'json') return json('spaced', objectSchema(tool));
    const { parameters, strict } = tool.function;
    const list = parametersOf(parameters, strict === true);
    if (form.param)
      return list
        .map((each) => (each.required ? this.#param(form, each) : maybe(this.#param(form, each))))
        .join(' ');
    // Members with separators: a separator is needed only after an earlier member.
    const [colon, comma] = form.body === 'gemma' ? [':', ','] : ['=', ', '];
    const follows = (at: number, some: boolean): string => {
      const each = list[at];
      if (!each) return '""';
      const value = form.body === 'gemma' ? this.#gemma(each) : any(...pythonValues(each));
      const name = this.#text((some ? comma : '') + each.name + colon);
      const here = `${name} ${value} arg-${i}-${at + 1}-1`;
      return any(here, ...(each.required ? [] : [`arg-${i}-${at + 1}-${+some}`]));
    };
    for (let at = 0; at <= list.length; at++)
      for (const some of [false, true]) this.#rule(`arg-${i}-${at}-${+some}`, follows(at, some));
    return `arg-${i}-0-0`;
  }

  #param(form: Form, { name, texts, values }: Parameter): string {
    const [pre, mid, post] = form.param!;
    if (name.includes(mid[0]!) || name.startsWith('/'))
      refuse(`/properties/${name}`, "the model's tool call format cannot write this name");
    const end = post.replace('@', name);
    const around = (said: string, value: string): string =>
      `${this.#text(pre + name + mid.replace('#', said))} ${value} ${this.#text(end)}`;
    const [asText, asJson] = mid.includes('string=') ? ['true', 'false'] : ['string', 'json'];
    const spoken =
      texts === true
        ? [until([end.trim(), ...(form.cdata ? ['<![CDATA['] : [])])]
        : texts.map((text) => literal(text));
    const wrong = texts !== true && texts.find((text) => text.includes(end.trim()));
    if (typeof wrong === 'string')
      refuse(`/properties/${name}`, `"${wrong}" contains the mark that ends a parameter`);
    return any(
      ...spoken.map((text) => around(asText!, text)),
      ...values.map((value) => around(asJson!, json('spaced', value))),
    );
  }

  #gemma({ name, texts, values }: Parameter): string {
    const quote = this.#text('<|"|>');
    const simple = values.every(
      (value) =>
        Array.isArray((value as { enum?: unknown }).enum) ||
        /^(number|integer|boolean|null)$/.test(
          [(value as { type?: unknown }).type].flat().join(''),
        ),
    );
    if (!simple)
      refuse(
        `/properties/${name}`,
        "the model's tool call format cannot enforce lists and objects",
      );
    const spoken = texts === true ? [until(['<|"|>'])] : texts.map((text) => literal(text));
    return any(
      ...spoken.map((text) => `${quote} ${text} ${quote}`),
      ...values.map((value) => json('json', value)),
    );
  }
}

/** Python values, written as JSON: double-quoted strings are both, and the parser accepts JSON. */
function pythonValues({ texts, values }: Parameter): string[] {
  const strings = texts === true ? [{ type: 'string' }] : texts.length ? [{ enum: texts }] : [];
  return [...strings, ...values].map((value) => json('spaced', value));
}

function checkedName({ function: { name } }: ChatTool): string {
  if (/[\s<>{}()[\]"'|=,;:]/.test(name))
    invalid(`The tool name "${name}" is invalid: use letters, digits, '_' and '-'.`);
  return name;
}

/** Schema of a call's arguments. Without `strict`: any object. */
function objectSchema({ function: { parameters, strict } }: ChatTool): object {
  if (strict !== true) return { type: 'object' };
  return { ...(parameters ?? { additionalProperties: false }), type: 'object' };
}

const json = (how: 'json' | 'spaced', schema: unknown): string =>
  `%${how} ${JSON.stringify(schema)}`;
const until = (marks: readonly string[]): string => `%until ${JSON.stringify(marks)}`;
const literal = (text: string): string =>
  JSON.stringify(text).replaceAll('\\b', '\\x08').replaceAll('\\f', '\\x0C');
