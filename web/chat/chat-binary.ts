// Where chat.wasm is: beside this script. inline.js has it inside instead (chat-binary-inlined.ts).

/** `readFile`: Node's, whose fetch() reads no files. */
export const chatBinary = (
  readFile?: (path: URL) => Promise<Uint8Array>,
): Promise<Response | Uint8Array> => {
  const url = new URL('./chat.wasm', import.meta.url);
  return readFile ? readFile(url) : fetch(url);
};
