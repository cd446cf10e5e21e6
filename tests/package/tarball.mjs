// Packs the package as npm would publish it, and makes new projects that install it.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { inRoot, root } from '../../web/scripts/lib.mjs';

process.env.SLUICE_CACHE ??= 'none'; // not the user's

/** Packs into `folder`; returns the path of the tarball. */
export function pack(folder) {
  const result = spawnSync(
    'npm',
    ['pack', '--json', '--ignore-scripts', '--pack-destination', folder],
    { cwd: root, encoding: 'utf8' },
  );
  if (result.status !== 0) throw new Error(result.stderr);
  return join(folder, JSON.parse(result.stdout)[0].filename);
}

export const scratch = () => mkdtempSync(join(tmpdir(), 'sluice-package-'));

/** The text that every page must generate with the sample model at `model`. */
export async function storyInNode(model) {
  const { Engine } = await import(inRoot('dist', 'node.js'));
  const engine = await Engine.load(model, { contextLength: 256 });
  const text = await engine.generate('Once upon a time', { maxTokens: 16, temperature: 0 }).text();
  await engine.dispose();
  return text;
}

/** Whether the npm registry answers. */
export function online() {
  return (
    spawnSync(
      'npm',
      ['view', 'esbuild@0.28.2', 'version', '--fetch-retries=0', '--fetch-timeout=15000'],
      { timeout: 30_000 },
    ).status === 0
  );
}

/** Makes a project with these files and packages; throws npm's output if the install fails. */
export function project(folder, files, packages) {
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries({
    'package.json': '{"type":"module","private":true}',
    ...files,
  })) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  run(folder, 'npm', [
    'install',
    '--no-audit',
    '--no-fund',
    '--prefer-offline',
    '--save-exact',
    ...packages,
  ]);
  return folder;
}

export function run(folder, command, args, env = {}) {
  const result = spawnSync(command, args, {
    cwd: folder,
    encoding: 'utf8',
    timeout: 600_000,
    env: { ...process.env, ...env },
  });
  if (result.status !== 0)
    throw new Error(`${command} ${args.join(' ')}\n${result.stdout}${result.stderr}`);
  return result.stdout;
}

export const read = (...parts) => readFileSync(join(...parts));
