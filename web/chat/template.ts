// Renders chat templates with the variables that Hugging Face transformers sets. Throws plain
// Errors; renderer.ts turns them into SluiceErrors with the code CHAT_TEMPLATE.

import * as library from '@huggingface/jinja';

import { pythonInterpreter } from './jinja-python.js';
import type { Jinja, Node } from './python-values.js';
import { marked, Quotation } from './quoted.js';

const jinja = library as unknown as Jinja;
const kMaxTemplate = 1 << 20;
// Characters in one run of white space, for which the library's lexer takes quadratic time.
const kMaxSpace = 1000;
const kMaxRange = 100_000;

/** Variables of a template. Further names are passed on too. */
export interface TemplateVariables {
  messages: readonly unknown[];
  tools?: readonly unknown[] | null;
  documents?: readonly unknown[] | null;
  add_generation_prompt?: boolean;
  bos_token?: string;
  eos_token?: string;
  unk_token?: string;
  pad_token?: string;
  [name: string]: unknown;
}

const kMonths = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const kDays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Python's strftime in the C locale, local time. */
export function strftime(date: Date, format: string): string {
  const pad = (value: number, width = 2): string => String(value).padStart(width, '0');
  const month = kMonths[date.getMonth()]!;
  const day = kDays[date.getDay()]!;
  const hour = date.getHours();
  const yearStart = new Date(date.getFullYear(), 0, 1);
  const dayOfYear =
    Math.round(
      (new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime() -
        yearStart.getTime()) /
        864e5,
    ) + 1;
  const parts: Record<string, () => string> = {
    Y: () => pad(date.getFullYear(), 4),
    y: () => pad(date.getFullYear() % 100),
    m: () => pad(date.getMonth() + 1),
    d: () => pad(date.getDate()),
    e: () => String(date.getDate()).padStart(2),
    B: () => month,
    b: () => month.slice(0, 3),
    A: () => day,
    a: () => day.slice(0, 3),
    H: () => pad(hour),
    I: () => pad(hour % 12 || 12),
    p: () => (hour < 12 ? 'AM' : 'PM'),
    M: () => pad(date.getMinutes()),
    S: () => pad(date.getSeconds()),
    f: () => pad(date.getMilliseconds() * 1000, 6),
    j: () => pad(dayOfYear, 3),
    w: () => String(date.getDay()),
    u: () => String(date.getDay() || 7),
    F: () => strftime(date, '%Y-%m-%d'),
    T: () => strftime(date, '%H:%M:%S'),
    D: () => strftime(date, '%m/%d/%y'),
    '%': () => '%',
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (all, minus: string, letter: string) => {
    const text = parts[letter]?.();
    return text === undefined ? all : minus ? text.replace(/^0+(?=\d)/, '') : text;
  });
}

function range(start: number, stop?: number | null, step?: number | null): number[] {
  const by = step ?? 1;
  const [from, to] = typeof stop === 'number' ? [start, stop] : [0, start];
  if (by === 0) throw new Error('range() step must not be zero');
  const length = Math.max(0, Math.ceil((to - from) / by));
  if (length > kMaxRange) throw new Error(`range() has too many items: at most ${kMaxRange}.`);
  return Array.from({ length }, (_, i) => from + i * by);
}

/** All string literals and identifiers of a program. */
function spelled(node: unknown, into: Set<string>): Set<string> {
  if (node instanceof Map) for (const pair of node) spelled(pair, into);
  else if (typeof node === 'object' && node !== null) {
    const { type, value } = node as Node;
    if (typeof value === 'string' && (type === 'StringLiteral' || type === 'Identifier'))
      into.add(value);
    for (const child of Object.values(node)) spelled(child, into);
  }
  return into;
}

/** Variables that contain control tokens; they are not quoted. */
const kTokens = new Set(['bos_token', 'eos_token', 'unk_token', 'pad_token']);

/** A parsed chat template. */
export class ChatTemplate {
  readonly #program: Node;
  readonly #known: Set<string>;
  readonly #Interpreter = pythonInterpreter(jinja);
  readonly #source: string;

  /** Throws if the source cannot be parsed or exceeds a limit. */
  constructor(source: string) {
    this.#source = source;
    if (source.length > kMaxTemplate) throw new Error('The chat template is longer than 1 MiB.');
    for (let i = 0, run = 0; i < source.length; i++) {
      run = source[i]!.trim() === '' ? run + 1 : 0;
      if (run > kMaxSpace) throw new Error('The chat template has too many spaces in a row.');
    }
    this.#program = jinja.parse(jinja.tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
    this.#known = spelled(this.#program, new Set());
  }

  /** Marks `text` as a literal span for the tokenizer. */
  static marked = marked;

  /**
   * Renders the prompt. Throws if the template raises an error. `now` is the time of strftime_now.
   * `controls` are the texts of the model's control tokens: where one would arise from content
   * rather than from the template alone, it is marked as plain text.
   */
  render(
    variables: TemplateVariables,
    now: Date = new Date(),
    controls: readonly string[] = [],
  ): string {
    const scope = new jinja.Environment();
    const quotation =
      controls.length > 0 ? new Quotation(controls, this.#known, [variables, this.#source]) : null;
    const constants = {
      true: true,
      false: false,
      none: null,
      True: true,
      False: false,
      None: null,
    };
    const given = { tools: null, documents: null, add_generation_prompt: false, ...variables };
    for (const [name, value] of Object.entries({ ...constants, range, ...given })) {
      const quoted =
        quotation && !kTokens.has(name) && !(name in constants)
          ? quotation.quote(value, name)
          : value;
      if (value !== undefined) scope.setVariable(name, scope.set(`given ${name}`, quoted));
    }
    const plain = quotation?.plain ?? ((text: string) => text);
    scope.set('raise_exception', (message: unknown) => {
      throw new Error(plain(String(message)));
    });
    scope.set('strftime_now', (format: string) => strftime(now, format));
    const text = new this.#Interpreter(scope, plain).run(this.#program).value as string;
    return quotation ? quotation.finish(text) : text;
  }
}
