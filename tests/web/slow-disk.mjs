// Simulates a slow disk for some files in a Node worker: each read takes longer, on whichever
// engine thread it happens. Speculative decoding is then faster on any machine.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * Delays each read of files whose paths contain `match` by `ms`. Call before importing the
 * package's worker.
 */
export function slowDown(match, ms) {
  const { openSync, readSync } = fs;
  const slow = new Set();
  const clock = new Int32Array(new SharedArrayBuffer(4));
  fs.openSync = (path, ...rest) => {
    const file = openSync(path, ...rest);
    if (`${path}`.includes(match)) slow.add(file);
    else slow.delete(file);
    return file;
  };
  fs.readSync = (file, ...rest) => {
    if (slow.has(file)) Atomics.wait(clock, 0, 0, ms);
    return readSync(file, ...rest);
  };
  syncBuiltinESMExports();
}

/** Writes a script for `workerUrl` into `folder` that slows the package in `dist` down. */
export function slowWorker(folder, dist, match, ms) {
  const script = join(folder, `slow-${match}-${ms}.mjs`);
  const [here, worker] = [import.meta.url, pathToFileURL(join(dist, 'worker-node.js'))].map((url) =>
    JSON.stringify(`${url}`),
  );
  fs.writeFileSync(
    script,
    `import { slowDown } from ${here};\nslowDown(${JSON.stringify(match)}, ${ms});\nawait import(${worker});\n`,
  );
  return pathToFileURL(script);
}
