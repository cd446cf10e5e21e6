// What a newcomer does with the packed package, in fresh projects: installs it as the README says,
// copies the README's settings, builds, and runs. Each step prints its seconds when it ends, and must
// end without a warning. Versions of other packages are fixed here. A project whose program npm does
// not have for this machine is skipped by name.
//   node tests/package/newcomer.mjs [NAME…]     default: all; --list prints the names
// bundlers.test.mjs runs the projects as tests.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { launch } from '../web/chromium.mjs';
import { lavapipeEnvironment, noLavapipe } from '../web/lavapipe.mjs';
import { online, pack, scratch, storyInNode } from './tarball.mjs';

const sample = inRoot('examples', 'models', 'sluice-tales-Q4_0.gguf');
const versions = {
  ai6: '6.0.325',
  ai7: '7.0.173',
  esbuild: '0.28.2',
  next: '16.4.6',
  react: '19.3.1',
  typescript5: '5.9.3',
  typescript6: '6.0.3',
  typescript7: '7.0.2',
  vite6: '6.4.6',
  vite7: '7.3.8',
  vite8: '8.3.8',
  react5: '5.2.0', // @vitejs/plugin-react, for Vite 6 and 7
  react6: '6.3.0',
  vitest: '5.1.1',
  webpack: '5.113.0',
  deno: '2.9.6',
  bun: '1.4.5',
  node: '22.20.5', // @types/node
};

const policy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

/** Code block of the README or of a page in docs that contains `text`. */
export function block(page, text) {
  const blocks = [...readFileSync(inRoot(page), 'utf8').matchAll(/^```\w*\n(.*?)^```$/gms)];
  const found = blocks.find(([, code]) => code.includes(text));
  if (!found) throw new Error(`${page} has no code with ${text}`);
  return found[1];
}

const story = `const engine = await Engine.load(model, { memoryBudget: 64 * 2 ** 20, contextLength: 256 });
  const text = await engine.generate('Once upon a time', { maxTokens: 16, temperature: 0 }).text();
  const { choices } = await engine.chat.completions.create({
    messages: [{ role: 'user', content: 'A story.' }], max_tokens: 8, temperature: 0 });
  if (!choices[0]?.message.content) throw new Error('no answer');
  await engine.dispose();`;
/** A page's script; what it tells is in window.result. */
const page = (from = 'sluice-llm') => `import { Engine } from '${from}';
async function main() {
  const model = '/model.gguf';
  ${story}
  return { text };
}
main().then((result) => { window.result = result; }, (error) => { window.result = { error: String(error) }; });
`;
const html = (script) =>
  `<!doctype html><html lang="en"><title>Story</title><script type="module" src="${script}"></script></html>`;
const inNode = (model) => `const model = ${JSON.stringify(model)};
  ${story}
  console.log(text);`;

/** Why a project cannot run on this machine. */
export class Skipped extends Error {}

/** One project: its directory, and its steps, each given to onStep(name, seconds) when it ends. */
class Project {
  constructor(root, tarball, context, onStep) {
    this.root = root;
    this.tarball = tarball;
    this.onStep = onStep;
    Object.assign(this, context); // expected(), browser()
    mkdirSync(root, { recursive: true });
    this.write({ 'package.json': '{ "private": true, "type": "module" }\n' });
  }

