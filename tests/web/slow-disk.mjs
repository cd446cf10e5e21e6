// A worker of Node in which some files are on a slow disk, for `workerUrl`: each read of a file whose path holds
// `match` takes `ms` more, in whichever of the engine's threads. The address says both, and where the package is:
//   slow-disk.mjs?match=F16&ms=2&worker=file:///…/dist/worker-node.js
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const { searchParams } = new URL(import.meta.url);
const { openSync, readSync } = fs;
const slow = new Set();
const clock = new Int32Array(new SharedArrayBuffer(4));

fs.openSync = (path, ...rest) => {
  const file = openSync(path, ...rest);
  if (`${path}`.includes(searchParams.get('match'))) slow.add(file);
  else slow.delete(file);
  return file;
};
fs.readSync = (file, ...rest) => {
  if (slow.has(file)) Atomics.wait(clock, 0, 0, Number(searchParams.get('ms')));
  return readSync(file, ...rest);
};
syncBuiltinESMExports();
await import(searchParams.get('worker'));
