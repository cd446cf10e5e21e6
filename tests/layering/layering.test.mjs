// The rooms of the source tree depend on each other one way only. The rule is read from the link
// lists in CMakeLists.txt, checked against the order of the levels, and then every #include of
// kernels/ and src/ is checked against the rule. The rooms of web/ have an order as well, and no
// two of its modules import each other, by whatever detour.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const levels = {
  platform: 0,
  kernels: 0,
  base: 0,
  gguf: 1,
  hf: 1,
  io: 1,
  residency: 1,
  grammar: 1,
  draft: 1,
  qsf: 2,
  open: 2,
  adapter: 2,
  tokenizer: 2,
  kv: 2,
  sample: 2,
  model: 2,
  convert: 2,
  session: 3,
  chat: 3,
  generate: 4,
  embed: 4,
  gpu: 4,
  native: 5,
  bindings: 5,
  api: 6,
  serve: 6,
  cli: 7,
  tools: 7,
};

function linkLists() {
  const cmake = readFileSync(join(root, 'CMakeLists.txt'), 'utf8');
  const direct = { kernels: ['platform'] };
  for (const [, name, deps] of cmake.matchAll(/^ *sluice_module\((\w+)([^)]*)\)/gm)) {
    direct[name] = deps
      .split(/\s+/)
      .filter((d) => d.startsWith('sluice_'))
      .map((d) => d.slice(7));
  }
  return direct;
}

function closure(direct, room, seen = new Set()) {
  for (const dep of direct[room] ?? []) {
    if (!seen.has(dep)) {
      seen.add(dep);
      closure(direct, dep, seen);
    }
  }
  return seen;
}

function sourceFiles(folder) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return sourceFiles(path);
    return /\.(h|cpp|inc)$/.test(entry.name) ? [path] : [];
  });
}

const direct = linkLists();

test('the link lists of all libraries are found', () => {
  const programs = ['bindings', 'cli', 'tools'];
  const expected = Object.keys(levels).filter((room) => !programs.includes(room));
  assert.deepEqual(Object.keys(direct).sort(), expected.sort());
});

test('no room links to one above it, or to itself by a detour', () => {
  for (const [room, deps] of Object.entries(direct)) {
    assert.ok(room in levels, `CMakeLists.txt names a room that has no level: ${room}`);
    for (const dep of deps) {
      assert.ok(levels[dep] <= levels[room], `${room} links to ${dep}, which is above it`);
    }
    assert.ok(!closure(direct, room).has(room), `${room} depends on itself`);
  }
});

test('every #include stays within what its room links to', () => {
  const wrong = [];
  let seen = 0;
  for (const file of [...sourceFiles('kernels'), ...sourceFiles('src')]) {
    const room = file.startsWith('kernels/') ? 'kernels' : file.split('/')[1];
    assert.ok(room in levels, `${file}: a room without a level`);
    const allowed = room in direct ? closure(direct, room) : new Set(Object.keys(levels));
    const text = readFileSync(join(root, file), 'utf8');
    for (const [, path] of text.matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)) {
      const parts = path.replace(/^src\//, '').split('/');
      // Beside the file itself, or a library.
      if (parts.length < 2 || !(parts[0] in levels)) continue;
      const target = parts[0];
      seen++;
      const ok =
        target === room || (allowed.has(target) && levels[target] < Math.max(levels[room], 4));
      if (!ok) wrong.push(`${file} includes ${path}`);
    }
  }
  assert.ok(seen > 500, `${seen} #includes`);
  assert.deepEqual(wrong, []);
});

// Headers that are not C++'s, and what tells systems apart. bindings/ is the browser's own door.
const systemHeader =
  /^\s*#\s*include\s+<((?:sys|arpa|netinet|net|linux|mach)\/[^>]*|(?:unistd|fcntl|pthread|sched|poll|signal|dirent|langinfo|termios|netdb|dlfcn|spawn|glob|pwd|io|direct|process|windows|winsock2|ws2tcpip|malloc|intrin|cpuid)\.h)>/gm;