  write(files) {
    for (const [name, text] of Object.entries(files)) {
      const file = join(this.root, name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
  }

  /** Puts the sample model where pages fetch it. */
  model(directory = '.') {
    mkdirSync(join(this.root, directory), { recursive: true });
    cpSync(sample, join(this.root, directory, 'model.gguf'));
    return join(this.root, directory, 'model.gguf');
  }

  async step(name, work) {
    const start = performance.now();
    const result = await work();
    this.onStep(name, (performance.now() - start) / 1000);
    return result;
  }

  install(...packages) {
    const names = ['sluice-llm', ...packages.map((spec) => spec.replace(/(.)@.*/, '$1'))];
    return this.step(`npm install ${names.join(' ')}`, () =>
      this.command('npm', [
        ...['install', '--prefer-offline', '--no-audit', '--no-fund', '--save-exact', '--quiet'],
        ...[this.tarball, ...packages],
      ]),
    );
  }

  /** Installs the package and a runtime, which npm may not have for this machine. */
  async installRuntime(name) {
    const spec = `${name}@${versions[name]}`;
    await this.install(spec).catch((error) => {
      const missing =
        /npm error code (E404|ETARGET|EBADPLATFORM)|not supported|unsupported platform/i;
      if (!missing.test(error.message)) throw error;
      throw new Skipped(`npm has no ${spec} for ${process.platform}-${process.arch}`);
    });
  }

  /** Runs a program of the project as a step. Warnings are errors. */
  run(line, env) {
    return this.step(line, () => this.command('sh', ['-euc', line], env));
  }

  command(program, args, env = {}) {
    const { status, error, stdout, stderr } = spawnSync(program, args, {
      cwd: this.root,
      encoding: 'utf8',
      timeout: 1_800_000,
      env: this.env(env),
    });
    const printed = `${stdout}${stderr}`;
    if (error || status !== 0) throw new Error(`${args.at(-1)}: ${error ?? status}\n${printed}`);
    quiet(args.at(-1), printed);
    return stdout;
  }

  env(env) {
    const path = `${join(this.root, 'node_modules', '.bin')}:${process.env.PATH}`;
    return { ...process.env, NO_COLOR: '1', NEXT_TELEMETRY_DISABLED: '1', ...env, PATH: path };
  }

  /** Runs a server as a step until it has printed an address; calls `work` with it. */
  async serving(line, work) {
    const start = performance.now();
    const child = spawn('sh', ['-euc', `exec ${line}`], {
      cwd: this.root,
      detached: true, // so that its children end with it
      env: this.env({ PORT: '0' }),
    });
    let printed = '';
    try {
      const url = await new Promise((resolve, reject) => {
        const take = (text) => {
          printed += text;
          const found = /Local: +(http:\/\/[^\s/]+)/.exec(printed);
          if (found) resolve(found[1]);
        };
        for (const stream of [child.stdout, child.stderr])
          stream.setEncoding('utf8').on('data', take);
        child.once('exit', () => reject(new Error(`${line} ended: ${printed}`)));
        setTimeout(
          () => reject(new Error(`${line} printed no address: ${printed}`)),
          120_000,
        ).unref();
      });
      await work(url);
      quiet(line, printed);
    } catch (error) {
      throw new Error(`${error.message}\n${line} printed: ${printed}`, { cause: error });
    } finally {
      const ended = once(child, 'exit');
      process.kill(-child.pid, 'SIGKILL');
      await ended;
    }
    this.onStep(line, (performance.now() - start) / 1000);
  }

  /** Opens a page, which must tell the story without a message in its console. */
  async tells(url) {
    const tab = await (await this.browser()).newPage();
    const said = [];
    tab.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) said.push(message.text());
    });
    tab.on('pageerror', (error) => said.push(String(error)));
    try {
      await tab.route('**/favicon.ico', (route) => route.fulfill({ status: 204 }));
      await tab.goto(url);
      await tab.waitForFunction(() => window.result, null, { timeout: 120_000 }).catch(() => {});
      const result = await tab.evaluate(() => window.result);
      if (result?.text !== (await this.expected()) || said.length)
        throw new Error(`${url}: ${JSON.stringify(result)}\n${said.join('\n')}`);
    } finally {
      await tab.close();
    }
  }

  /**
   * Serves the built directory as any web server does, with the strictest policy, with and without
   * isolation; the page must tell the story.
   */
  async built(directory) {
    const onRequest = (_request, response) => {
      response.setHeader('Content-Security-Policy', policy);
      return false;
    };
    await this.step(`open ${directory}`, async () => {
      for (const isolation of [true, false]) {
        const mounts = [['/', join(this.root, directory)]];
        const server = await serve(mounts, { isolation, onRequest });
        try {
          await this.tells(server.url);
        } finally {
          await server.close();
        }
      }
    });
  }

  async prints(text) {
    if (text.trim() !== (await this.expected()).trim()) throw new Error(`it printed: ${text}`);
  }
}

/**
 * Throws what a tool printed if there is a warning in it. npm also warns of other packages, and
 * Next.js of slow disks.
 */
function quiet(what, printed) {
  const others = /^npm warn(?!.*sluice)|Slow filesystem detected/;
  const lines = printed.split('\n').filter((line) => !others.test(line));
  printed = lines.join('\n');
  if (/\bwarn(ing)?\b|⚠|deprecat|\berror\b/i.test(printed)) throw new Error(`${what}:\n${printed}`);
}

