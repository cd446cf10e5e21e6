// Where chat.wasm is: beside this script. inline.js has it inside instead (chat-binary-inlined.ts).

import { unmoved } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';

/** `readFile`: Node's, whose fetch() reads no files. */
export const chatBinary = (
  readFile?: (path: URL) => Promise<Uint8Array>,
): Promise<Response | Uint8Array> => {
  if (!import.meta.url)
    throw new SluiceError(
      'MODULE_LOAD',
      'chat.wasm cannot be found without import.meta.url: bundle as an ES module (--format=esm).',
    );
  const url = new URL('./chat.wasm', import.meta.url);
  return readFile ? readFile(url) : fetch(unmoved(url.href));
};
