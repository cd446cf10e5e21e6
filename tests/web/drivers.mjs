// Drives the three browsers that Debian ships. Playwright supports only its Chromium, so this file
// speaks two standards: WebDriver BiDi over a WebSocket to Firefox
// (https://w3c.github.io/webdriver-bidi), and WebDriver over HTTP to WebKit
// (https://www.w3.org/TR/webdriver2). All three have the same interface:
//   { open(url) → { evaluate(function, argument), png(), close() }, close() }
// The function is sent as text; its argument and its resolved value are sent as JSON.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { launch } from './chromium.mjs';

const firefoxPath = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const webkitDriverPath = process.env.WEBKIT_DRIVER ?? '/usr/bin/WebKitWebDriver';

/** { name: reason } of browsers that this machine lacks, with the packages to install. */
export const missing = {
  firefox: existsSync(firefoxPath) ? false : 'no firefox-esr',
  webkit:
    existsSync(webkitDriverPath) && existsSync('/usr/bin/Xvfb')
      ? false
      : 'no webkit2gtk-driver or xvfb',
};

/**
 * Script for evaluate(): returns JSON, or throws with the name and code of the error in the page.
 */
const script = (work) => `async (json) => {
  try {
    return JSON.stringify({ value: await (${work})(JSON.parse(json)) });
  } catch (e) {
    return JSON.stringify({ error: [e?.name, e?.code, e?.message].join(' ') + '\\n' + e?.stack });
  }
}`;

function settle(text) {
  const { value, error } = JSON.parse(text);
  if (error) throw new Error(error);
  return value;
}

/** Resolves to the first match of `pattern` in the output of the process. */
function printed(child, pattern, seconds = 180) {
  return new Promise((resolve, reject) => {
    let output = '';
    const fail = (why) => reject(new Error(`${child.spawnfile}: ${why}\n${output}`));
    const timer = setTimeout(() => fail(`nothing like ${pattern} in ${seconds} s`), seconds * 1000);
    const take = (chunk) => {
      output += chunk;
      const match = pattern.exec(output);
      if (match) resolve((clearTimeout(timer), match));
    };
    child.stdout.setEncoding('utf8').on('data', take);
    child.stderr.setEncoding('utf8').on('data', take);
    child.on('exit', (code) => fail(`ended with ${code}`));
    child.on('error', (e) => fail(e.message));
  });
}

const ended = (child) =>
  child.exitCode !== null || child.signalCode !== null
    ? undefined
    : new Promise((ok) => child.once('exit', ok));

async function stop(child) {
  child.ref(); // a test that waits for it would end the process otherwise
  child.kill();
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await ended(child);
  clearTimeout(timer);
}

/** Makes sure that a child neither keeps this process alive nor outlives it. */
function leaving(child) {
  child.unref();
  child.stdout.unref();
  child.stderr.unref();
  process.once('exit', () => child.kill());
}

export async function launchChromium() {
  const browser = await launch();
  return {
    async open(url) {
      const page = await browser.newPage();
      await page.goto(url);
      return {
        evaluate: (work, argument) => page.evaluate(work, argument),
        png: () => page.screenshot(),
        close: () => page.close(),
      };
    },
    close: () => browser.close(),
  };
}