const react = [`react@${versions.react}`, `react-dom@${versions.react}`];
const vite = (major, plugin) => async (project) => {
  await project.install(
    `vite@${versions[`vite${major}`]}`,
    `@vitejs/plugin-react@${plugin}`,
    ...react,
  );
  project.model('public');
  project.write({
    'index.html':
      '<!doctype html><html lang="en"><title>Story</title><div id="root"></div><script type="module" src="/main.jsx"></script></html>',
    'vite.config.js': `import react from '@vitejs/plugin-react';
${block('README.md', 'Cross-Origin-Opener-Policy').replace('export default {', 'export default { plugins: [react()],')}`,
    'main.jsx': `import { StrictMode, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { tell } from './story.js';
function Story() {
  const [text, setText] = useState('');
  useEffect(() => { tell().then(setText, (error) => { window.result = { error: String(error) }; }); }, []);
  useEffect(() => { if (text) window.result = { text }; }, [text]);
  return <p>{text}</p>;
}
createRoot(document.getElementById('root')).render(<StrictMode><Story /></StrictMode>);`,
    'story.js': `import { Engine } from 'sluice-llm';
let told;
export const tell = () => (told ??= main());
async function main() {
  const model = '/model.gguf';
  ${story}
  return text;
}`,
  });
  await project.serving('vite', (url) => project.tells(url));
  await project.run('vite build --logLevel warn');
  await project.built('dist');
};
const typed = `import { Engine, SluiceError, type GeneratedToken } from 'sluice-llm';
import { huggingFaceUrl } from 'sluice-llm/huggingface';
export async function tell(file: string): Promise<string> {
  const engine = await Engine.load(huggingFaceUrl(file), { memoryBudget: 2 ** 26 });
  let text = '';
  const show = (token: GeneratedToken) => (text += token.text);
  for await (const token of engine.generate('Once', { maxTokens: 8 })) show(token);
  return text;
}
export const code = (error: unknown) => (error instanceof SluiceError ? error.code : undefined);
`;
const typescript =
  (version, compilerOptions, types = []) =>
  async (project) => {
    await project.install(`typescript@${version}`, ...types);
    const strict = { strict: true, skipLibCheck: false, noEmit: true, target: 'es2022' };
    project.write({
      'main.ts': typed,
      'tsconfig.json': JSON.stringify({
        compilerOptions: { ...strict, ...compilerOptions },
        files: ['main.ts'],
      }),
    });
    await project.run('tsc');
  };
/** Generates text and JSON, streams and embeds with the real packages, which also check the types. */
const aiSdk =
  (major, entry, ...packages) =>
  async (project) => {
    await project.install(`ai@${versions[`ai${major}`]}`, 'zod@4.6.7', ...packages);
    project.write({
      'main.ts': `import { Engine } from 'sluice-llm';
import { sluice, sluiceEmbedding } from '${entry}';
import { embedMany, generateText, Output, streamText } from 'ai';
import { z } from 'zod';
const engine = await Engine.load(${JSON.stringify(project.model())}, { contextLength: 512 });
const model = sluice(engine);
const settings = { prompt: 'Tell me a story.', temperature: 0, maxOutputTokens: 6 };
const { text, usage, finishReason, warnings } = await generateText({ model, ...settings });
let streamed = '';
for await (const piece of streamText({ model, ...settings }).textStream) streamed += piece;
const schema = z.object({ city: z.string().max(8), warm: z.boolean() });
const { output } = await generateText({
  model, prompt: 'The weather in Paris.', temperature: 0, output: Output.object({ schema }),
});
const { embeddings } = await embedMany({ model: sluiceEmbedding(engine), values: ['a', 'b'] });
console.log(JSON.stringify([
  text.length > 10 && text === streamed, usage.outputTokens, finishReason, warnings ?? [],
  typeof output.warm, embeddings.length,
]));
await engine.dispose();
`,
      'tsconfig.json': JSON.stringify({
        compilerOptions: {
          ...{ strict: true, skipLibCheck: true, target: 'es2022', types: ['node'] },
          ...{ module: 'nodenext', lib: ['es2022', 'dom', 'dom.asynciterable'] },
        },
      }),
    });
    await project.run('tsc');
    const printed = await project.run(`node main.js`);
    if (printed.trim() !== '[true,6,"length",[],"boolean",2]')
      throw new Error(`it printed: ${printed}`);
  };

