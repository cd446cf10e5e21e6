// What sluice.exe has when it is built with vcpkg's libraries, which Debian lacks for Windows:
// SLUICE_WINDOWS_PROGRAM names such a program, to run under wine. Compared with the native one.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { wine, wineEnvironment } from './wine.mjs';

const program = process.env.SLUICE_WINDOWS_PROGRAM;
const skip = program ? false : 'SLUICE_WINDOWS_PROGRAM is not set';
const root = fileURLToPath(new URL('../..', import.meta.url));
const model = join(root, 'examples/models/sluice-tales-Q8_0.gguf');
const story = ['--raw', '-p', 'Once upon a time', '-n', '20', '--temp', '0'];
const folder = mkdtempSync(join(tmpdir(), 'sluice-windows-'));
after(() => rmSync(folder, { recursive: true }));

const native = async (...args) =>
  (await promisify(execFile)(join(root, 'build/native/sluice'), args)).stdout;
const environment = () => ({ ...process.env, ...wineEnvironment() });
const onWindows = async (...args) =>
  (await promisify(execFile)(wine(), [program, ...args], { env: environment() })).stdout;

let expected;
before(async () => (expected = await native('run', model, ...story)));

test('URLs are read, streamed within a budget and cached', { skip }, async () => {
  const bytes = readFileSync(model);
  const server = createServer((request, response) => {
    const [, first, last] = /bytes=(\d+)-(\d+)/.exec(request.headers.range);
    const part = bytes.subarray(Number(first), Number(last) + 1);
    response.writeHead(206, {
      etag: '"1"',
      'content-range': `bytes ${first}-${Number(first) + part.length - 1}/${bytes.length}`,
    });
    response.end(part);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${server.address().port}/model.gguf`;
  const cached = ['--cache-dir', join(folder, 'cache')];
  try {
    assert.equal(await onWindows('run', url, ...story, '--memory-budget', '1000k'), expected);
    assert.equal(await onWindows('run', url, ...story, ...cached), expected);
    const again = JSON.parse(await onWindows('run', url, ...story, ...cached, '--json'));
    assert.ok(again.bytesFromCache >= bytes.length, `${again.bytesFromCache} bytes`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test('compressed QSF is read', { skip }, async () => {
  for (const compression of ['lz4', 'zstd']) {
    const file = join(folder, `${compression}.qsf`);
    await native('convert', '--force', model, file, '--compress', compression);
    assert.equal(await onWindows('run', file, ...story), expected);
  }
});

test('the server answers, streams, and refuses an address in use', { skip }, async () => {
  const args = [program, 'serve', model, '--port', '0', '--json', '--quiet'];
  const server = spawn(wine(), args, { env: environment() });
  try {
    const [line] = await once(createInterface({ input: server.stdout }), 'line');
    const { url } = JSON.parse(line);
    const ask = async (more) => {
      const params = { prompt: 'Once upon a time', max_tokens: 20, temperature: 0, ...more };
      const init = { method: 'POST', body: JSON.stringify(params) };
      return (await fetch(`${url}/v1/completions`, init)).text();
    };
    const whole = JSON.parse(await ask({})).choices[0].text;
    assert.equal(`Once upon a time${whole}`, expected.trimEnd());
    const events = [...(await ask({ stream: true })).matchAll(/^data: (\{.*)$/gm)];
    assert.equal(events.map(([, data]) => JSON.parse(data).choices[0].text).join(''), whole);
    await assert.rejects(
      onWindows('serve', model, '--port', new URL(url).port),
      /cannot listen .* Address already in use \[IO\]/,
    );
  } finally {
    server.kill();
  }
});
