// npm run bench:vision: pictures. One table with
//   - encode: the projector alone, natively. Ours is the whole `sluice encode`, which also reads the
//     picture and the weights; llama-mtmd-cli's is the time that it prints for its encoder.
//   - first token: a prompt with one picture in headless Chromium, ours against wllama. Both encode
//     the picture and compute its tokens with the text model.
//   - memory: the renderer's peak while our tab does the same at a budget of three quarters of the
//     projector. Fails if it exceeds the budget by more than bench:budget allows.
// Models are pairs of published shapes with random weights. llama-mtmd-cli is not in npm packages:
// build it from the sources that node-llama-cpp carries (llama/gitRelease.bundle).
//   npm run bench:vision -- [--model qwen3-vl-2b,smolvlm2-500m] [--type f16,q8_0] [--text-type q4_0]
//                           [--size 1280x960] [--threads 2] [--rounds 2] [--llama-mtmd FILE]
//                           [--native] [--web] [--memory] [--no-build]
import { existsSync, mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from '../../web/scripts/build.mjs';
import { cmakeBuild } from '../../web/scripts/wasm.mjs';
import { capture, inRoot, run } from '../../web/scripts/lib.mjs';
import { setup } from '../../web/scripts/setup.mjs';
import { Bench, scratchFolder } from './browser.mjs';
import { modelFile, modelFolder, table } from './lib.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'qwen3-vl-2b,smolvlm2-500m' },
    type: { type: 'string', default: 'f16' },
    'text-type': { type: 'string', default: 'q4_0' },
    size: { type: 'string', default: '1280x960' },
    threads: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '2' },
    'llama-mtmd': { type: 'string' },
    native: { type: 'boolean' },
    web: { type: 'boolean' },
    memory: { type: 'boolean' },
    'no-build': { type: 'boolean' },
  },
});
const all = !values.native && !values.web && !values.memory;
const rounds = Number(values.rounds);
const MB = 2 ** 20;
const kRendererRoom = 150 * MB; // as in budget.mjs
const kContext = 1536; // holds the picture; more would make the cache larger than the projector
const sluice = inRoot('build', 'native', 'sluice');

/** The projector of a shape, made on first use. */
function projectorFile(shape, type) {
  const file = join(modelFolder, `mmproj-${shape}-${type}.gguf`);
  if (existsSync(file)) return file;
  mkdirSync(modelFolder, { recursive: true });
  cmakeBuild('native', { targets: ['sluice-make-model'] });
  const make = inRoot('build', 'native', 'sluice-make-model');
  run(make, ['--quiet', '--projector', '-s', shape, '-t', type, `${file}.part`]);
  renameSync(`${file}.part`, file);
  return file;
}

/** A BMP file of 24 bits: colours that change slowly, with a fine pattern. */
function picture(width, height) {
  const stride = (3 * width + 3) & ~3;
  const out = Buffer.alloc(54 + stride * height);
  out.write('BM');
  out.writeUInt32LE(out.length, 2);
  out.writeUInt32LE(54, 10);
  out.writeUInt32LE(40, 14);
  out.writeInt32LE(width, 18);
  out.writeInt32LE(height, 22);
  out.writeUInt16LE(1, 26);
  out.writeUInt16LE(24, 28);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let c = 0; c < 3; c++)
        out[54 + y * stride + 3 * x + c] =
          (255 * (x * (c + 1) + y)) / (width * 3 + height) + ((x ^ y) & 15);
  return out;
}

/** The best of the rounds, with both sides in turns; milliseconds. */
async function bestInTurns(sides) {
  const best = sides.map(() => Infinity);
  for (let round = 0; round < rounds; round++)
    for (const [i, side] of sides.entries()) best[i] = Math.min(best[i], await side());
  return best;
}

async function encodeOurs({ text, projector, image, prompt, out }) {
  const start = performance.now();
  const { code, output } = await capture(sluice, [
    'encode',
    text,
    '--projector',
    projector,
    '--prompt-file',
    prompt,
    '--image',
    image,
    '--out',
    out,
    '--threads',
    values.threads,
  ]);
  if (code !== 0) throw new Error(output);
  return performance.now() - start;
}

async function encodeMtmd({ text, projector, image }) {
  const { code, output } = await capture(values['llama-mtmd'], [
    ...['-m', text, '--mmproj', projector, '--image', image, '-p', 'a'],
    ...['-n', '1', '-t', values.threads, '-ngl', '0', '--no-mmproj-offload', '-c', '8192'],
  ]);
  const times = [...output.matchAll(/(?:encoded in|encoding done in) (\d+) ms/g)].map((match) =>
    Number(match[1]),
  );
  if (code !== 0 || times.length === 0) throw new Error(output.slice(-2000));
  return times.reduce((a, b) => a + b);
}

// --- in the page (functions sent as text) --------------------------------------------------------