const systemCall =
  /\b(?:newlocale|tow\w+_l|setsockopt|recv|getpeername|p(?:read|write)|mmap|m(?:un|re)map|madvise|posix_\w+|sysconf|f?statvfs|flock|fcntl|isatty|getpid|fork|clock_gettime|\w+time_r|pthread_\w+|sched_\w+|aligned_alloc|__builtin_cpu_\w+|getauxval|sysctl\w*)\s*\(/g;
const systemName =
  /\b(?:__linux__|__APPLE__|__MACH__|_WIN32|_WIN64|__unix__|__FreeBSD__|__ANDROID__)\b/g;
const stripped = (text) => text.replace(/\/\*[^]*?\*\//g, '').replace(/\/\/.*/g, '');
const exempt = {
  'src/api/sluice.h': 'declares how symbols are exported, for compilers of other programs',
};

test('nothing outside of src/platform speaks to an operating system', () => {
  const wrong = [];
  for (const file of [...sourceFiles('kernels'), ...sourceFiles('src')]) {
    if (/^src\/(platform|bindings)\//.test(file) || file in exempt) continue;
    const text = stripped(readFileSync(join(root, file), 'utf8'));
    for (const pattern of [systemHeader, systemCall, systemName]) {
      for (const [found] of text.matchAll(pattern)) wrong.push(`${file}: ${found.trim()}`);
    }
  }
  assert.deepEqual(wrong, []);
  for (const file of Object.keys(exempt)) {
    const text = stripped(readFileSync(join(root, file), 'utf8'));
    assert.ok(
      [systemHeader, systemCall, systemName].some((pattern) => text.match(pattern)),
      `${file} is exempt for nothing`,
    );
  }
});

test('no #include climbs out of its folder', () => {
  const wrong = [...sourceFiles('kernels'), ...sourceFiles('src')].filter((file) =>
    /^\s*#\s*include\s+"\.\.\//m.test(readFileSync(join(root, file), 'utf8')),
  );
  assert.deepEqual(wrong, []);
});

// --- web/ ---------------------------------------------------------------------------------------

test("messages of the engine are of the few forms that the browser's printing knows (src/bindings/libc.cpp)", () => {
  const rooms = new Set(
    ['bindings', 'generate', 'embed', 'open', 'gpu'].flatMap((room) => [
      room,
      ...closure(direct, room),
    ]),
  );
  const known = /^%(0?\d*)(\.(\d+|\*))?(ll|l|z)?[dusxX%]$/;
  const wrong = [];
  let seen = 0;
  for (const file of [...rooms].flatMap((room) =>
    sourceFiles(room === 'kernels' ? room : `src/${room}`),
  )) {
    if (/_(native|posix|windows)\.|\/safetensors\//.test(file)) continue;
    const text = readFileSync(join(root, file), 'utf8').replace(/^\s*\/\/.*/gm, '');
    for (const [literal] of text.matchAll(/"(?:[^"\\\n]|\\.)*"/g)) {
      if (literal.includes('%json')) continue; // of the grammar's, and no form
      for (const [form] of literal.matchAll(/%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t|L)?[a-zA-Z%]/g)) {
        seen++;
        if (!known.test(form)) wrong.push(`${file}: ${form} in ${literal}`);
      }
    }
  }
  assert.ok(seen > 200, `${seen} forms`);
  assert.deepEqual(wrong, []);
});

// A room imports from those of lower numbers; the entries beside the rooms from all of them.
const webLevels = { protocol: 0, io: 1, gpu: 2, worker: 3, chat: 3, api: 4, serve: 5, entries: 6 };
const webRoom = (file) => (file.includes('/') ? file.split('/')[0] : 'entries');

/**
 * Every module of web/ with what it imports: modules of web/ by their path, packages by their name.
 */
function webImports() {
  const files = readdirSync(join(root, 'web'), { recursive: true }).filter((name) =>
    name.endsWith('.ts'),
  );
  return Object.fromEntries(
    files.map((file) => {
      const text = readFileSync(join(root, 'web', file), 'utf8').replace(
        /\/\*[^]*?\*\/|(?<!:)\/\/.*/g,
        '',
      );
      const named = [...text.matchAll(/(?:\bfrom |\bimport |\bimport\()'([^']+)'/g)].map(
        ([, name]) => name,
      );
      return [
        file,
        named.map((name) =>
          name.startsWith('.')
            ? posix.join(posix.dirname(file), name).replace(/\.js$/, '.ts')
            : name,
        ),
      ];
    }),
  );
}

test('modules of web/ import from directories below their own, protocol/ from nowhere, and none in a circle', () => {
  const imports = webImports();
  assert.ok(Object.values(imports).flat().length > 300, 'imports are found');
  const wrong = [];
  for (const [file, named] of Object.entries(imports)) {
    const room = webRoom(file);
    assert.ok(room in webLevels, `web/${file}: a room without a level`);
    for (const name of named) {
      const known = name in imports || name.replace(/\.ts$/, '.d.ts') in imports;
      if (!known && name.endsWith('.ts')) wrong.push(`${file} imports ${name}, which is not there`);
      if (!known && room === 'protocol')
        wrong.push(`${file} imports ${name}: protocol/ imports nothing`);
      if (known && webRoom(name) !== room && webLevels[webRoom(name)] >= webLevels[room])
        wrong.push(`${file} imports ${name}, which is not below it`);
    }
  }
  const over = new Set();
  const visit = (file, way) => {
    if (way.includes(file))
      return void wrong.push(`a circle: ${[...way.slice(way.indexOf(file)), file].join(' > ')}`);
    if (over.has(file)) return;
    for (const name of imports[file] ?? []) visit(name, [...way, file]);
    over.add(file);
  };
  Object.keys(imports).forEach((file) => visit(file, []));
  assert.deepEqual(wrong, []);
});

test('at most a dozen files lie beside the rooms of web/', () => {
  const beside = readdirSync(join(root, 'web'), { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name);
  assert.ok(beside.length <= 12, beside.join());
});
