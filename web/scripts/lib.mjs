// Shared by the scripts: paths, and running programs with readable errors.
import { spawn, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { availableParallelism } from 'node:os';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const jobs = Math.max(1, availableParallelism());
const [chromium, shell] = ['/usr/bin/chromium', '/usr/bin/chromium-headless-shell'];
const firstOf = (...paths) => process.env.CHROMIUM ?? paths.find(existsSync) ?? paths[0];
export const chromiumPath = firstOf(chromium, shell);
/** For what needs no window: the shell starts and draws in three quarters of the processor time. */
export const headlessPath = firstOf(shell, chromium);
// Chromium keeps the last --disable-features only, so the first lines are Playwright's own. The popups
// of the address bar are two pages for each window, which cost a second of processor time.
const chromiumWithout = [
  ...['AvoidUnnecessaryBeforeUnloadCheckSync', 'DestroyProfileOnBrowserClose', 'HttpsUpgrades'],
  ...['HttpsFirstBalancedModeAutoEnable', 'LensOverlay', 'MediaRouter', 'PaintHolding'],
  ...['ThirdPartyStoragePartitioning', 'AvoidCorsURLLoaderRestartOnRedirect', 'OptimizationHints'],
  ...['NetworkTimeServiceQuerying', 'AimEnabled', 'PreconnectToSearch'],
  ...['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup', 'WebUIOmniboxFullPopup'],
];
export const chromiumArgs = [
  '--no-sandbox',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-dev-shm-usage',
  `--disable-features=${chromiumWithout}`,
];

if (!process.env.CMAKE_CXX_COMPILER_LAUNCHER && existsSync('/usr/bin/ccache')) {
  process.env.CMAKE_CXX_COMPILER_LAUNCHER = 'ccache';
  process.env.CCACHE_BASEDIR ??= root; // shares results between checkouts
  process.env.CCACHE_NOHASHDIR ??= '1';
  // For precompiled headers.
  process.env.CCACHE_SLOPPINESS ??= 'pch_defines,time_macros,include_file_ctime,include_file_mtime';
}

/** Runs a program with inherited output. Throws on failure. */
export function run(command, args, options = {}) {
  const { status, signal, error } = spawnSync(command, args, {
    cwd: root,
    stdio: 'inherit',
    ...options,
    env: { ...process.env, ...options.env },
  });
  if (error) throw new Error(`${command}: ${error.message}`);
  if (status !== 0)
    throw new Error(`${[command, ...args].join(' ')} ended with ${signal ?? status}`);
}

/** Runs a program and returns its output. On failure, prints the output and throws. */
export function runQuiet(command, args, options = {}) {
  const { status, signal, error, stdout, stderr } = spawnSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    ...options,
    env: { ...process.env, ...options.env },
  });
  if (error) throw new Error(`${command}: ${error.message}`);
  if (status !== 0) {
    process.stderr.write(stdout + stderr);
    throw new Error(`${[command, ...args].join(' ')} ended with ${signal ?? status}`);
  }
  return stdout + stderr;
}

const behind = new Set();
process.on('exit', () => behind.forEach(kill));

function kill(child) {
  try {
    process.kill(-child.pid, 'SIGKILL'); // its whole process group
  } catch {
    // It has already ended.
  }
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.once(signal, () => {
    behind.forEach(kill);
    process.kill(process.pid, signal);
  });
}

// Runs a command and writes the CPU time of it and its children to descriptor 3.
const timed = ['-c', '"$@" 3>&-; code=$?; times >&3; exit $code', 'sh'];
// The same at the lowest priority, also where Linux schedules processes by session.
const timedIdle = [
  '-c',
  `echo 19 2>/dev/null >/proc/self/autogroup; renice -n 19 $$ >/dev/null; ${timed[1]}`,
  'sh',
];

/** Seconds in the last line of the shell's `times`: user and system time of its children. */
function childSeconds(text) {
  const values = [...(text.trimEnd().split('\n').at(-1) ?? '').matchAll(/(\d+)m([\d.]+)s/g)];
  return values.reduce(
    (sum, [, minutes, seconds]) => sum + 60 * Number(minutes) + Number(seconds),
    0,
  );
}

/**
 * Runs a program without blocking the event loop. Resolves to { code, output, stopped, cpuSeconds }
 * and never rejects. echo: also prints the output. idle: runs at the lowest priority. After
 * timeoutMs, or when the signal `stop` is aborted, kills it with all that it started.
 */
export function capture(
  command,
  args,
  { echo = false, timeoutMs = 0, stop, idle = false, ...options } = {},
) {
  return new Promise((resolve) => {
    let output = '';
    let times = '';
    const child = spawn('sh', [...(idle ? timedIdle : timed), command, ...args], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      detached: true,
      ...options,
      env: { ...process.env, ...options.env },
    });
    behind.add(child);
    const take = (chunk) => {
      output += chunk;
      if (echo) process.stdout.write(chunk);
    };
    child.stdout.setEncoding('utf8').on('data', take);
    child.stderr.setEncoding('utf8').on('data', take);
    child.stdio[3].setEncoding('utf8').on('data', (chunk) => (times += chunk));
    let stopped = false;
    const end = (why) => {
      stopped = true;
      output += `\n${command}: ${why}, stopped\n`;
      kill(child);
      for (const stream of child.stdio) stream?.destroy(); // children may still have them open
    };
    const timer = timeoutMs
      ? setTimeout(() => end(`no end after ${timeoutMs / 1000} s`), timeoutMs)
      : undefined;
    const onStop = () => end('not needed any more');
    stop?.addEventListener('abort', onStop, { once: true });
    child.on('error', (e) => take(`${command}: ${e.message}\n`));
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      stop?.removeEventListener('abort', onStop);
      behind.delete(child);
      resolve({ code: code ?? signal ?? 1, output, stopped, cpuSeconds: childSeconds(times) });
    });
  });
}

/** runQuiet() without blocking the event loop. */
export async function runAside(command, args, options) {
  const { code, output } = await capture(command, args, options);
  if (code === 0) return output;
  process.stderr.write(output);
  throw new Error(`${[command, ...args].join(' ')} ended with ${code}`);
}

/** Calls the functions, at most `limit` at a time. Resolves to their results in order. */
export async function concurrently(functions, limit) {
  const out = [];
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < functions.length; i = next++) out[i] = await functions[i]();
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return out;
}

export function write(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}

export const inRoot = (...parts) => join(root, ...parts);

/** Path of a program of an npm package. */
export const bin = (name) => inRoot('node_modules', '.bin', name);

/** Bytes of a size like '64M', '1.5G', '300k' or '4096', as --memory-budget takes it. */
export function parseBytes(text) {
  const match = /^(\d+(?:\.\d+)?)\s*([kKmMgG]?)(?:i?[bB])?$/.exec(String(text));
  if (!match) throw new Error(`'${text}' is not a size; write for example 300k, 64M or 1.5G`);
  return Math.floor(
    Number(match[1]) * { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }[match[2].toLowerCase()],
  );
}

/** A Markdown table, without a line break at its end. Cells are text as it is. */
export const markdownTable = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
