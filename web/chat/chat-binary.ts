// Where chat.wasm is: beside this script. inline.js has it inside instead (chat-binary-inlined.ts).

import { unmoved } from '../protocol/address.js';

/** `readFile`: Node's, whose fetch() reads no files. */
export const chatBinary = (
  readFile?: (path: URL) => Promise<Uint8Array>,
): Promise<Response | Uint8Array> => {
  if (!import.meta.url) throw new Error('bundle as an ES module, which has import.meta.url');
  const url = new URL('./chat.wasm', import.meta.url);
  return readFile ? readFile(url) : fetch(unmoved(url.href));
};