const nodeTypes = [`@types/node@${versions.node}`];
const bundled = { module: 'esnext', moduleResolution: 'bundler', lib: ['es2022', 'dom'] };

/** short: npm test runs it too. */
export const projects = {
  'Node, ES modules': {
    short: true,
    async run(project) {
      await project.install();
      project.write({
        'main.js': `import { Engine } from 'sluice-llm';\n${inNode(project.model())}`,
      });
      await project.prints(await project.run('node main.js'));
    },
  },
  'Node, CommonJS': {
    async run(project) {
      project.write({ 'package.json': '{ "private": true, "type": "commonjs" }\n' });
      await project.install();
      const code = `(async () => {\n${inNode(project.model())}\n})();`;
      project.write({ 'main.js': `const { Engine } = require('sluice-llm');\n${code}` });
      await project.prints(await project.run('node main.js'));
    },
  },
  'TypeScript 5, node10': {
    run: typescript(versions.typescript5, {
      module: 'esnext',
      moduleResolution: 'node10',
      lib: ['es2022', 'dom'],
    }),
  },
  'TypeScript 5, node16, without DOM': {
    run: typescript(versions.typescript5, { module: 'node16', lib: ['es2022'] }, nodeTypes),
  },
  'TypeScript 6, nodenext, without DOM': {
    run: typescript(
      versions.typescript6,
      { module: 'nodenext', lib: ['es2022'], types: ['node'] },
      nodeTypes,
    ),
  },
  'TypeScript 6, bundler': {
    run: typescript(versions.typescript6, bundled),
  },
  'TypeScript 7, bundler': {
    run: typescript(versions.typescript7, bundled),
  },
  'Vite 6 with React': { run: vite(6, versions.react5) },
  'Vite 7 with React': { run: vite(7, versions.react5) },
  'Vite 8 with React': { short: true, run: vite(8, versions.react6) },
  'Next.js 16': {
    async run(project) {
      await project.install(`next@${versions.next}`, ...react);
      const model = project.model('public');
      project.write({
        'app/layout.js':
          'export default function Layout({ children }) { return <html lang="en"><body>{children}</body></html>; }',
        'app/page.js': `'use client';
import { useEffect } from 'react';
export default function Page() {
  useEffect(() => { import('./story.js'); }, []);
  return <main>A story</main>;
}`,
        'app/story.js': page(),
        'app/tell/route.js': `import { Engine } from 'sluice-llm';
export const dynamic = 'force-dynamic';
export async function GET() {
  const model = ${JSON.stringify(model)};
  ${story}
  return new Response(text);
}`,
        'next.config.mjs': block('docs/recipes.md', 'serverExternalPackages'),
      });
      const both = async (url) => {
        await project.tells(url);
        await project.prints(await (await fetch(`${url}/tell`)).text());
      };
      await project.serving('next dev -p 0', both);
      await project.run('next build');
      await project.serving('next start -p 0', both);
    },
  },
  'webpack 5': {
    async run(project) {
      await project.install(`webpack@${versions.webpack}`, 'webpack-cli@7.3.1');
      project.write({ 'src/index.js': page() });
      await project.run('webpack --mode production --performance-hints false --no-stats');
      project.write({ 'dist/index.html': html('/main.js') });
      project.model('dist');
      await project.built('dist');
    },
  },
  esbuild: {
    short: true,
    async run(project) {
      await project.install(`esbuild@${versions.esbuild}`);
      project.write({ 'main.js': page() });
      await project.run(block('docs/recipes.md', 'esbuild main.js').trim());
      project.write({ 'out/index.html': html('/main.js') });
      project.model('out');
      await project.built('out');
    },
  },
  'a plain page': {
    short: true,
    async run(project) {
      await project.install();
      project.write({
        'index.html': html('/main.js'),
        'main.js': page('/node_modules/sluice-llm/dist/index.js'),
      });
      project.model();
      await project.built('.');
    },
  },
  Vitest: {
    async run(project) {
      await project.install(`vitest@${versions.vitest}`);
      const model = JSON.stringify(project.model());
      const expected = JSON.stringify(await project.expected());
      project.write({
        'story.test.js': `import { expect, test } from 'vitest';
import { Engine } from 'sluice-llm';
test('a story', async () => {
  const model = ${model};
  ${story}
  expect(text).toBe(${expected});
}, 60_000);`,
      });
      await project.run('vitest run');
    },
  },
  'AI SDK 6': {
    run: aiSdk(6, 'sluice-llm/ai-sdk', `typescript@${versions.typescript6}`, ...nodeTypes),
  },
  'AI SDK 7': {
    run: aiSdk(7, 'sluice-llm/ai-sdk', `typescript@${versions.typescript6}`, ...nodeTypes),
  },
  'AI SDK 7, interface version 4': {
    run: aiSdk(7, 'sluice-llm/ai-sdk/v4', `typescript@${versions.typescript6}`, ...nodeTypes),
  },
  Deno: {
    async run(project) {
      await project.installRuntime('deno');
      project.write({
        'main.js': `import { Engine } from 'sluice-llm';\n${inNode(project.model())}`,
      });
      await project.prints(await project.run('deno run -A main.js'));
    },
  },
  'Deno, WebGPU': {
    async run(project) {
      if (noLavapipe) throw new Skipped(noLavapipe);
      await project.installRuntime('deno');
      project.write({
        'main.js': `import { Engine } from 'sluice-llm';
const texts = [];
for (const device of ['wasm', 'webgpu']) {
  const model = ${JSON.stringify(inRoot('examples', 'models', 'sluice-tales-F16.gguf'))};
  const engine = await Engine.load(model, { device, contextLength: 256 });
  texts.push(await engine.generate('Once upon a time', { maxTokens: 16, temperature: 0 }).text());
  if (device === 'webgpu' && !engine.stats().gpuName) throw new Error('on the CPU');
  await engine.dispose();
}
if (texts[0] !== texts[1]) throw new Error(JSON.stringify(texts));`,
      });
      const env = { ...lavapipeEnvironment, XDG_RUNTIME_DIR: project.root };
      await project.run('deno run -A main.js', env);
    },
  },
  Bun: {
    async run(project) {
      await project.installRuntime('bun');
      project.write({
        'main.js': `import { Engine } from 'sluice-llm';\n${inNode(project.model())}`,
      });
      await project.prints(await project.run('bun main.js'));
    },
  },
};

