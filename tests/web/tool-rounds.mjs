// Helpers for tool calls: what templates render of them, and what a reader finds in text that
// arrives in pieces.
import { render } from './chat-template.mjs';

/** All that is read of tokens: reasoning, content and calls. Closes the answer. */
export function readTokens(answer, tokens) {
  const out = { reasoning: '', content: '', calls: [] };
  const add = ({ reasoning, content, calls }) => {
    out.reasoning += reasoning;
    out.content += content;
    out.calls.push(...calls);
  };
  for (const token of tokens) add(answer.push(token));
  add(answer.finish());
  answer.close();
  return out;
}

/**
 * What is read of text that is cut at `cuts`: reasoning, content, and calls as [name, arguments].
 * `make` opens the answer.
 */
export async function read(make, text, cuts) {
  const ends = [...cuts, text.length];
  const pieces = ends.map((to, i) => ({ text: text.slice(ends[i - 1] ?? 0, to), token: -1 }));
  const { calls, ...out } = readTokens(await make(), pieces);
  return { ...out, calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]) };
}

/** Cuts into pieces of several sizes, and into two at every `step`-th position. */
export function* everyCut(length, step = 1) {
  for (const size of [1, 2, 3, 7])
    yield Array.from({ length: Math.floor((length - 1) / size) }, (_, i) => (i + 1) * size);
  for (let at = 0; at <= length; at += step) yield [at];
}

/** Text before and after an assistant message, apart from white space that templates add. */
const kAround =
  /^[^]*?(<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|<\|start\|>assistant(?= to=))|<\|eot_id\|>[^]*$|<\|eom_id\|>[^]*$/g;

/**
 * The text that a template renders for calls and a result, from the end of the question, and
 * whether the result is in it. Null if it renders no calls.
 */
export async function rendered(source, tools, calls, asText) {
  const tool_calls = calls.map(([name, args], i) => ({
    id: `abcdefgh${i}`,
    type: 'function',
    function: { name, arguments: asText ? JSON.stringify(args) : args },
  }));
  const question = 'Q-U-E-S-T';
  const turn = (content) => [
    { role: 'user', content: question },
    { role: 'assistant', content, tool_calls },
    { role: 'tool', tool_call_id: 'abcdefgh0', name: calls[0][0], content: 'RESULT' },
  ];
  for (const content of ['', null]) {
    const variables = {
      messages: turn(content),
      tools,
      bos_token: '<BOS>',
      eos_token: '<EOS>',
      add_generation_prompt: true,
    };
    const text = await render(source, variables);
    if (!text.includes(calls[0][0], text.lastIndexOf(question))) continue;
    const answer = text
      .slice(text.lastIndexOf(question) + question.length)
      .replace(/^<\|(eot_id|end)\|>/, '')
      .replace(kAround, '')
      .replace(/(<\|tool_result\|>|<\|start\|>functions\.)[^]*/, '');
    return { text: answer, result: text.includes('RESULT', text.lastIndexOf(question)) };
  }
  return null;
}
