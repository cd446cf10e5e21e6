// Table of the tool call formats of models: the text around names and arguments, as the models'
// chat templates write it. Parsing (tool-calls.ts), forced call openings and grammars
// (tool-grammar.ts) all use this table. Part of templates.js.
//   open (pre NAME mid ARGUMENTS post, join, pre …) close
// In these texts '#' is a number or an id, and '@' the name of the parameter. The parser treats
// white space in them as optional.

/**
 * Format of the arguments. 'object': a member of the JSON object that also has the name. 'json': a
 * JSON object. 'params': each parameter has its own marks. 'python', 'gemma': literals.
 */
export type Body = 'object' | 'json' | 'params' | 'python' | 'gemma';

export interface Form {
  /** Matches chat templates that use this format. */
  taught: RegExp;
  body: Body;
  open?: string;
  pre: string;
  mid: string;
  post: string;
  /** Text between two calls; undefined: only one call is possible. */
  join?: string;
  close?: string;
  /** For 'params': text before the name, between name and value, and after the value. */
  param?: readonly [string, string, string];
  /** Values may be enclosed in <![CDATA[…]]>. */
  cdata?: true;
  /** Mark that starts plain text and is not part of it. */
  plain?: string;
  /** A call needs no mark if it is the whole response. */
  bare?: true;
  /** For 'object': marks at the start and end of a block of JSON values. */
  block?: readonly [string, string];
}

const object = (
  taught: RegExp,
  block: readonly [string, string],
  around: readonly [string, string],
  more: Partial<Form> = {},
): Form => {
  return {
    taught,
    body: 'object',
    block,
    pre: `${around[0]}{"name": "`,
    mid: '", "arguments": ',
    post: `}${around[1]}`,
    ...more,
  };
};
/** A JSON list of objects between marks. */
const list = (taught: RegExp, open: string, close: string, more: Partial<Form> = {}): Form => {
  return object(taught, [open.trimEnd(), close.trim()], ['', ''], {
    open: `${open}[`,
    join: ', ',
    close: `]${close}`,
    ...more,
  });
};
const params = (
  taught: RegExp,
  pre: string,
  mid: string,
  post: string,
  param: readonly [string, string, string],
  more: Partial<Form> = {},
): Form => {
  return { taught, body: 'params', pre, mid, post, param, ...more };
};
const named = (
  taught: RegExp,
  pre: string,
  mid: string,
  post: string,
  more: Partial<Form> = {},
): Form => {
  return { taught, body: 'json', pre, mid, post, ...more };
};

const tag = (name: string, end = ''): Form => {
  const [open, close] = [`<｜DSML｜${name}>\n`, `</｜DSML｜${name}>`];
  const value = ['<｜DSML｜parameter name="', '" string="#">', '</｜DSML｜parameter>\n'] as const;
  return params(
    new RegExp(`｜DSML｜[^]*${name}>${end}`),
    '<｜DSML｜invoke name="',
    '">\n',
    '</｜DSML｜invoke>\n',
    value,
    { open, close, join: '' },
  );
};
const argKeys = (taught: RegExp, line: string, after = ''): Form => {
  return params(
    taught,
    `<tool_call>`,
    `${after}${line}`,
    '</tool_call>',
    ['<arg_key>', `</arg_key>${line}<arg_value>`, `</arg_value>${line}`],
    { join: line },
  );
};

