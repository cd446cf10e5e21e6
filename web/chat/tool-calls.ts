// Tool calls out of a model's text while it streams, in the forms that open models were trained on:
//   Hermes, Qwen     <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number of them
//   Llama 3          {"name": …, "parameters": {…}} as the whole answer, or after <|python_tag|>
//   Mistral          [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
// What only looks like a call stays text: nothing that the model wrote is lost.

/** A call of a function, as the model wrote it. */
export interface ToolCall {
  /** Nine letters and digits, which is what Mistral's templates insist on. */
  id: string;
  /** Only functions can be called. */
  type: 'function';
  /** `arguments` is JSON in a string, as OpenAI has it. */
  function: { name: string; arguments: string };
}

export type ToolFormat = 'hermes' | 'llama' | 'mistral';

const kOpen: Record<ToolFormat, string> = {
  hermes: '<tool_call>',
  llama: '<|python_tag|>',
  mistral: '[TOOL_CALLS]',
};
const kFormats = Object.keys(kOpen) as ToolFormat[];
const kClose = '</tool_call>';
/** How a call without a mark begins, white space aside. */
const kBare = ['{"name":', '{"type":"function"', '{"function":'];

/** The form that a chat template teaches; null where it says nothing of tools. */
export function toolFormat(template: string | undefined): ToolFormat | null {
  const named = kFormats.find((format) => template?.includes(kOpen[format]));
  return named ?? (template && /"parameters"|'parameters'/.test(template) && /tools/.test(template) ? 'llama' : null);
}

/** The beginning of an answer that must call a tool (`name`, or one of the model's choice). */
export function forcedOpening(format: ToolFormat, name?: string): string {
  const key = format === 'llama' ? 'parameters' : 'arguments';
  const call = name === undefined ? '{"name": "' : `{"name": ${JSON.stringify(name)}, "${key}": `;
  return { hermes: `<tool_call>\n${call}`, llama: call, mistral: `[TOOL_CALLS][${call}` }[format];
}

export interface Answer {
  content: string;
  calls: ToolCall[];
}

export class ToolCallFilter {
  #held = '';
  #format: ToolFormat | null = null;
  /** Nothing but white space since the beginning or the last call. */
  #blank = true;
  #any = false;
  readonly #names: readonly string[];

  /** `names`: the tools on offer; a call without a mark must name one of them. */
  constructor(names: readonly string[]) {
    this.#names = names;
  }

  push(text: string): Answer {
    this.#held += text;
    const out: Answer = { content: '', calls: [] };
    while (this.#advance(out));
    return out;
  }

  /** What is still held, when the text has ended. */
  finish(): Answer {
    const out: Answer = { content: '', calls: [] };
    const held = this.#held;
    const format = this.#format;
    this.#held = '';
    if (format === null) out.content = this.#any && this.#blank ? '' : held;
    else this.#take(held, out);
    return out;
  }

  /** One step; false when more text is needed. */
  #advance(out: Answer): boolean {
    if (this.#format === 'hermes') return this.#closeHermes(out);
    if (this.#format !== null) return this.#bareStill(out);
    const at = this.#nextMark();
    if (at.format === null) {
      const sure = this.#held.length - at.ambiguous;
      if (this.#blank && !this.#held.slice(0, sure).trim()) return false;
      this.#release(sure, out);
      return false;
    }
    this.#release(at.index, out);
    this.#format = at.format;
    return true;
  }

  #closeHermes(out: Answer): boolean {
    const end = this.#held.indexOf(kClose);
    if (end < 0) return false;
    const block = this.#held.slice(0, end + kClose.length);
    this.#held = this.#held.slice(block.length);
    this.#format = null;
    this.#take(block, out);
    return this.#held !== '';
  }

  /** A call without a mark is given up as soon as it reads otherwise. */
  #bareStill(out: Answer): boolean {
    if (this.#held.startsWith(kOpen[this.#format!]) || mayBeBare(this.#held)) return false;
    this.#format = null;
    this.#blank = false;
    this.#release(this.#held.length, out);
    return false;
  }

  #nextMark(): { format: ToolFormat | null; index: number; ambiguous: number } {
    const held = this.#held;
    const lead = held.length - held.trimStart().length;
    if (this.#blank && held[lead] === '{') return { format: 'llama', index: lead, ambiguous: 0 };
    let best = { format: null as ToolFormat | null, index: held.length, ambiguous: 0 };
    for (const format of kFormats) {
      const mark = kOpen[format];
      const index = held.indexOf(mark);
      if (index >= 0 && index < best.index) best = { format, index, ambiguous: 0 };
      for (let n = Math.min(mark.length - 1, held.length); best.format === null && n > best.ambiguous; n--) {
        if (held.endsWith(mark.slice(0, n))) best.ambiguous = n;
      }
    }
    return best;
  }

  /** Lets the first `length` characters go as text, unless they are white space around calls. */
  #release(length: number, out: Answer): void {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    if (this.#blank && !text.trim()) return;
    this.#blank = false;
    out.content += text;
  }

  #take(block: string, out: Answer): void {
    const calls = parseCalls(block, this.#names);
    if (calls) {
      out.calls.push(...calls);
      this.#blank = this.#any = true;
    } else {
      out.content += block;
      this.#blank = false;
    }
  }
}

function mayBeBare(text: string): boolean {
  const compact = text.slice(0, 200).replace(/\s+/g, '');
  return kBare.some((start) => compact.startsWith(start) || start.startsWith(compact));
}

/** The calls of one block, its marks included; null when it holds anything else. */
function parseCalls(block: string, names: readonly string[]): ToolCall[] | null {
  const marked = kFormats.find((format) => block.startsWith(kOpen[format]));
  let text = marked ? block.slice(kOpen[marked].length) : block;
  if (marked === 'hermes') text = text.replace(kClose, '');
  const calls: ToolCall[] = [];
  for (text = text.replace(/^[\s;,]+/, ''); text !== ''; text = text.replace(/^[\s;,]+/, '')) {
    const named = marked === 'mistral' && /^([\w.-]+)(?:\[CALL_ID\]\w+)?\[ARGS\]/.exec(text);
    if (named) text = text.slice(named[0].length);
    const end = jsonEnd(text);
    let value: unknown;
    try {
      value = JSON.parse(text.slice(0, end));
    } catch {
      return null;
    }
    text = text.slice(end).replace(/^\s*\[TOOL_CALLS\]/, '');
    const found = named ? [{ name: named[1], arguments: value }] : Array.isArray(value) ? value : [value];
    for (const each of found) {
      const call = asCall(each);
      if (!call || (!marked && !names.includes(call.function.name))) return null;
      calls.push(call);
    }
  }
  return calls.length > 0 ? calls : null;
}

/** Where the JSON value that `text` begins with ends. */
function jsonEnd(text: string): number {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') while (++i < text.length && text[i] !== '"') if (text[i] === '\\') i++;
    if ('{['.includes(c)) depth++;
    if ('}]'.includes(c) && --depth <= 0) return i + 1;
  }
  return text.length;
}

function asCall(value: any): ToolCall | null {
  const inner = typeof value?.function === 'object' ? value.function : value;
  const name = inner?.name ?? value?.function;
  if (typeof name !== 'string') return null;
  const given = inner.arguments ?? inner.parameters ?? {};
  const json = typeof given === 'string' ? given : JSON.stringify(given);
  return { id: newId(), type: 'function', function: { name, arguments: json } };
}

function newId(): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => alphabet[byte % 62]).join('');
}
