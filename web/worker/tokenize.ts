// Tokenizes a string: passes it to the engine as UTF-8, with the options as flags.

import type { TokenizeSpec } from '../protocol/messages.js';
import { TokenizeFlags, type EngineBinding } from './binding.js';
import { errorOf } from './header-loader.js';

export const flagsOf = ({
  addSpecial,
  parseSpecial,
  literalSpans,
  continuation,
}: TokenizeSpec): number =>
  (addSpecial ? TokenizeFlags.AddSpecial : 0) |
  (parseSpecial ? TokenizeFlags.ParseSpecial : 0) |
  (continuation ? TokenizeFlags.Continuation : 0) |
  (literalSpans ? TokenizeFlags.LiteralSpans : 0);

/** Token ids. Throws the engine's error; nothing stays allocated after it. */
export function tokenize(binding: EngineBinding, text: string, spec: TokenizeSpec): Int32Array {
  const ids = binding.tokenize(new TextEncoder().encode(text), flagsOf(spec));
  if (!ids) throw errorOf(binding);
  return ids;
}
