// Modules depend on each other in one direction only. For kernels/ and src/ the allowed
// dependencies are the link lists of CMakeLists.txt; they must respect the levels below, and every
// #include must respect them. The directories of web/ have levels too, and its imports have no
// cycle.
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
  options: 1,
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
  pytorch: 3,
  approximate: 4,
  jinja: 3,
  media: 3,
  vision: 4,
  chat: 4,
  generate: 4,
  embed: 4,
  gpu: 4,
  openai: 5,
  anthropic: 6,
  ollama: 6,
  endpoints: 7,
  multimodal: 5,
  native: 6,
  bindings: 8,
  measure: 7,
  api: 7,
  serve: 8,
  cli: 9,
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
  const programs = ['bindings', 'cli'];
  const expected = Object.keys(levels).filter((room) => !programs.includes(room));
  assert.deepEqual(Object.keys(direct).sort(), expected.sort());
});

test('no module links to one above it, and links have no cycle', () => {
  for (const [room, deps] of Object.entries(direct)) {
    assert.ok(room in levels, `CMakeLists.txt has a module without a level: ${room}`);
    for (const dep of deps) {
      assert.ok(levels[dep] <= levels[room], `${room} links to ${dep}, which is above it`);
    }
    assert.ok(!closure(direct, room).has(room), `${room} depends on itself`);
  }
});

