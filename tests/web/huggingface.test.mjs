// References to files on Hugging Face, and the choice of a file from a listing. The hub is faked.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';

const { findHuggingFaceFile, huggingFaceUrl, listHuggingFaceFiles, quantizationOf } =
  await importWeb('io/huggingface');

test('a reference becomes a URL', () => {
  assert.equal(huggingFaceUrl('hf:a/b/c.gguf'), 'https://huggingface.co/a/b/resolve/main/c.gguf');
  assert.equal(
    huggingFaceUrl('hf:a/b/d e/c.gguf@refs/pr/1'),
    'https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/d%20e/c.gguf',
  );
  assert.equal(
    huggingFaceUrl('hf:a/b.c/d.gguf', { endpoint: 'https://mirror.example' }),
    'https://mirror.example/a/b.c/resolve/main/d.gguf',
  );
  assert.equal(huggingFaceUrl('hf:a/b@v1'), 'https://huggingface.co/a/b/resolve/v1/');
  for (const bad of [
    'hf:a',
    'a/b/c.gguf',
    'hf:a/b/../c.gguf',
    'hf:../b/c.gguf',
    'hf:a/b/c.gguf?x',
  ]) {
    assert.throws(() => huggingFaceUrl(bad), { code: 'INVALID_ARGUMENT' }, bad);
  }
});

test('the quantization is read from a file name', () => {
  const names = {
    'Qwen3-0.6B-Q8_0.gguf': 'Q8_0',
    'model.q4_k_m.gguf': 'Q4_K_M',
    'x-IQ2_XXS.gguf': 'IQ2_XXS',
    'x-bf16.gguf': 'BF16',
    'Q4_0/x.gguf': 'Q4_0',
    'x-UD-Q4_K_XL.gguf': 'Q4_K_XL',
    'x-fp16.gguf': 'F16',
    'x-MXFP4.gguf': 'MXFP4',
    'plain.gguf': undefined,
  };
  for (const [name, quantization] of Object.entries(names))
    assert.equal(quantizationOf(name), quantization, name);
});

const file = (path, size) => ({ type: 'file', path, size });
const pages = [
  [
    file('README.md', 10),
    file('m-Q8_0.gguf', 800),
    file('m-Q4_K_M.gguf', 400),
    { type: 'directory', path: 'big', size: 0 },
  ],
  [
    file('big/m-F16-00001-of-00002.gguf', 900),
    file('big/m-F16-00002-of-00002.gguf', 700),
    file('mmproj-F16.gguf', 1),
    file('m-Q2_K.gguf', 200),
  ],
];
function hub(asked = []) {
  return async (url, { headers }) => {
    asked.push({ url, headers });
    const page = Number(new URL(url).searchParams.get('cursor') ?? 0);
    const link =
      page + 1 < pages.length
        ? { Link: `<${url.replace(/&cursor.*/, '')}&cursor=${page + 1}>; rel="next"` }
        : {};
    return new Response(JSON.stringify(pages[page]), { headers: link });
  };
}

test('a listing reads all pages and joins the parts of a split file', async () => {
  const asked = [];
  const files = await listHuggingFaceFiles('a/b', {
    fetch: hub(asked),
    revision: 'v1',
    token: 'secret',
  });
  assert.deepEqual(
    files.map((f) => [f.path, f.bytes, f.parts, f.quantization]),
    [
      ['mmproj-F16.gguf', 1, 1, 'F16'],
      ['m-Q2_K.gguf', 200, 1, 'Q2_K'],
      ['m-Q4_K_M.gguf', 400, 1, 'Q4_K_M'],
      ['m-Q8_0.gguf', 800, 1, 'Q8_0'],
      ['big/m-F16-00001-of-00002.gguf', 1600, 2, 'F16'],
    ],
  );
  assert.equal(asked[0].url, 'https://huggingface.co/api/models/a/b/tree/v1?recursive=true');
  assert.ok(asked.every(({ headers }) => headers.Authorization === 'Bearer secret'));
});

test('a file is chosen by quantization, by size, or by a default rule', async () => {
  const find = (wanted) => findHuggingFaceFile('hf:a/b', wanted, { fetch: hub() });
  assert.equal((await find({ quantization: 'q8_0' })).path, 'm-Q8_0.gguf');
  assert.equal((await find({ maxBytes: 799 })).path, 'm-Q4_K_M.gguf');
  assert.equal((await find()).path, 'm-Q4_K_M.gguf');
  assert.equal(
    (await find({ quantization: 'F16' })).url,
    'https://huggingface.co/a/b/resolve/main/big/m-F16-00001-of-00002.gguf',
  );
  await assert.rejects(
    find({ quantization: 'Q3_K_S' }),
    (e) => e.code === 'NOT_FOUND' && /Q8_0/.test(e.message),
  );
});

