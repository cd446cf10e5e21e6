// Text on its way into the engine: as UTF-8, with its options as one number.

import type { TokenizeSpec } from '../protocol/messages.js';
import { TokenizeFlags, type EngineBinding } from './binding.js';
import { errorOf } from './header-loader.js';

/** Token ids; throws the engine's error, after which nothing of the text is held. */
export function tokenize(
  binding: EngineBinding,
  text: string,
  { addBos, parseSpecial, marked, continues }: TokenizeSpec,
): Int32Array {
  const how =
    (addBos ? TokenizeFlags.AddBos : 0) |
    (parseSpecial ? TokenizeFlags.ParseSpecial : 0) |
    (continues ? TokenizeFlags.Continues : 0) |
    (marked ? TokenizeFlags.Marked : 0);
  const ids = binding.tokenize(new TextEncoder().encode(text), how);
  if (!ids) throw errorOf(binding);
  return ids;
}
