// What the tests of both servers check about pictures that requests name by a URL.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';

/**
 * `start` starts a server with options, `messages` are those of a request with a picture at a URL,
 * `picture` is its file, and `expected` the response.
 */
export async function checkPictureUrls(start, { messages, picture, expected }) {
  const paths = [];
  const other = createServer((request, response) => {
    paths.push(request.url);
    if (request.url === '/redirect') {
      response.writeHead(302, { location: '/wide.png' }).end();
    } else if (request.url === '/wide.png') {
      response.end(picture);
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address();
  const ask = async (of, address) => {
    const { error, choices, status } = await of.json('/v1/chat/completions', {
      messages: messages(address),
      temperature: 0,
      max_tokens: 16,
      ignore_eos: true,
    });
    if (error) assert.equal(status, 400, error.message);
    return error?.code ?? choices[0].message.content;
  };
  try {
    const open = await start('--allow-image-urls');
    try {
      for (const host of ['127.0.0.1', 'localhost', '[::1]', '[::ffff:127.0.0.1]', '0x7f.1']) {
        const code = await ask(open, `http://${host}:${port}/wide.png`);
        assert.ok(['INVALID_ARGUMENT', 'NETWORK'].includes(code), `${host}: ${code}`);
      }
      assert.equal(await ask(open, 'file:///etc/passwd'), 'INVALID_ARGUMENT');
      assert.deepEqual(paths, []);
    } finally {
      await open.stop();
    }
    const near = await start('--allow-image-urls', '--allow-private-image-urls');
    try {
      assert.equal(await ask(near, `http://127.0.0.1:${port}/wide.png`), expected);
      assert.equal(await ask(near, `http://127.0.0.1:${port}/redirect`), expected);
      assert.equal(await ask(near, `http://127.0.0.1:${port}/absent`), 'HTTP_STATUS');
    } finally {
      await near.stop();
    }
  } finally {
    other.close();
  }
}