/** `preferences` by name; `env` is added to this process's environment. */
export async function launchFirefox({ preferences = {}, env = {} } = {}) {
  const profile = mkdtempSync(join(tmpdir(), 'sluice-firefox-'));
  writeFileSync(
    join(profile, 'user.js'),
    Object.entries(preferences)
      .map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`)
      .join(''),
  );
  const child = spawn(
    firefoxPath,
    [
      '--headless',
      '--no-remote',
      '--profile',
      profile,
      '--remote-debugging-port',
      '0',
      'about:blank',
    ],
    { env: { ...process.env, HOME: profile, MOZ_DISABLE_CONTENT_SANDBOX: '1', ...env } },
  );
  leaving(child);
  const [, address] = await printed(child, /WebDriver BiDi listening on (ws:\S+)/);
  const socket = new WebSocket(`${address}/session`, { perMessageDeflate: false });
  await new Promise((ok, fail) => socket.once('open', ok).once('error', fail));
  const waiting = new Map();
  socket.on('message', (data) => {
    const { id, type, result, error, message } = JSON.parse(data);
    const call = waiting.get(id);
    if (!call) return;
    waiting.delete(id);
    if (type === 'success') call.resolve(result);
    else call.reject(new Error(`${error}: ${message}`));
  });
  socket.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error('Firefox exited'));
  });
  let last = 0;
  const send = (method, params) =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject });
      socket.send(JSON.stringify({ id: last, method, params }));
    });
  await send('session.new', { capabilities: {} });
  return {
    async open(url) {
      const { context } = await send('browsingContext.create', { type: 'tab' });
      await send('browsingContext.navigate', { context, url, wait: 'complete' });
      return {
        async evaluate(work, argument = null) {
          const { type, result, exceptionDetails } = await send('script.callFunction', {
            functionDeclaration: script(work),
            target: { context },
            awaitPromise: true,
            arguments: [{ type: 'string', value: JSON.stringify(argument) }],
          });
          if (type !== 'success') throw new Error(exceptionDetails.text);
          return settle(result.value);
        },
        async png() {
          await send('browsingContext.activate', { context });
          return Buffer.from(
            (await send('browsingContext.captureScreenshot', { context })).data,
            'base64',
          );
        },
        close: () => send('browsingContext.close', { context }),
      };
    },
    async close() {
      socket.terminate();
      await stop(child);
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

export async function launchWebKit() {
  const home = mkdtempSync(join(tmpdir(), 'sluice-webkit-'));
  const screen = spawn('/usr/bin/Xvfb', [
    '-displayfd',
    '1',
    '-screen',
    '0',
    '1024x768x24',
    '-nolisten',
    'tcp',
  ]);
  leaving(screen);
  const [, display] = await printed(screen, /^(\d+)$/m);
  const port = await freePort();
  const driver = spawn(webkitDriverPath, [`--port=${port}`], {
    env: {
      ...process.env,
      HOME: home,
      XDG_DATA_HOME: home,
      XDG_CACHE_HOME: home,
      DISPLAY: `:${display}`,
      GDK_BACKEND: 'x11',
      LIBGL_ALWAYS_SOFTWARE: '1',
      WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1',
      WEBKIT_DISABLE_DMABUF_RENDERER: '1',
      NO_AT_BRIDGE: '1',
    },
  });
  leaving(driver);
  driver.stdout.resume();
  driver.stderr.resume();
  const call = async (method, path, body) => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      ...(body
        ? { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }
        : {}),
    });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${value.error}: ${value.message}`);
    return value;
  };
  for (let i = 0; ; i++) {
    const ready = await call('GET', '/status').then(
      ({ ready }) => ready,
      () => false,
    );
    if (ready) break;
    if (i === 600) throw new Error('WebKitWebDriver does not answer');
    await new Promise((ok) => setTimeout(ok, 100));
  }
  const { sessionId } = await call('POST', '/session', { capabilities: { alwaysMatch: {} } });
  const at = `/session/${sessionId}`;
  await call('POST', `${at}/timeouts`, { script: 600_000, pageLoad: 60_000 });
  return {
    // One page at a time in its one window: timers hardly run in a hidden tab.
    async open(url) {
      await call('POST', `${at}/url`, { url });
      return {
        // Retries once: a page that reloads itself for isolation ends what runs in it.
        async evaluate(work, argument = null, again = true) {
          try {
            return settle(
              await call('POST', `${at}/execute/async`, {
                script: `const [json, done] = arguments; (${script(work)})(json).then(done);`,
                args: [JSON.stringify(argument)],
              }),
            );
          } catch (error) {
            if (!again || !/no such frame|unload/.test(error.message)) throw error;
            await new Promise((ok) => setTimeout(ok, 500));
            return this.evaluate(work, argument, false);
          }
        },
        png: async () => Buffer.from(await call('GET', `${at}/screenshot`), 'base64'),
        close: () => call('POST', `${at}/url`, { url: 'about:blank' }),
      };
    },
    async close() {
      await call('DELETE', at).catch(() => {});
      await stop(driver);
      await stop(screen);
      rmSync(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
