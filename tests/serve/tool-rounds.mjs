// A model that calls a function and answers with its result, for the tests of APIs that are not
// OpenAI's chats. It answers only if the prompt shows its own reasoning and call, and the result.
import { scriptedModel } from '../web/scripted-model.mjs';

/** JSON that a number type would change. */
export const big = { n: '12345678901234567890123', x: '0.1000000000000000000001' };

const template =
  `{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}` +
  `{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}` +
  `{% endfor %}{{ tools | tojson if tools }}` +
  `{% if false %}<think></think><tool_call>{"name": …}</tool_call>{% endif %}` +
  `{% if messages[-1].role != 'tool' %}<|call|>` +
  `{% elif messages[-1].content == '${big.x}' and messages[-2].reasoning_content == 'Hmm.' and ` +
  `'${big.n}' in (messages[-2].tool_calls[0].function.arguments | tojson) %}<|answer|>` +
  `{% else %}<|lost|>{% endif %}`;

export const model = () =>
  scriptedModel({
    template,
    scripts: {
      '<|call|>': [
        ...['<think>Hmm', '.</think>', 'I look.', '<tool_call>\n'],
        ...['{"name": "put", ', `"arguments": {"n": ${big.n}, "x": ${big.x}`, '}}\n</tool_call>'],
      ],
      '<|answer|>': ['It is ', 'done.'],
      '<|lost|>': ['What?'],
    },
  });
