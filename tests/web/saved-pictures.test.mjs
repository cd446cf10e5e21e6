// Pictures of saved sessions, over the fake engine: files and pixels survive, and damage is found.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { buildFakePackage, fakeModel, importWeb, root } from './helpers.mjs';
import { memoryFolder } from './memory-folder.mjs';

const { Engine } = await import(
  join(await buildFakePackage({ name: 'saved-pictures' }), 'node.js')
);
const { SavedSessions } = await importWeb('sessions');
const directory = mkdtempSync(join(tmpdir(), 'sluice-saved-pictures-'));
const file = (name, bytes) => {
  writeFileSync(join(directory, name), bytes);
  return join(directory, name);
};
const png = readFileSync(join(root, 'tests', 'data', 'pictures', 'rgb.png'));
const greedy = { maxTokens: 6, temperature: 0 };
const look = (image) => [
  { type: 'text', text: 'look ' },
  { type: 'image', image },
  { type: 'text', text: ' there' },
];
let engine;
before(async () => {
  engine = await Engine.load(file('model.gguf', fakeModel({ header: 8000 })), {
    projector: file('projector.gguf', fakeModel({ units: 1, unitBytes: 1024, header: 1000 })),
    contextLength: 600,
    onProgress() {},
  });
});
after(async () => {
  await engine.dispose();
  rmSync(directory, { recursive: true, force: true });
});

test('files, buffers and pixels are restored with their session', async () => {
  const saved = await SavedSessions.open({ folder: memoryFolder() });
  const data = new Uint8ClampedArray(16).fill(7);
  const images = [
    new Blob([png], { type: 'image/png' }),
    new Uint8Array(png),
    new Uint8Array(png).buffer,
    { width: 2, height: 2, data },
    `data:image/png;base64,${png.toString('base64')}`,
  ];
  for (const image of images) {
    const session = engine.session();
    await session.send({ role: 'user', content: look(image) }, greedy).result;
    await session.generate(look({ width: 2, height: 2, data }), greedy).result;
    assert.ok(await saved.save('seen', session));
    const restored = engine.session();
    assert.ok(await saved.restore('seen', restored));
    const [was, is] = [await session.save(), await restored.save()];
    assert.deepEqual(is, was);
    await engine.setAdapters([]); // both are computed again, with their pictures
    const next = await session.generate(' and', greedy).result;
    const again = await restored.generate(' and', greedy).result;
    assert.equal(again.text, next.text);
    assert.ok(next.usage.promptTokens > 0);
  }
});

test('a damaged picture is a damaged session', async () => {
  const folder = memoryFolder();
  const saved = await SavedSessions.open({ folder });
  const session = engine.session();
  await session.generate(look(png), greedy).result;
  assert.ok(await saved.save('seen', session));
  const names = [];
  for await (const name of folder.keys()) names.push(name);
  const handle = await folder.getFileHandle(names.find((name) => name.endsWith('.session')));
  const bytes = Buffer.from(await (await handle.getFile()).arrayBuffer());
  const at = bytes.indexOf(png);
  assert.ok(at > 0);
  bytes[at + 50] ^= 1;
  const writable = await handle.createWritable();
  await writable.write(bytes);
  await writable.close();
  assert.equal(await saved.restore('seen', engine.session()), false);
  assert.deepEqual(await saved.list(), []);
});

test('what cannot be stored is named', async () => {
  class Drawn {
    width = 2;
    height = 2;
  }
  const saved = await SavedSessions.open({ folder: memoryFolder() });
  const session = engine.session({
    messages: [{ role: 'user', content: look(new Drawn()) }],
  });
  await assert.rejects(saved.save('drawn', session), {
    code: 'NOT_SUPPORTED',
    message: 'Drawn cannot be stored.',
  });
});