export const hermes = object(
  /<tool_call>/,
  ['<tool_call>', '</tool_call>'],
  ['<tool_call>\n', '\n</tool_call>'],
  { join: '\n' },
);
export const llama: Form = {
  ...object(
    /<\|python_tag\|>|["']parameters["'][^]*tools|tools[^]*["']parameters["']/,
    ['<|python_tag|>', ''],
    ['', ''],
  ),
  mid: '", "parameters": ',
  bare: true,
};
const mistralIds = named(/\[TOOL_CALLS\][^]*\[CALL_ID\]/, '[TOOL_CALLS]', '[CALL_ID]#[ARGS]', '', {
  join: '',
});
const mistralArgs = named(/\[TOOL_CALLS\][^]*\[ARGS\]/, '[TOOL_CALLS]', '[ARGS]', '', { join: '' });
const mistral = list(/\[TOOL_CALLS\]/, '[TOOL_CALLS]', '');
const lfm2 = /<\|tool_call_start\|>|<\|tool_list_start\|>|List of tools: \[/;
const cohere = { mid: '", "parameters": ' };

/** All formats. The first one that matches a template is the model's. */
export const forms: readonly Form[] = [
  {
    taught: /<\|tool_call>call:/,
    body: 'gemma',
    pre: '<|tool_call>call:',
    mid: '{',
    post: '}<tool_call|>',
    join: '',
  },
  named(
    /<\|tool_calls_section_begin\|>/,
    '<|tool_call_begin|>functions.',
    ':#<|tool_call_argument_begin|>',
    '<|tool_call_end|>',
    {
      open: '<|tool_calls_section_begin|>',
      join: '',
      close: '<|tool_calls_section_end|>',
    },
  ),
  params(
    /open_tag\('argument'/,
    '<|open|>call tool="',
    '" index="#"<|sep|>',
    '<|close|>call<|sep|>',
    ['<|open|>argument key="', '" type="#"<|sep|>', '<|close|>argument<|sep|>'],
    { open: '<|open|>tools<|sep|>', join: '', close: '<|close|>tools<|sep|>' },
  ),
  named(
    /<｜tool▁sep｜>[^]*```json/,
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>',
    '\n```json\n',
    '\n```<｜tool▁call▁end｜>',
    {
      open: '<｜tool▁calls▁begin｜>',
      join: '\n',
      close: '<｜tool▁calls▁end｜>',
    },
  ),
  named(/<｜tool▁sep｜>/, '<｜tool▁call▁begin｜>', '<｜tool▁sep｜>', '<｜tool▁call▁end｜>', {
    open: '<｜tool▁calls▁begin｜>',
    join: '',
    close: '<｜tool▁calls▁end｜>',
  }),
  tag('function_calls'),
  tag('tool_calls'),
  params(
    /\]<\]minimax\[>\[/,
    ']<]minimax[>[<invoke name="',
    '">',
    ']<]minimax[>[</invoke>\n',
    [']<]minimax[>[<', '>', ']<]minimax[>[</@>'],
    {
      open: ']<]minimax[>[<tool_call>\n',
      join: '',
      close: ']<]minimax[>[</tool_call>',
    },
  ),
  params(
    /<minimax:tool_call>/,
    '<invoke name="',
    '">\n',
    '</invoke>\n',
    ['<parameter name="', '">', '</parameter>\n'],
    {
      open: '<minimax:tool_call>\n',
      join: '',
      close: '</minimax:tool_call>',
    },
  ),
  params(
    /<atem:function_calls>/,
    '<atem:invoke name="',
    '">\n',
    '</atem:invoke>\n',
    ['<atem:parameter name="', '">', '</atem:parameter>\n'],
    {
      open: '<atem:function_calls>\n',
      join: '',
      close: '</atem:function_calls>',
    },
  ),
  params(
    /<function name=/,
    '<function name="',
    '">',
    '</function>',
    ['<param name="', '">', '</param>'],
    { join: '\n', cdata: true },
  ),
  params(
    /<seed:tool_call>/,
    '<seed:tool_call>\n<function=',
    '>\n',
    '</function>\n</seed:tool_call>',
    ['<parameter=', '>', '</parameter>\n'],
    { join: '\n' },
  ),
  params(
    /<function=[^]*<parameter=/,
    '<tool_call>\n<function=',
    '>\n',
    '</function>\n</tool_call>',
    ['<parameter=', '>\n', '\n</parameter>\n'],
    { join: '\n' },
  ),
  params(
    /<tool_sep\{\}>/,
    '<tool_call:opensource>',
    '<tool_sep:opensource>\n',
    '</tool_call:opensource>\n',
    [
      '<arg_key:opensource>',
      '</arg_key:opensource>\n<arg_value:opensource>',
      '</arg_value:opensource>\n',
    ],
    { open: '<tool_calls:opensource>\n', join: '', close: '</tool_calls:opensource>' },
  ),
  argKeys(
    /(name\}?|name\s*[-~+]?\s*\}\}|name -\}\})\s*\\?n?\s*<arg_key>[^]*<\/arg_key><arg_value>/,
    '',
  ),
  argKeys(/<arg_key>/, '\n'),
  named(/<function=/, '<function=', '>', '</function>', { join: '\n' }),
  named(/>>>\$\{recipient\}/, '>>>', '\n', '', { join: '\n', plain: '>>>all\n' }),
  mistralIds,
  mistralArgs,
  mistral,
  list(/<\|START_ACTION\|>/, '<|START_ACTION|>', '\n<|END_ACTION|>', {
    ...cohere,
    open: '<|START_ACTION|>[\n',
    pre: '    {"tool_call_id": "#", "tool_name": "',
    join: ',\n',
    close: '\n]<|END_ACTION|>',
  }),
  list(/Action:[^]*tool_name/, 'Action:\n```json\n', '\n```', {
    ...cohere,
    open: 'Action:\n```json\n[\n',
    pre: '    {\n        "tool_name": "',
    mid: '",\n        "parameters": ',
    post: '\n    }',
    join: ',\n',
    close: '\n]```',
  }),
  list(/<\|tools_prefix\|>/, '<|tools_prefix|>', '<|tools_suffix|>', { pre: '{"', mid: '": ' }),
  named(
    /<\|tool_call:begin\|>/,
    '<|tool_call:begin|>#<|tool_call:name|>',
    '<|tool_call:args|>',
    '<|tool_call:end|>',
    { open: '<|tool_calls|>', join: '\n', close: '' },
  ),
  {
    taught: lfm2,
    body: 'python',
    open: '<|tool_call_start|>[',
    pre: '',
    mid: '(',
    post: ')',
    join: ', ',
    close: ']<|tool_call_end|>',
  },
  object(/<\|function_call\|>/, ['<|function_call|>', ''], ['<|function_call|>', '']),
  object(
    /function call<\|role_sep\|>|'function call'/,
    ['function call<|role_sep|>', ''],
    ['<|message_sep|>\n\nfunction call<|role_sep|>\n', ''],
  ),
  list(/<\|tool_call\|>/, '<|tool_call|>', ''),
  list(/<TOOLCALL>/, '<TOOLCALL>', '</TOOLCALL>'),
  object(/<tool_calls>\\n\{/, ['<tool_calls>', '</tool_calls>'], ['', ''], {
    open: '<tool_calls>\n',
    join: '\n',
    close: '\n</tool_calls>',
  }),
  list(/<tool_calls>/, '<tool_calls>', '</tool_calls>'),
  list(/functools\[/, ' functools', ''),
  hermes,
  llama,
];

/** Formats that are always parsed, whatever the template. */
const common = [hermes, mistralIds, mistralArgs, mistral, llama];

/** The tool call format of a chat template; null if it does not support tools. */
export function toolForm(template: string | undefined): Form | null {
  if (!template || !/tool|function/i.test(template)) return null;
  return forms.find((form) => form.taught.test(template)) ?? null;
}

/** The formats to parse: the model's own and the common ones; if `strictly`, only its own. */
export function formsToRead(form: Form | null, strictly = false): readonly Form[] {
  const own = !form
    ? []
    : form.body === 'python'
      ? [form, { ...hermes, block: ['<|tool_call_start|>', '<|tool_call_end|>'] as const }]
      : [form];
  return strictly && form ? own : [...own, ...common.filter((each) => each !== form)];
}

/** The mark that starts a call of the format. */
export function markOf(form: Form): string {
  return form.block?.[0] ?? /^\S[^\n]*/.exec(form.open || form.pre)![0].replace(/#[^]*|\[$/, '');
}

/** Whether the template uses the harmony format of gpt-oss (harmony.ts). */
export const isHarmony = (template: string | undefined): boolean =>
  /<\|channel\|>(analysis|commentary)/.test(template ?? '');
