// Random reads of a file in the origin private file system of a headless Chromium, with a cold page
// cache: as many workers as reads in flight, each with a sync access handle of its own. The model
// cache is such a file. Numbers of workers take turns, and no place is read twice.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../../web/scripts/lib.mjs';
import { Bench } from './browser.mjs';
import { evict } from './lib.mjs';
import { median } from './statistics.mjs';

const kMaxTurnBytes = 64 * 2 ** 20;
const kRounds = 4;

/** In the page: stores `bytes` random bytes. */
async function storeInTab({ bytes }) {
  const folder = await navigator.storage.getDirectory();
  const handle = await folder.getFileHandle('data', { create: true });
  const out = await handle.createWritable();
  const piece = new Uint8Array(2 ** 20);
  for (let at = 0; at < bytes; at += piece.length) {
    for (let i = 0; i < piece.length; i += 65536)
      crypto.getRandomValues(piece.subarray(i, i + 65536));
    await out.write(piece.subarray(0, Math.min(piece.length, bytes - at)));
  }
  await out.close();
}

/** In the page: [depth, bytes per second] of every turn. */
async function readInTab({ size, places, depths }) {
  const script = `onmessage = async ({ data: { next, places, memory } }) => {
    if (memory) {
      const folder = await navigator.storage.getDirectory();
      const handle = await folder.getFileHandle('data');
      self.file = await handle.createSyncAccessHandle({ mode: 'readwrite-unsafe' });
      self.into = new Uint8Array(memory).fill(1);
    } else {
      for (let i; (i = Atomics.add(next, 0, 1)) < places.length;) {
        const read = file.read(into, { at: places[i] });
        if (read !== into.length) throw new Error('a read returned ' + read + ' bytes');
      }
    }
    postMessage('done');
  };`;
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  const workers = Array.from({ length: Math.max(...depths) }, () => new Worker(url));
  const ask = (worker, message) =>
    new Promise((done, failed) => {
      worker.onmessage = done;
      worker.onerror = (event) => failed(new Error(event.message));
      worker.postMessage(message);
    });
  for (const worker of workers) await ask(worker, { memory: new SharedArrayBuffer(size) });
  const rows = [];
  for (const [depth, turn] of places) {
    const next = new Int32Array(new SharedArrayBuffer(4));
    const start = performance.now();
    await Promise.all(workers.slice(0, depth).map((w) => ask(w, { next, places: turn })));
    rows.push([depth, (turn.length * size * 1000) / (performance.now() - start)]);
  }
  return rows;
}

function filesIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesIn(path) : [path];
  });
}

/** Writes the file back, and evicts its pages from the page cache. */
function evictStored(profile, bytes) {
  const found = filesIn(profile).filter(
    (path) => statSync(path, { throwIfNoEntry: false })?.size === bytes,
  );
  if (found.length === 0) throw new Error('the browser has not stored the file');
  for (const file of found) {
    run('sync', ['-d', file]);
    evict(file);
  }
}

/**
 * By turn: the number of workers and the offsets that they read, all different. Throws an Error if the
 * file is too small for that.
 */
export function turnsOf(bytes, size, depths) {
  const order = Array.from({ length: Math.floor(bytes / size) }, (_, i) => i * size);
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  const most = Math.floor(order.length / (kRounds * depths.length));
  const each = Math.min(most, Math.max(Math.max(...depths), Math.floor(kMaxTurnBytes / size)));
  if (each < Math.max(...depths)) throw new Error(`${bytes} bytes are too few for ${size} a read`);
  return Array.from({ length: kRounds }, (_, round) =>
    round % 2 === 0 ? depths : [...depths].reverse(),
  )
    .flat()
    .map((depth, turn) => [depth, order.slice(turn * each, (turn + 1) * each)]);
}

/** Rows { size, depth, bytesPerSecond, readsPerSecond } of a stored file of `bytes` bytes. */
export async function deviceInTab({ bytes, sizes, depths }) {
  const bench = await Bench.open([]);
  try {
    await bench.run(storeInTab, { bytes });
    const rows = [];
    for (const size of sizes) {
      evictStored(bench.profile, bytes);
      const places = turnsOf(bytes, size, depths);
      const { result } = await bench.run(readInTab, { size, places, depths });
      for (const depth of depths) {
        const bytesPerSecond = median(result.filter(([d]) => d === depth).map(([, rate]) => rate));
        rows.push({ size, depth, bytesPerSecond, readsPerSecond: bytesPerSecond / size });
      }
    }
    return rows;
  } finally {
    await bench.close();
  }
}
