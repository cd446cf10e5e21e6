// Pictures that the Node server fetches for requests: which addresses it connects to, behind names
// and redirects, and the limits of size and time.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { fetchPicture, isPublicAddress } = await importWeb('serve/picture-urls');

// The native server's (tests/unit/picture_source_test.cpp).
test('addresses are public or not', () => {
  const yes =
    '8.8.8.8 1.1.1.1 172.15.0.1 172.32.0.1 100.63.255.255 100.128.0.0 11.0.0.1 192.169.0.1 223.255.255.255 126.255.255.255 128.0.0.1 198.17.255.255 198.20.0.0 2606:4700:4700:: 2a00:1450:4000::';
  for (const address of yes.split(' ')) assert.equal(isPublicAddress(address), true, address);
  const no =
    '0.0.0.0 10.1.2.3 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.255 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 ::ffff:808:808 64:ff9b::7f00:1 2002:7f00:1:: 2001:0:1:: 2001:db8:1:: fe80::1 fe80::1%lo fc00:1:: fd12:1:: ff02::1 localhost 1.2.3';
  for (const address of ['', ...no.split(' ')])
    assert.equal(isPublicAddress(address), false, address);
});

const asked = [];
let base;
let port;
const server = createServer(({ url }, response) => {
  asked.push(url);
  if (url.startsWith('/to?')) return response.writeHead(302, { location: url.slice(4) }).end();
  if (url.startsWith('/absent')) return response.writeHead(404).end();
  if (url === '/stall') return void response.writeHead(200).write('12');
  if (url === '/announced') response.setHeader('content-length', 8);
  response.end('12345678');
});
before(async () => {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  ({ port } = server.address());
  base = `http://127.0.0.1:${port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const open = { allows: () => true, maxBytes: 8, timeoutMs: 5000 };
const refused = (url, limits, code, message) =>
  assert.rejects(fetchPicture(url, limits), { code, message });

test('without permission no request arrives, under no name of the address', async () => {
  const limits = { allows: isPublicAddress };
  const hosts = ['127.0.0.1', 'localhost', '0x7f.1', '2130706433', '[::1]', '[::ffff:127.0.0.1]'];
  for (const host of [...hosts, '0.0.0.0'])
    await refused(`http://${host}:${port}/a`, limits, 'INVALID_ARGUMENT', /is not public$/);
  for (const url of ['file:///etc/passwd', 'ftp://example.com/a', 'sluice-image:0', '', 'x.png'])
    await refused(url, limits, 'INVALID_ARGUMENT', /only http and https/);
  assert.deepEqual(asked, []);
});

test('a redirect is judged by its own address', async () => {
  const asks = [];
  const limits = {
    ...open,
    allows: (address) => {
      asks.push(address);
      return address === '127.0.0.1';
    },
  };
  asked.length = 0;
  const elsewhere = `http://127.0.0.2:${port}/a`;
  await refused(`${base}/to?${elsewhere}`, limits, 'INVALID_ARGUMENT', /is not public$/);
  assert.deepEqual(asked, [`/to?${elsewhere}`]);
  assert.deepEqual(asks, ['127.0.0.1', '127.0.0.2']);
  assert.equal(
    `${Buffer.from(await fetchPicture(`http://localhost:${port}/a`, limits))}`,
    '12345678',
  );
});

test('size, time and redirects have limits', async () => {
  for (const path of ['/a', '/announced', '/to?/a', `/to?/to?/to?/a`]) {
    const bytes = await fetchPicture(base + path, open);
    assert.equal(Buffer.from(bytes).toString(), '12345678', path);
    if (!path.startsWith('/to'))
      await refused(base + path, { ...open, maxBytes: 7 }, 'INVALID_ARGUMENT', /more than 7 bytes/);
  }
  await refused(`${base}/to?/to?/to?/to?/a`, open, 'NETWORK', /too many redirects/);
  await refused(`${base}/to?file:///etc/passwd`, open, 'INVALID_ARGUMENT', /only http/);
  await refused(`${base}/absent?secret`, open, 'HTTP_STATUS', /\/absent: HTTP status 404$/);
  await refused(`${base}/stall`, { ...open, timeoutMs: 200 }, 'NETWORK', /too long/);
  await refused('http://127.0.0.1:1/a', open, 'NETWORK', /ECONNREFUSED/);
});
