// In a worker of Node, some files are on a slow disk: each read of one takes longer, in whichever
// of the engine's threads it happens, so that guessing ahead pays on any machine.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * To be called before the package's worker is imported: files whose paths hold `match`, `ms` for
 * each read.
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

/** A script for `workerUrl`, in this folder, of the package in `dist`. */
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
