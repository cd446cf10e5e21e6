// A model cache in memory as browsers have it: one tab writes an entry, others read it, and the
// next one takes over when it is closed.
import { setTimeout as sleep } from 'node:timers/promises';
import { importWeb } from './helpers.mjs';

const { entryPrefix } = await importWeb('io/store-index');

function memoryFile() {
  let bytes = Buffer.alloc(0);
  const resize = (size) => (bytes = Buffer.concat([bytes, Buffer.alloc(size)]).subarray(0, size));
  return {
    read: (into, { at }) => bytes.copy(into, 0, at, at + into.length),
    write(from, { at }) {
      if (bytes.length < at + from.length) resize(at + from.length);
      bytes.set(from, at);
      return from.length;
    },
    truncate: resize,
    getSize: () => bytes.length,
    flush() {},
    close() {},
  };
}

export function memoryStore() {
  const entries = new Map();
  return {
    async open(url, until) {
      const key = entryPrefix(url);
      if (!entries.has(key))
        entries.set(key, { data: memoryFile(), index: memoryFile(), locked: false });
      const entry = entries.get(key);
      while (until && entry.locked) {
        await sleep(20);
        if (until.aborted) return null;
      }
      const writable = !entry.locked;
      entry.locked = true;
      const release = () => void (writable && (entry.locked = false));
      return { data: entry.data, index: entry.index, writable, release };
    },
    keys: async () => [...entries.keys()],
    async readIndex(key) {
      const index = entries.get(key)?.index;
      const bytes = new Uint8Array(index?.getSize() ?? 0);
      index?.read(bytes, { at: 0 });
      return index ? bytes : null;
    },
    async remove(key) {
      entries.delete(key);
    },
  };
}
