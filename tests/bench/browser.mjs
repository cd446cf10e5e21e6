// A headless Chromium for the benchmarks, set up as users have it. Its profile is on disk: in
// Playwright's contexts, which are private windows, OPFS lives in memory behind another process. No
// inspector is attached, because it keeps copies of up to 200 MB of what a page fetched. The page
// therefore posts its result to the server that it came from.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromiumArgs, chromiumPath, inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';

/** A temporary directory that is deleted when the program ends. */
export function scratchFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

/**
 * Serves the package at /dist/, the given mounts, and pages that run functions, from one origin.
 */
export class Bench {
  static async open(mounts, options = {}) {
    const bench = new Bench();
    bench.profile = scratchFolder();
    bench.server = await serve([['/dist/', inRoot('dist')], ...mounts], {
      ...options,
      onRequest: (request, response) => bench.answer(request, response),
    });
    return bench;
  }

  close() {
    return this.server.close();
  }

  /**
   * Runs `work(args)` in a new browser and returns { result, memory }. `memory` is of the largest
   * renderer process, which is the page with its workers. `work` is sent as text.
   */
  async run(work, args, { timeoutMs = 900_000 } = {}) {
    this.script = `<!doctype html><title>bench</title><script type="module">
      const report = (body) => fetch('/report', { method: 'POST', body: JSON.stringify(body) });
      try { report({ result: await (${work})(${JSON.stringify(args)}) }); }
      catch (error) { report({ error: String(error.stack ?? error) }); }
    </script>`;
    const reported = new Promise((done) => (this.report = done));
    const browser = spawn(
      chromiumPath,
      ['--headless=new', ...chromiumArgs, `--user-data-dir=${this.profile}`, `${this.server.url}/`],
      { stdio: 'ignore' },
    );
    this.browser = browser;
    const gone = new Promise((done) => browser.once('exit', done));
    let timer;
    try {
      const limit = new Promise(
        (done) => (timer = setTimeout(() => done({ error: 'timed out' }), timeoutMs)),
      );
      const ended = gone.then(() => ({ error: 'the browser exited' }));
      const { result, error } = await Promise.race([reported, limit, ended]);
      if (error !== undefined) throw new Error(error);
      return { result, memory: rendererMemory(browser.pid) };
    } finally {
      clearTimeout(timer);
      browser.kill();
      await gone;
    }
  }

  answer(request, response) {
    if (request.url === '/') {
      response.setHeader('Content-Type', 'text/html').end(this.script);
      return true;
    }
    if (request.url === '/memory') {
      response
        .setHeader('Content-Type', 'application/json')
        .end(JSON.stringify(rendererMemory(this.browser.pid)));
      return true;
    }
    if (request.url !== '/report') return false;
    let body = '';
    request
      .setEncoding('utf8')
      .on('data', (text) => (body += text))
      .on('end', () => {
        response.end();
        this.report(JSON.parse(body));
      });
    return true;
  }
}

/** { peak, rss, anonymous } of a process in bytes: VmHWM, VmRSS and RssAnon of /proc/PID/status. */
export function processMemory(pid) {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  const bytes = (name) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? 0) * 1024;
  return { peak: bytes('VmHWM'), rss: bytes('VmRSS'), anonymous: bytes('RssAnon') };
}

function rendererMemory(browserPid) {
  const found = [];
  for (const pid of descendants(browserPid)) {
    try {
      if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=renderer'))
        found.push(processMemory(pid));
    } catch {
      /* The process has just exited. */
    }
  }
  return found.sort((a, b) => b.peak - a.peak)[0];
}

function descendants(root) {
  const parents = new Map();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      parents.set(
        Number(pid),
        Number(
          readFileSync(`/proc/${pid}/stat`, 'utf8')
            .replace(/^.*\) \S /s, '')
            .split(' ')[0],
        ),
      );
    } catch {
      /* The process has exited. */
    }
  }
  const below = (pid) => pid === root || (parents.has(pid) && below(parents.get(pid)));
  return [...parents.keys()].filter((pid) => pid !== root && below(pid));
}