async function firstTokenOfOurs({ text, projector, image, threads, budget, rounds, context }) {
  const { Engine } = await import('/dist/index.js');
  const at = (url) => new URL(url, location.href);
  const engine = await Engine.load(at(text), {
    projector: at(projector),
    memoryBudget: budget,
    contextLength: context,
    threads,
    cache: 'none',
  });
  const blob = await (await fetch(image)).blob();
  let best = Infinity;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await engine.generate('<__media__>a', {
      images: [blob],
      maxTokens: 1,
      temperature: 0,
      ignoreEos: true,
      cachePrompt: false,
    }).result;
    best = Math.min(best, performance.now() - start);
  }
  return { ms: best, heap: engine.memory().heap, threads: engine.stats().threads };
}

async function firstTokenOfWllama({ text, projector, image, threads, rounds, context }) {
  const { Wllama } = await import('/wllama/index.js');
  const peer = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, { suppressNativeLog: true });
  const blobs = await Promise.all([text, projector].map(async (url) => (await fetch(url)).blob()));
  await peer.loadModel(blobs, {
    n_ctx: context,
    n_threads: threads,
    n_gpu_layers: 0,
    n_batch: 512,
    seed: 1,
  });
  const data = await (await fetch(image)).arrayBuffer();
  let best = Infinity;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await peer.createChatCompletion({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', data },
            { type: 'text', text: 'a' },
          ],
        },
      ],
      max_tokens: 1,
      temperature: 0,
      cache_prompt: false,
    });
    best = Math.min(best, performance.now() - start);
  }
  return { ms: best };
}

// --- in Node -------------------------------------------------------------------------------------

setup('bench');
if (!values['no-build']) {
  cmakeBuild('native', { targets: ['sluice'] });
  if (all || values.web || values.memory) await build(['wasm', 'web']);
}
const folder = scratchFolder();
const [width, height] = values.size.split('x').map(Number);
const image = join(folder, 'picture.bmp');
writeFileSync(image, picture(width, height));
const prompt = join(folder, 'prompt');
writeFileSync(prompt, '<__media__>a');

const rows = [['measure', 'projector', 'Sluice', 'peer', 'ratio']];
/** Printed at once, since a later part may fail. */
function addRow(...row) {
  rows.push(row);
  console.log(table([rows[0], row]));
}
let failed = false;
const seconds = (ms) => (ms === undefined ? '' : ms / 1000);

async function native(label, files) {
  const sides = [() => encodeOurs({ ...files, image, prompt, out: join(folder, 'out') })];
  if (values['llama-mtmd']) sides.push(() => encodeMtmd({ ...files, image }));
  const [ours, theirs] = await bestInTurns(sides);
  const ratio = theirs === undefined ? '' : theirs / ours;
  addRow('encode, native, s (mtmd)', label, seconds(ours), seconds(theirs), ratio);
}

async function inTab(label, files) {
  const bench = await Bench.open([
    ['/model/', modelFolder],
    ['/picture/', folder],
    ['/wllama/', inRoot('node_modules', '@wllama', 'wllama', 'esm')],
  ]);
  const work = {
    text: `/model/${basename(files.text)}`,
    projector: `/model/${basename(files.projector)}`,
    image: '/picture/picture.bmp',
    threads: Number(values.threads),
    context: kContext,
    rounds,
  };
  const whole = Math.min(
    4 * 2 ** 30 - 65536,
    Math.ceil((statSync(files.text).size + statSync(files.projector).size) * 1.3) + 768 * MB,
  );
  try {
    if (all || values.web) {
      const ours = (await bench.run(firstTokenOfOurs, { ...work, budget: whole })).result;
      const theirs = (await bench.run(firstTokenOfWllama, work)).result;
      const ratio = theirs.ms / ours.ms;
      addRow('first token, tab, s (wllama)', label, seconds(ours.ms), seconds(theirs.ms), ratio);
    }
    if (all || values.memory) {
      const budget = Math.floor(0.75 * statSync(files.projector).size);
      const { memory } = await bench.run(firstTokenOfOurs, { ...work, budget, rounds: 1 });
      failed ||= memory.peak > budget + kRendererRoom;
      const measure = `peak at ${(budget / MB).toFixed(0)} MB, tab, MB (bound)`;
      addRow(measure, label, memory.peak / MB, (budget + kRendererRoom) / MB, '');
    }
  } finally {
    await bench.close();
  }
}

for (const shape of values.model.split(',')) {
  for (const type of values.type.split(',')) {
    const files = {
      text: modelFile(`${shape}:${values['text-type']}`),
      projector: projectorFile(shape, type),
    };
    const label = `${shape} ${type} (${(statSync(files.projector).size / MB).toFixed(0)} MB)`;
    if (all || values.native) await native(label, files);
    if (all || values.web || values.memory) await inTab(label, files);
  }
}
console.log(`\na picture of ${width} x ${height}, ${values.threads} threads\n\n${table(rows)}`);
if (failed) {
  console.error('\nbench:vision: the renderer exceeded its bound');
  process.exitCode = 1;
}
