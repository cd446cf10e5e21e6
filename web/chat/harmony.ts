// Parses the harmony format of gpt-oss. A response is a series of messages in channels: "analysis"
// is reasoning, "final" is content, and a message addressed to a function is a tool call.
//   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>
//   <|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>
// A response that starts differently is plain text. Part of templates.js.

import type { ToolCall } from './openai.js';
import { TextReader, type Step } from './text-reader.js';
import { newCall } from './tool-calls.js';

export const kHarmonyMarks = [
  '<|start|>',
  '<|end|>',
  '<|message|>',
  '<|channel|>',
  '<|constrain|>',
  '<|call|>',
  '<|return|>',
];
const kEnds = ['<|end|>', '<|call|>', '<|return|>', '<|start|>', '<|channel|>'];

export interface HarmonyPart {
  reasoning: string;
  content: string;
  calls: ToolCall[];
}

export class HarmonyReader {
  readonly #in = new TextReader();
  #out: HarmonyPart = { reasoning: '', content: '', calls: [] };
  readonly #work = this.#run();

  push(text: string): HarmonyPart {
    this.#in.text += text;
    return this.#advance();
  }

  finish(): HarmonyPart {
    this.#in.ended = true;
    return this.#advance();
  }

  #advance(): HarmonyPart {
    this.#work.next();
    const out = this.#out;
    this.#out = { reasoning: '', content: '', calls: [] };
    return out;
  }

  *#run(): Step<void> {
    const reader = this.#in;
    for (;;) {
      reader.text = reader.text.slice(reader.at);
      reader.at = 0;
      const header = yield* this.#header();
      if (header === null) break;
      const to = / to=(?:functions\.)?([\w.-]+)/.exec(header)?.[1];
      if (to !== undefined) yield* this.#call(to);
      else yield* this.#text(/<\|channel\|>\s*analysis/.test(header) ? 'reasoning' : 'content');
    }
    for (;;) {
      this.#out.content += reader.text.slice(reader.at);
      reader.at = reader.text.length;
      if (reader.ended) return;
      yield;
    }
  }

  /** Reads the header of a message; null if no message starts here. */
  *#header(): Step<string | null> {
    const reader = this.#in;
    yield* reader.take('<|start|>assistant');
    const start = reader.at;
    const begins = (yield* reader.take('<|channel|>')) || (yield* reader.take('to='));
    reader.at = start;
    if (!begins) return null;
    const header = yield* reader.until('<|message|>');
    if (header !== null && !header.includes('\n')) return ` ${header}`;
    reader.at = start;
    return null;
  }

  *#call(name: string): Step<void> {
    const reader = this.#in;
    const start = reader.at;
    yield* reader.skip(/\s/);
    const c = yield* reader.peek();
    const value = c === '{' ? yield* reader.json() : null;
    if (typeof value === 'object' && value !== null) {
      this.#out.calls.push(newCall(name, value));
      yield* reader.skip(/\s/);
      yield* this.#end();
      return;
    }
    reader.at = start;
    yield* this.#text('content');
  }

  *#end(): Step<boolean> {
    for (const mark of kEnds) {
      const start = this.#in.at;
      if (!(yield* this.#in.take(mark))) continue;
      if (mark === '<|start|>' || mark === '<|channel|>') this.#in.at = start;
      return true;
    }
    return false;
  }

  /** Emits the text of a message as it arrives. */
  *#text(where: 'reasoning' | 'content'): Step<void> {
    const reader = this.#in;
    for (;;) {
      const found = reader.text.indexOf('<', reader.at);
      const sure = found < 0 ? reader.text.length : found;
      this.#out[where] += reader.text.slice(reader.at, sure);
      reader.at = sure;
      const c = yield* reader.peek();
      if (c === '' || (c === '<' && (yield* this.#end()))) return;
      if (c !== '<') continue;
      this.#out[where] += '<';
      reader.at++;
    }
  }
}