test('every #include is of a module that its own module links to', () => {
  const wrong = [];
  let seen = 0;
  for (const file of [...sourceFiles('kernels'), ...sourceFiles('src')]) {
    const room = file.startsWith('kernels/') ? 'kernels' : file.split('/')[1];
    assert.ok(room in levels, `${file}: a module without a level`);
    const allowed = room in direct ? closure(direct, room) : new Set(Object.keys(levels));
    const text = readFileSync(join(root, file), 'utf8');
    for (const [, path] of text.matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)) {
      const parts = path.replace(/^src\//, '').split('/');
      // A header beside the file, or one of a library.
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

// System headers, calls and macros. Only src/platform may use them; bindings/ is the browser's own
// interface.
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

test('only src/platform uses the operating system', () => {
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
      `${file} no longer needs its exemption`,
    );
  }
});

test('no #include starts with ../', () => {
  const wrong = [...sourceFiles('kernels'), ...sourceFiles('src')].filter((file) =>
    /^\s*#\s*include\s+"\.\.\//m.test(readFileSync(join(root, file), 'utf8')),
  );
  assert.deepEqual(wrong, []);
});

// --- web/ ---------------------------------------------------------------------------------------

test("the engine's messages use only conversions that src/bindings/libc.cpp supports", () => {
  const rooms = new Set(
    ['bindings', 'generate', 'embed', 'open', 'gpu', 'chat', 'endpoints'].flatMap((room) => [
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
      if (/%json|\{%/.test(literal)) continue; // of a grammar or template, not a printf conversion
      for (const [form] of literal.matchAll(/%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t|L)?[a-zA-Z%]/g)) {
        seen++;
        if (!known.test(form)) wrong.push(`${file}: ${form} in ${literal}`);
      }
    }
  }
  assert.ok(seen > 200, `${seen} conversions`);
  assert.deepEqual(wrong, []);
});

// A directory imports only from directories of lower levels; the entry files beside them import
// from all.
const webLevels = {
  protocol: 0,
  io: 1,
  gpu: 2,
  worker: 3,
  chat: 3,
  api: 4,
  serve: 5,
  cli: 5,
  entries: 6,
};
const webRoom = (file) => (file.includes('/') ? file.split('/')[0] : 'entries');

/** Imports of every module of web/: { file: [path inside web/ or package name] }. */
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

test('imports of web/ respect the levels and have no cycle; protocol/ imports nothing', () => {
  const imports = webImports();
  assert.ok(Object.values(imports).flat().length > 300, 'imports are found');
  const wrong = [];
  for (const [file, named] of Object.entries(imports)) {
    const room = webRoom(file);
    assert.ok(room in webLevels, `web/${file}: a directory without a level`);
    for (const name of named) {
      const known = name in imports || name.replace(/\.ts$/, '.d.ts') in imports;
      if (!known && name.endsWith('.ts'))
        wrong.push(`${file} imports ${name}, which does not exist`);
      if (!known && room === 'protocol')
        wrong.push(`${file} imports ${name}: protocol/ imports nothing`);
      if (known && webRoom(name) !== room && webLevels[webRoom(name)] >= webLevels[room])
        wrong.push(`${file} imports ${name}, which is not on a lower level`);
    }
  }
  const over = new Set();
  const visit = (file, way) => {
    if (way.includes(file))
      return void wrong.push(
        `an import cycle: ${[...way.slice(way.indexOf(file)), file].join(' > ')}`,
      );
    if (over.has(file)) return;
    for (const name of imports[file] ?? []) visit(name, [...way, file]);
    over.add(file);
  };
  Object.keys(imports).forEach((file) => visit(file, []));
  assert.deepEqual(wrong, []);
});

test('chat templates are read by src/jinja alone: no TypeScript and no package parses them', () => {
  const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const names = [...Object.keys(devDependencies), ...Object.values(webImports()).flat()];
  assert.deepEqual(
    names.filter((name) => /jinja|nunjucks|minja/i.test(name)),
    [],
  );
  const files = readdirSync(join(root, 'web'), { recursive: true }).filter((name) =>
    name.endsWith('.ts'),
  );
  const parsing = files.filter((file) => {
    const text = readFileSync(join(root, 'web', file), 'utf8');
    return /\{%|%\}|endfor|lstrip_blocks|strftime/.test(text.replace(/\/\*[^]*?\*\//g, ''));
  });
  assert.deepEqual(parsing, []);
});

test('no TypeScript parses reasoning or tool calls: src/chat does', () => {
  const marks =
    /<\/?think>|<\/?tool_call|\[\/?TOOL_CALLS|\[THINK|<\|(channel|message|call|python_tag)|<function=/;
  const parsers = Object.keys(webImports()).filter((file) =>
    marks.test(readFileSync(join(root, 'web', file), 'utf8').replace(/^ *(\*|\/[*/]).*/gm, '')),
  );
  assert.deepEqual(parsers, []);
});

const fieldNames = {
  'chat/openai.ts': 'all', // types
  'ai-sdk.ts': 'all', // makes requests of the AI SDK's
  'chat/answers.ts': ['chat_template', 'logit_bias'], // may hold what JSON has not
  'api/embedding.ts': ['encoding_format', 'prompt_tokens', 'total_tokens'],
  'api/embed.ts': ['encoding_format', 'prompt_tokens', 'total_tokens'],
  'serve/routes.ts': ['prompt_tokens', 'completion_tokens', 'unknown_url'], // the log; a code
  'serve/errors.ts': ['context_length_exceeded', 'request_too_large', 'unknown_url'], // the codes
  'serve/server.ts': ['request_too_large'], // a code too
};

test('no TypeScript checks fields of requests or writes responses: src/openai does', () => {
  const sources = sourceFiles('src/openai').map((file) => readFileSync(join(root, file), 'utf8'));
  const fields = new Set(
    sources.flatMap((text) =>
      [...text.matchAll(/"([a-z]+(?:_[a-z]+)+)"/g)].map(([, name]) => name),
    ),
  );
  assert.ok(fields.size > 60, `${fields.size} fields`);
  const found = [];
  for (const file of Object.keys(webImports())) {
    const text = readFileSync(join(root, 'web', file), 'utf8').replace(/^ *(\*|\/[*/]).*/gm, '');
    const allowed = fieldNames[file] ?? [];
    for (const name of new Set(text.match(/\b[a-z]+(?:_[a-z]+)+\b/g)))
      if (fields.has(name) && allowed !== 'all' && !allowed.includes(name))
        found.push(`${file}: ${name}`);
  }
  assert.deepEqual(found, []);
});

test('web/ has at most twelve files beside its directories', () => {
  const beside = readdirSync(join(root, 'web'), { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name);
  assert.ok(beside.length <= 12, beside.join());
});
