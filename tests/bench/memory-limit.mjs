// Runs a program with a limit of memory that counts the pages of files which it reads: a control
// group of Linux, version 1 or 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html). Needs root.
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const kEnter = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"';

/** The file that takes the limit, in a new group. */
function makeGroup() {
  const version1 = existsSync('/sys/fs/cgroup/memory');
  const folder = join('/sys/fs/cgroup', version1 ? 'memory' : '', `sluice-bench-${process.pid}`);
  try {
    mkdirSync(folder);
  } catch (error) {
    throw new Error(`a memory limit needs root and control groups: ${error.message}`);
  }
  return { folder, limit: join(folder, version1 ? 'memory.limit_in_bytes' : 'memory.max') };
}

/** Calls `work` with the words that, before a command, run it with at most `bytes` of memory. */
export async function withinMemory(bytes, work) {
  const { folder, limit } = makeGroup();
  try {
    writeFileSync(limit, String(bytes));
    return await work(['sh', '-c', kEnter, 'sh', folder]);
  } finally {
    rmdirSync(folder);
  }
}