test('failures have a code', async () => {
  const answer = (body, init) => ({ fetch: async () => new Response(body, init) });
  await assert.rejects(listHuggingFaceFiles('a/b', answer('', { status: 404 })), {
    code: 'NOT_FOUND',
  });
  await assert.rejects(
    listHuggingFaceFiles('a/b', answer('', { status: 401 })),
    (e) => e.code === 'HTTP_STATUS' && /token/.test(e.message),
  );
  await assert.rejects(listHuggingFaceFiles('a/b', answer('<html>')), { code: 'HTTP_STATUS' });
  await assert.rejects(
    listHuggingFaceFiles('a/b', {
      fetch: async () => {
        throw new TypeError('offline');
      },
    }),
    { code: 'NETWORK' },
  );
  assert.deepEqual(
    await listHuggingFaceFiles('a/b', answer('[{"type":"file","path":"x.gguf","size":"big"}]')),
    [],
  );
});

test('a file that is not a language model is never chosen or suggested', async () => {
  const listing = [
    'm-imatrix.gguf',
    'imatrix.gguf',
    'mmproj-model-f16.gguf',
    'x/mmproj-F16.gguf',
    'ggml-vocab-m.gguf',
    'm-Q8_0.gguf',
    'm-Q5_0.gguf',
  ];
  const answer = {
    fetch: async () => new Response(JSON.stringify(listing.map((path, i) => file(path, i + 1)))),
  };
  // The smallest of the models.
  assert.equal((await findHuggingFaceFile('a/b', {}, answer)).path, 'm-Q8_0.gguf');
  assert.equal((await findHuggingFaceFile('a/b', { maxBytes: 6 }, answer)).path, 'm-Q8_0.gguf');
  await assert.rejects(
    findHuggingFaceFile('a/b', { maxBytes: 5 }, answer),
    (e) => e.code === 'NOT_FOUND' && !/matrix|mmproj|F16/.test(e.message),
  );
});

test('the projector of a model is the one that has its name, or none', async () => {
  const { projectors } = await importWeb('io/hub-reference');
  const first = (names, model) =>
    projectors(
      names.map((path) => ({ path })),
      model,
    )[0]?.path;
  const many = [
    'a.mmproj-f16.gguf',
    'a-b.mmproj-Q8_0.gguf',
    'ab.mmproj-f16.gguf',
    'mmproj-F16.gguf',
  ];
  assert.equal(first(many, 'a.Q4_K_M.gguf'), 'a.mmproj-f16.gguf');
  assert.equal(first(many, 'a-b-Q4_0.gguf'), 'a-b.mmproj-Q8_0.gguf');
  assert.equal(first(many, 'abc.gguf'), 'mmproj-F16.gguf');
  assert.equal(first(['a.gguf', 'ab-mmproj.gguf', 'mmproj.txt'], 'a.gguf'), undefined);
  assert.equal(first(['a.Q4_0.gguf', 'x/a.mmproj-f16.gguf']), 'x/a.mmproj-f16.gguf');
  assert.equal(first(['mmproj-Q8_0.gguf', 'mmproj-BF16.gguf'], 'a.gguf'), 'mmproj-BF16.gguf');
});

test('an abort during the listing rejects with its reason', async () => {
  const control = new AbortController();
  const reason = new Error('left');
  const body = new ReadableStream({
    start: (stream) =>
      control.signal.addEventListener('abort', () =>
        stream.error(new DOMException('aborted', 'AbortError')),
      ),
  });
  const fetch = async () => {
    setTimeout(() => control.abort(reason), 5);
    return new Response(body);
  };
  await assert.rejects(
    listHuggingFaceFiles('a/b', { fetch, signal: control.signal }),
    (e) => e === reason,
  );
  const hung = () => new Promise((_, reject) => reject(new DOMException('aborted', 'AbortError')));
  await assert.rejects(
    listHuggingFaceFiles('a/b', { fetch: hung, signal: control.signal }),
    (e) => e === reason,
  );
});

test('a long listing is read to its end, an endless one is an error', async () => {
  let last = 30;
  const fetch = async (url) => {
    const page = Number(new URL(url).searchParams.get('cursor') ?? 0);
    const link =
      page < last
        ? { Link: `<${url.replace(/&cursor.*/, '')}&cursor=${page + 1}>; rel="next"` }
        : {};
    return new Response(JSON.stringify([file(`m${page}-Q8_0.gguf`, page)]), { headers: link });
  };
  assert.equal((await listHuggingFaceFiles('a/b', { fetch })).length, 31);
  last = Infinity;
  await assert.rejects(listHuggingFaceFiles('a/b', { fetch }), { code: 'NOT_SUPPORTED' });
});
