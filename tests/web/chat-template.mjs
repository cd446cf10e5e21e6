// Renders templates and reads responses in chat.wasm, in Node: the helper of the tests of chat.
import { readFile } from 'node:fs/promises';
import { importWeb } from './helpers.mjs';

const { ChatWasm } = await importWeb('chat/chat-wasm');
const { jsonText } = await importWeb('chat/json');
const { PromptRenderer } = await importWeb('chat/renderer');

const noon = new Date(2024, 6, 26, 12);
const wasm = new ChatWasm(readFile);

/** A PromptRenderer with chat.wasm. */
export const renderer = (info, warn = () => {}, controls = async () => '[]') =>
  new PromptRenderer(info, ({ message }) => warn(message), controls, readFile);

/** An Answer: a response that is read. `controls`: JSON of control tokens. */
export const opened = (source, request = {}, { controls = '[]', prompt = '' } = {}) =>
  renderer({}, undefined, async () => controls).answer(
    { text: prompt, literalSpans: false },
    source,
    request,
  );

/**
 * The prompt that a template makes of variables, among them messages, tools and tokens; with marks
 * around literal spans if `marked`.
 */
export async function render(
  source,
  variables = {},
  { marked = false, now = noon, allowMissingText = true } = {},
) {
  const {
    messages = [{ role: 'user', content: 'Hello' }],
    tools,
    documents,
    bos_token,
    eos_token,
    add_generation_prompt = false,
    ...others
  } = variables;
  const json = (name, value) => (value == null ? undefined : jsonText(name, value));
  const { text } = await wasm.render(
    [source, bos_token, eos_token, undefined, undefined],
    [
      json('messages', messages),
      json('tools', tools),
      json('documents', documents),
      json('variables', others),
    ],
    +add_generation_prompt + 2 * +!marked + 4 * +allowMissingText, // RenderFlags
    now.getTime() / 1000,
  );
  return text;
}
