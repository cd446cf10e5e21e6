// What CMake runs for links of wasm binaries (CMAKE_CXX_LINKER_LAUNCHER): the linker, unless it has
// linked the same objects with the same options before (cache.mjs).
//   node web/scripts/link.mjs LINKER ARGUMENT…
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cached } from './cache.mjs';

const kVersion = '/usr/share/emscripten/emscripten-version.txt';

const [linker, ...args] = process.argv.slice(2);
const isLinked = (arg) => /\.(o|a)$/.test(arg) && existsSync(arg);

function link() {
  const { status, error } = spawnSync(linker, args, { stdio: 'inherit' });
  if (error) console.error(`${linker}: ${error.message}`);
  if (status !== 0) process.exit(status ?? 1);
}

const script = args[args.indexOf('-o') + 1];
const inputs = [kVersion, ...args.filter(isLinked)].map((file) => readFileSync(file));
inputs.push(JSON.stringify([linker, ...args]), process.env.EMCC_CFLAGS ?? '');
await cached([script.replace(/\.js$/, '.wasm'), script], inputs, link);
