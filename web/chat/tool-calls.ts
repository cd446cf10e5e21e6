// Parses tool calls from streamed text, in the formats of tool-forms.ts. Text that only resembles a
// call stays text, so no output is lost. Results do not depend on chunk boundaries
// (text-reader.ts), and a mark inside a value does not end a call. Part of templates.js.

import type { ChatTool, ToolCall } from './openai.js';
import { kNothing, TextReader, type Step } from './text-reader.js';
import { formsToRead, markOf, type Form } from './tool-forms.js';
import { typeOf, typesOf } from './tool-schema.js';

export interface Answer {
  content: string;
  calls: ToolCall[];
}

/** Characters of function names. */
const kName = /[^\s<>{}()[\]"'|=,;:]/;
const kSeparator = /[\s;,]/;

export class ToolCallFilter {
  readonly #in = new TextReader();
  readonly #forms: readonly { form: Form; mark: string }[];
  readonly #first: ReadonlySet<string>;
  readonly #bare: boolean;
  readonly #tools: ReadonlyMap<string, unknown>;
  #out: Answer = { content: '', calls: [] };
  readonly #work: Step<void>;

  /** `tools`: a call without a mark must name one of them. `given`: the formats to parse. */
  constructor(tools: readonly ChatTool[], given: readonly Form[] = formsToRead(null)) {
    this.#tools = new Map(tools.map((tool) => [tool.function.name, tool.function.parameters]));
    this.#forms = given.map((form) => ({ form, mark: markOf(form) }));
    this.#first = new Set(this.#forms.map(({ mark }) => mark[0]!));
    this.#bare = given.some((form) => form.bare);
    this.#work = this.#run();
  }

  push(text: string): Answer {
    this.#in.text += text;
    return this.#advance();
  }

  /** Ends the text and returns what was held back. */
  finish(): Answer {
    this.#in.ended = true;
    return this.#advance();
  }

  #advance(): Answer {
    this.#work.next();
    const out = this.#out;
    this.#out = { content: '', calls: [] };
    return out;
  }

  *#run(): Step<void> {
    const reader = this.#in;
    /** Only white space since the start or the last call. */
    let blank = true;
    let any = false;
    for (;;) {
      // Drops text that has been read, so that a long response is not kept in memory.
      reader.text = reader.text.slice(reader.at);
      reader.at = 0;
      if (blank) yield* reader.skip(any ? kSeparator : /\s/);
      const lead = reader.at;
      const c = yield* reader.peek();
      if (c === '') {
        if (!any || !blank) this.#out.content += reader.text;
        return;
      }
      const calls =
        (blank && this.#bare && c === '{' ? yield* this.#bareCalls() : null) ??
        (yield* this.#marked(c));
      if (calls) {
        this.#out.calls.push(...calls);
        blank = any = true;
        continue;
      }
      // Text that cannot start a call is emitted immediately.
      for (
        reader.at = lead + 1;
        reader.at < reader.text.length && !this.#first.has(reader.text[reader.at]!);
      )
        reader.at++;
      this.#out.content += reader.text.slice(0, reader.at);
      blank = false;
    }
  }

  /** The calls of a block that starts here; null if there is none. */
  *#marked(c: string): Step<ToolCall[] | null> {
    if (!this.#first.has(c)) return null;
    const start = this.#in.at;
    for (const { form, mark } of this.#forms) {
      this.#in.at = start;
      if (!(yield* this.#begins(mark))) continue;
      const calls = form.block ? yield* this.#objects(form) : yield* this.#named(form);
      if (calls) return calls;
    }
    return null;
  }

  *#begins(mark: string): Step<boolean> {
    const start = this.#in.at;
    for (const wanted of mark) {
      if ((yield* this.#in.peek()) !== wanted) {
        this.#in.at = start;
        return false;
      }
      this.#in.at++;
    }
    this.#in.at = start;
    return true;
  }

  /** JSON values between two marks. The closing mark may be missing at the end of the text. */
  *#objects({ block }: Form): Step<ToolCall[] | null> {
    const [open, close] = block!;
    const calls: ToolCall[] = [];
    yield* this.#in.take(open);
    for (;;) {
      yield* this.#in.skip(kSeparator);
      if (close && calls.length > 0 && (yield* this.#in.take(close))) return calls;
      const c = yield* this.#in.peek();
      if (c === '') return calls.length > 0 ? calls : null;
      const value = c === '{' || c === '[' ? yield* this.#in.json() : kNothing;
      const found = [value].flat().map((each) => asCall(each as WrittenCall, this.#tools));
      if (found.length === 0 || found.includes(null)) return null;
      calls.push(...(found as ToolCall[]));
      if (!close) return calls;
    }
  }

  /** Calls whose name is outside the arguments. */
  *#named(form: Form): Step<ToolCall[] | null> {
    const reader = this.#in;
    const calls: ToolCall[] = [];
    if (form.plain && (yield* reader.take(form.plain))) return [];
    if (form.open && !(yield* reader.take(form.open))) return null;
    for (;;) {
      const start = reader.at;
      const call = (yield* reader.take(form.pre)) ? yield* this.#call(form) : null;
      if (!call) {
        reader.at = start;
        break;
      }
      calls.push(call);
      if (!form.open) return calls;
      yield* reader.skip(kSeparator);
    }
    if (calls.length === 0) return null;
    if (form.close) yield* reader.take(form.close);
    return calls;
  }

  *#call(form: Form): Step<ToolCall | null> {
    const reader = this.#in;
    const name = yield* reader.run(kName);
    if (name === '' || !(yield* reader.take(form.mid))) return null;
    yield* reader.skip(form.body === 'json' ? /\s/ : /(?!)/);
    let value: unknown;
    if (form.body === 'json') value = yield* reader.json();
    else if (form.body === 'params') value = yield* this.#params(form, this.#tools.get(name));
    else value = yield* reader.members(form.body === 'gemma' ? ':' : '=', form.post[0]!);
    if (value === kNothing) return null;
    const rest = form.body === 'json' || form.body === 'params' ? form.post : form.post.slice(1);
    if (rest !== '' && !(yield* reader.take(rest)) && (yield* reader.peek()) !== '') return null;
    return newCall(name, value);
  }

  *#params(form: Form, schema: unknown): Step<unknown> {
    const reader = this.#in;
    const [pre, mid, post] = form.param!;
    const out: [string, unknown][] = [];
    for (;;) {
      const start = reader.at;
      if (!(yield* reader.take(pre))) return Object.fromEntries(out);
      const name = yield* reader.until(mid[0]!);
      reader.at--;
      reader.wild = '';
      // Not a parameter but the closing tag, if both start with the same text.
      if (name === null || name.startsWith('/') || !(yield* reader.take(mid.trimEnd()))) {
        reader.at = start;
        return Object.fromEntries(out);
      }
      const type = reader.wild;
      if (mid.endsWith('\n') && (yield* reader.peek()) === '\n') reader.at++;
      const end = post.trim().replace('@', name);
      const quoted = form.cdata && (yield* reader.take('<![CDATA['));
      const raw = yield* reader.until(quoted ? ']]>' : end);
      if (raw === null || (quoted && !(yield* reader.take(end)))) return kNothing;
      const text = post.startsWith('\n') ? raw.replace(/\n$/, '') : raw;
      out.push([name, paramValue(text, type, schema, name)]);
    }
  }

  /** Calls without a mark. They must be the whole response; any other text ends the attempt. */
  *#bareCalls(): Step<ToolCall[] | null> {
    const start = this.#in.at;
    const calls: ToolCall[] = [];
    for (;;) {
      const call = yield* this.#bareCall();
      if (!call) break;
      calls.push(call);
      yield* this.#in.skip(kSeparator);
      if ((yield* this.#in.peek()) === '') return calls;
    }
    this.#in.at = start;
    return null;
  }

  *#bareCall(): Step<ToolCall | null> {
    const value = yield* this.#bareMembers();
    return value === kNothing ? null : asCall(value as WrittenCall, this.#tools);
  }

  *#bareMembers(): Step<unknown> {
    const reader = this.#in;
    if (!(yield* reader.take('{'))) return kNothing;
    const out: Record<string, unknown> = {};
    do {
      yield* reader.skip(/\s/);
      const key = (yield* reader.peek()) === '"' ? yield* reader.json() : kNothing;
      if (
        !/^(name|function|type|id|arguments|parameters)$/.test(String(key === kNothing ? '' : key))
      )
        return kNothing;
      if (!(yield* reader.take(':'))) return kNothing;
      yield* reader.skip(/\s/);
      const nested = key === 'function' && (yield* reader.peek()) === '{';
      const value = nested ? yield* this.#bareMembers() : yield* reader.json();
      const isName = key === 'name' || (key === 'function' && !nested);
      if (
        value === kNothing ||
        (isName && !this.#tools.has(value as string)) ||
        (key === 'type' && value !== 'function')
      )
        return kNothing;
      out[key as string] = value;
    } while (yield* reader.take(','));
    return (yield* reader.take('}')) ? out : kNothing;
  }
}

/**
 * Value of a parameter's text. `type` is what the format itself states of its type; '': nothing.
 */
function paramValue(text: string, type: string, schema: unknown, name: string): unknown {
  const own = (schema as { properties?: Record<string, unknown> } | undefined)?.properties?.[name];
  const types = typesOf(own, schema);
  if (type === 'true' || type === 'string' || (types?.size === 1 && types.has('string')))
    return text;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return types && !types.has('string') ? pythonValue(text) : text; // some templates use Python
  }
  return type === '' &&
    (typeof value === 'string' || (types?.has('string') && !types.has(typeOf(value))))
    ? text
    : value;
}

/** The value of a Python literal, or the text itself. */
function pythonValue(text: string): unknown {
  const reader = new TextReader();
  reader.text = text;
  reader.ended = true;
  const { value } = reader.literal().next();
  return typeof value === 'symbol' || value === undefined || reader.at < text.trimEnd().length
    ? text
    : value;
}

/**
 * A call as models write it: with a `function` object as in OpenAI's API, or flat. Not validated.
 */
interface WrittenCall {
  function?: unknown;
  name?: unknown;
  tool_name?: unknown;
  arguments?: unknown;
  parameters?: unknown;
}

function asCall(
  value: WrittenCall | null | undefined,
  tools: ReadonlyMap<string, unknown>,
): ToolCall | null {
  const inner =
    typeof value?.function === 'object' ? (value.function as WrittenCall | null) : value;
  const name = inner?.name ?? inner?.tool_name ?? value?.function;
  if (typeof name === 'string') return newCall(name, inner!.arguments ?? inner!.parameters ?? {});
  // { name: arguments }
  const [entry, more] = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  return entry && !more && tools.has(entry[0]) ? newCall(entry[0], entry[1]) : null;
}

export function newCall(name: string, given: unknown): ToolCall {
  const json = typeof given === 'string' ? given : JSON.stringify(given);
  return { id: newId(), type: 'function', function: { name, arguments: json } };
}

/** Nine letters and digits, as Mistral's templates require. */
function newId(): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => alphabet[byte % 62]).join(
    '',
  );
}
