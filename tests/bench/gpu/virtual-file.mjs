// Serves GGUF files whose weights are not stored: behind the header, every byte has the same value.
// The engine reads small tensors and rows of embeddings from it. A GPU gets other weights
// (synthetic-upload.ts).
import { createServer } from 'node:http';

/** Blocks whose bytes all have this value contain no infinities, in every quantization type. */
const kWeightByte = 0x3c;

/** Bytes [from, to) of a file. */
function bytesOf({ header }, from, to) {
  const bytes = Buffer.alloc(to - from, kWeightByte);
  if (from < header.length) header.copy(bytes, 0, from, Math.min(to, header.length));
  return bytes;
}

/** `files`: { header, size } by name. Resolves to the server's address and close(). */
export async function serveVirtual(files) {
  const server = createServer((request, response) => {
    const file = files[request.url.slice(1)];
    if (!file) return response.writeHead(404).end();
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const from = range ? Number(range[1]) : 0;
    const to = Math.min(range?.[2] ? Number(range[2]) + 1 : file.size, file.size);
    const headers = { 'Content-Length': to - from, 'Accept-Ranges': 'bytes', ETag: '"synthetic"' };
    if (range) headers['Content-Range'] = `bytes ${from}-${to - 1}/${file.size}`;
    response.writeHead(range ? 206 : 200, headers);
    if (request.method === 'HEAD') return response.end();
    const chunk = 1 << 20;
    let at = from;
    const write = () => {
      while (at < to) {
        const end = Math.min(at + chunk, to);
        const more = response.write(bytesOf(file, at, end));
        at = end;
        if (!more) return response.once('drain', write);
      }
      return response.end();
    };
    return write();
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () =>
      new Promise((closed) => {
        server.close(closed);
        server.closeAllConnections();
      }),
  };
}
