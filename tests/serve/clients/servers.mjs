// The servers that the clients talk to: one whose model follows a script, and one with the sample
// model, which writes stories and embeddings. Both ask for a key.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { scriptedModel } from '../../web/scripted-model.mjs';
import { Server } from '../server.mjs';

export const key = 'secret';

// What the model says depends on what reaches the template: the tools, the model's own call, and
// the tool's result. '<tool_call>' and '<think>' in a branch that never runs are the formats.
const template =
  `{% if false %}<think></think><tool_call>{"name": …}</tool_call>{% endif %}` +
  `{% set ns = namespace(calls='') %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n` +
  `{% if m.tool_calls %}{% set ns.calls = m.tool_calls | tojson %}{{ ns.calls }}\n{% endif %}` +
  `{% endfor %}{{ tools | tojson if tools }}\n{% set first = messages[0] %}` +
  `{% set last = messages[-1] %}{% if last.role == 'tool' %}` +
  `{% if 'Rome' in ns.calls and '30 degrees' in last.content and messages[-2].role == 'tool' %}` +
  `<|warmer|>{% elif '21 degrees' in last.content and 'Oslo' in ns.calls %}<|warm|>` +
  `{% else %}<|lost|>{% endif %}` +
  `{% elif 'Reason' in last.content %}<|reason|>` +
  `{% elif 'JSON' in last.content %}<|json|>` +
  `{% elif 'Choose' in last.content %}<|choose|>` +
  `{% elif tools and 'both' in last.content %}<|calls|>` +
  `{% elif tools %}<|call|>` +
  `{% elif first.role in ['system', 'developer'] and 'pirate' in first.content %}<|pirate|>` +
  `{% else %}<|hello|>{% endif %}`;

// Each piece follows the one before it, also where a grammar has forced that: then the last token
// is a single character, so ' ' and '{' are pieces.
const scripts = {
  '<|hello|>': ['Hello', ' there', '.'],
  '<|pirate|>': ['Ahoy', '!'],
  '<|reason|>': ['<think>Hmm', '.</think>', '\n\nYes.'],
  '<|json|>': ['{"city":"Rome","degrees":', '30}'],
  '<|choose|>': ['{"result":"no"', '}\n'],
  '<|call|>': [
    ...['<tool_call>\n', '{"name": "weather", "arguments":', ' ', '{', '"city": "Oslo"', '}}\n'],
    '</tool_call>',
  ],
  '<|calls|>': [
    ...['I ask twice.', '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n'],
    ...['</tool_call>\n', '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}'],
    '\n</tool_call>',
  ],
  '<|warmer|>': ['It is warmer', ' in Rome.'],
  '<|warm|>': ['It is warm', ' in Oslo.'],
  '<|lost|>': ['No weather.'],
};

/** Prompts, and what the model answers to them. */
export const asks = {
  hello: { prompt: 'Hi.', answer: 'Hello there.' },
  pirate: { system: 'You are a pirate.', prompt: 'Hi.', answer: 'Ahoy!' },
  reason: { prompt: 'Reason.', reasoning: 'Hmm.', answer: 'Yes.' },
  json: { prompt: 'The weather as JSON.', value: { city: 'Rome', degrees: 30 } },
  choice: { prompt: 'Choose.', options: ['yes', 'no'], value: 'no' },
  // The tool's result must reach the model.
  weather: {
    prompt: 'What is the weather?',
    call: { name: 'weather', arguments: { city: 'Oslo' } },
    result: '21 degrees',
    answer: 'It is warm in Oslo.',
  },
  both: {
    prompt: 'What is the weather in both cities?',
    text: 'I ask twice.',
    results: { Oslo: '21 degrees', Rome: '30 degrees' },
    answer: 'It is warmer in Rome.',
  },
};

/** JSON schema of the tool's arguments. */
export const parameters = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};

process.on('exit', () => {
  for (const child of Server.running) child.kill('SIGKILL');
});

/** Starts both; resolves to { script, tales, stop() }. */
export async function start() {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-clients-'));
  const file = join(directory, 'script.gguf');
  writeFileSync(file, scriptedModel({ template, scripts }));
  const [script, tales] = await Promise.all([
    Server.startWith(file, '--ctx', '2048', '--api-key', key),
    Server.start('--ctx', '512', '--api-key', key),
  ]);
  return {
    script,
    tales,
    async stop() {
      await Promise.all([script.stop(), tales.stop()]);
      rmSync(directory, { recursive: true });
    },
  };
}
