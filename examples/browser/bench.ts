// Benchmark page: measures a model on this machine's CPU and GPU, and prints a table to copy.
// Prompts are synthetic tokens, because their content does not affect speed. The first round of
// each device loads weights and compiles kernels, and is not counted.

import { Engine, type Device } from 'sluice-llm';

import { on } from './dom.js';
import { bytes, fileName, rate } from './format.js';

interface Sizes {
  prompt: number;
  answer: number;
  times: number;
}

interface Figures {
  device: 'wasm' | 'webgpu';
  name: string;
  /** Tokens per second. */
  prefill: number;
  decode: number;
  /** GPU only: per forward pass. */
  dispatches: number;
  submits: number;
  memory: number;
}

const field = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const numberIn = (id: string, least: number): number =>
  Math.max(least, Math.floor(Number(field<HTMLInputElement>(id).value)) || least);
const say = (text: string): void => void (field('now').textContent = text);

async function measure(
  source: string,
  device: Device,
  { prompt, answer, times }: Sizes,
): Promise<Figures> {
  const name = device === 'wasm' ? 'CPU' : 'GPU';
  say(`${name}: loading…`);
  const warnings: string[] = [];
  const engine = await Engine.load(source, {
    device,
    contextLength: prompt + answer + 8,
    onProgress: (event) => {
      if (event.phase === 'warning') warnings.push(event.message);
      if (event.phase === 'download')
        say(`${name}: ${bytes(event.bytesLoaded)} of ${bytes(event.bytesTotal)}`);
    },
  });
  try {
    await engine.downloaded.catch(() => {}); // without a cache, weights are downloaded each time
    const tokens = Array.from(
      { length: prompt },
      (_, i) => (i * 7919 + 13) % Math.min(engine.info.vocabSize, 4096),
    );
    const options = { maxTokens: answer, temperature: 0, ignoreEos: true, cachePrompt: false };
    const best = { prefill: 0, decode: 0 };
    let counted = { dispatches: 0, submits: 0 };
    for (let i = 0; i <= times; i++) {
      say(`${name}: ${i === 0 ? 'warming up' : `${i} of ${times}`}…`);
      const before = engine.stats().engine;
      const { timings } = await engine.generate(tokens, options).result;
      if (i === 0) continue;
      best.prefill = Math.max(best.prefill, timings.promptTokensPerSecond);
      best.decode = Math.max(best.decode, timings.tokensPerSecond);
      const after = engine.stats().engine;
      const more = (key: string): number =>
        ((after[key] ?? 0) - (before[key] ?? 0)) /
        ((after['gpuPasses'] ?? 0) - (before['gpuPasses'] ?? 0));
      counted = { dispatches: more('dispatches'), submits: more('submits') };
    }
    const stats = engine.stats();
    if (stats.device !== device) throw new Error(warnings.at(-1) ?? 'The CPU was used instead.');
    const memory = engine.memory();
    return {
      device: stats.device,
      ...best,
      ...counted,
      name:
        stats.gpuName ??
        `CPU, ${stats.threads} thread${stats.threads === 1 ? '' : 's'}, ${stats.kernels}`,
      memory: stats.device === 'webgpu' ? memory.gpu : memory.total,
    };
  } finally {
    await engine.dispose();
  }
}

/** A Markdown table with aligned columns. */
function tableOf(rows: string[][]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const lines = rows.map(
    (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`,
  );
  lines.splice(1, 0, `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`);
  return lines.join('\n');
}

async function bench(source: string, sizes: Sizes): Promise<string> {
  say('Reading the header…');
  const info = await Engine.inspect(source, {
    device: 'webgpu',
    contextLength: sizes.prompt + sizes.answer + 8,
  });
  const { device: advice } = info;
  const bandwidth = advice?.gpuBytesPerSecond;
  const found: Figures[] = [];
  const refused: string[] = [];
  for (const device of ['wasm', 'webgpu'] as const) {
    try {
      found.push(await measure(source, device, sizes));
    } catch (error) {
      refused.push(`${device === 'wasm' ? 'CPU' : 'GPU'}: ${(error as Error).message}`);
    }
  }
  const rows = [
    [
      'device',
      'prefill, tokens/s',
      'decode, tokens/s',
      'weights read per second',
      'of GPU bandwidth',
      'dispatches, submits per pass',
      'memory',
    ],
  ];
  for (const { name, device, prefill, decode, dispatches, submits, memory } of found) {
    const read = info.bytesPerToken * decode;
    const onGpu = device === 'webgpu';
    rows.push([
      name,
      rate(prefill),
      rate(decode),
      bytes(read),
      onGpu && bandwidth ? `${((100 * read) / bandwidth).toFixed(0)} %` : '–',
      onGpu ? `${dispatches.toFixed(1)}, ${submits.toFixed(1)}` : '–',
      bytes(memory),
    ]);
  }
  const types = Object.entries(info.types).sort((a, b) => b[1] - a[1])[0]?.[0] ?? '';
  return [
    tableOf(rows),
    '',
    ...refused,
    `Model: ${info.name || fileName(source)} (${info.architecture}, ${bytes(info.bytes)}, ` +
      `${types}), ${sizes.prompt} prompt tokens, ${sizes.answer} generated tokens, best of ` +
      `${sizes.times}`,
    ...(bandwidth ? [`GPU: ${advice.gpuName}, copies ${bytes(bandwidth)}/s`] : []),
    ...(advice ? [`device: 'auto': ${advice.reason}`] : []),
    `Browser: ${navigator.userAgent}${crossOriginIsolated ? '' : ' (no threads: not isolated)'}`,
  ].join('\n');
}

on<CustomEvent>(document, 'failed', ({ detail }) => say(detail.message));
on(field('bench-form'), 'submit', async (event) => {
  event.preventDefault();
  const start = field<HTMLButtonElement>('start');
  start.disabled = true;
  for (const id of ['table', 'copy']) field(id).hidden = true;
  try {
    const sizes = {
      prompt: numberIn('prompt', 1),
      answer: numberIn('answer', 2),
      times: numberIn('times', 1),
    };
    field('table').textContent = await bench(field<HTMLInputElement>('model').value, sizes);
    for (const id of ['table', 'copy']) field(id).hidden = false;
    say('Done.');
  } finally {
    start.disabled = false;
  }
});
on(field('copy'), 'click', async () => {
  await navigator.clipboard.writeText(field('table').textContent).then(
    () => say('Copied.'),
    () => say('The browser did not allow it: select the table and copy it.'),
  );
});