/** Makes what all projects share: the tarball, a browser, and the text that all must tell. */
export function workshop() {
  const folder = scratch();
  const tarball = pack(folder);
  let browser;
  let expected;
  const context = {
    browser: () => (browser ??= launch()),
    expected: () => (expected ??= storyInNode(sample)),
  };
  return {
    folder,
    tarball,
    context,
    /** Runs one project; calls onStep(name, seconds) after each step. */
    async run(name, onStep) {
      const root = mkdtempSync(join(tmpdir(), 'sluice-newcomer-'));
      const project = new Project(root, tarball, context, onStep);
      try {
        await projects[name].run(project);
      } finally {
        rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 });
      }
    },
    async close() {
      await (await browser)?.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A step as a line of text. */
export const stepLine = (step, seconds) =>
  `${seconds.toFixed(1).padStart(8)} s  ${step.replaceAll('\n', '; ')}`;

async function main(names) {
  const shop = workshop();
  const failed = [];
  const skipped = [];
  try {
    for (const name of names) {
      console.log(name);
      try {
        await shop.run(name, (step, seconds) => console.log(stepLine(step, seconds)));
      } catch (error) {
        const skip = error instanceof Skipped;
        (skip ? skipped : failed).push(name);
        console.log(
          `    ${skip ? 'skipped' : 'FAILED'}: ${error.message.replace(/^/gm, '    ').trim()}`,
        );
      }
    }
  } finally {
    await shop.close();
  }
  const list = (what, names) => names.length && console.log(`${what}: ${names.join('; ')}`);
  console.log(`${names.length - failed.length - skipped.length} of ${names.length} projects work`);
  list('skipped', skipped);
  list('failed', failed);
  process.exitCode = failed.length ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const given = process.argv.slice(2);
  const unknown = given.find((name) => name !== '--list' && !projects[name]);
  if (unknown) throw new Error(`no project '${unknown}'; --list prints the names`);
  if (given.includes('--list')) console.log(Object.keys(projects).join('\n'));
  else if (!online()) throw new Error('the npm registry does not answer');
  else await main(given.length ? given : Object.keys(projects));
}
