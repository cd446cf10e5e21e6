// Limits of the C++ sources: a function has at most 80 lines, a class at most 40 methods.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const maxLines = 80;
const maxMethods = 40;

function sourceFiles(folder) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return sourceFiles(path);
    return /\.(h|cpp)$/.test(entry.name) ? [path] : [];
  });
}

const spaces = (text) => text.replace(/[^\n]/g, ' ');

/** The text with spaces in place of comments, literals and directives; lines stay where they are. */
const bare = (text) =>
  text
    .replace(/(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])/g, '_')
    .replace(
      /R"(\w*)\([^]*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|\/\/.*|\/\*[^]*?\*\//g,
      spaces,
    )
    .replace(/^[ \t]*#(?:.*\\\n)*.*$/gm, spaces);

/** What a `{` opens, by the text between it and the statement before. */
function opened(head) {
  if (/\bnamespace\b[\w\s:]*$|^extern\s*$/.test(head)) return { kind: 'namespace' };
  const type = head.match(/(?:^|[\s>])(?:class|struct|union)\s+([\w:]+)[^()=]*$/);
  if (type && !/\benum\b/.test(head)) return { kind: 'class', name: type[1] };
  const name = head.match(/(operator[^(]+|[\w:~]+)\s*\(/)?.[1];
  // A brace in a constructor's list of initializers follows a name, the body's follows `)` or `}`.
  if (name && /\)\s*:[^:]/.test(head) && /[\w>]$/.test(head)) return { kind: 'initializer' };
  if (name && /\)[^=]*$/.test(head)) return { kind: 'function', name };
  return { kind: 'block' };
}

const declaration = /\)\s*(?:const|noexcept|override|final|=\s*0|&|\s)*$/;

/** { functions: [{ name, lines }], classes: [{ name, methods }] }; deleted and defaulted methods do not count. */
function measure(source) {
  const text = bare(source);
  const found = { functions: [], classes: [] };
  const stack = [];
  let from = 0; // of the current statement
  let line = 1;
  let parentheses = 0;
  for (let i = 0; i < text.length; i++) {
    const top = stack.at(-1);
    switch (text[i]) {
      case '\n':
        line++;
        break;
      case '(':
        parentheses++;
        break;
      case ')':
        parentheses--;
        break;
      case '{': {
        const head = text.slice(from, i).trim();
        const outside = !top || top.kind === 'namespace' || top.kind === 'class';
        const inside = { kind: parentheses > 0 ? 'initializer' : 'block' };
        const scope = outside && parentheses === 0 ? opened(head) : inside;
        if (scope.kind === 'function' && top?.kind === 'class') top.methods++;
        stack.push({ ...scope, line: line - head.split('\n').length + 1, methods: 0 });
        if (scope.kind !== 'initializer') from = i + 1;
        break;
      }
      case '}':
        stack.pop();
        if (top.kind === 'function') found.functions.push({ ...top, lines: line - top.line + 1 });
        if (top.kind === 'class') found.classes.push(top);
        if (top.kind !== 'initializer') from = i + 1;
        break;
      case ';':
        if (parentheses > 0) break;
        if (top?.kind === 'class') {
          const statement = text.slice(from, i);
          const other = /\b(?:using|typedef|friend|static_assert)\b/.test(statement);
          if (declaration.test(statement) && !other) top.methods++;
        }
        from = i + 1;
        break;
      case ':':
        if (/\b(?:public|private|protected)\s*$/.test(text.slice(from, i))) from = i + 1;
        break;
    }
  }
  assert.equal(stack.length, 0, 'braces without their counterpart');
  return found;
}

test('functions and methods are counted', () => {
  const { functions, classes } = measure(`
namespace a {
// void in_a_comment() {
class B final : public C {
 public:
  B(int x) : x_{x}, y_("}") {}
  B(const B&) = delete;
  virtual void f() const = 0;
  int g(std::function<void()> h = [] {}) { return 1'000 + '{'; }

 private:
  friend void i();
  int x_{}, y_;
};
template <typename T>
int B::g(T t) {
  if (t) {
  }
}
}  // namespace a
`);
  assert.deepEqual(
    classes.map(({ name, methods }) => [name, methods]),
    [['B', 3]],
  );
  assert.deepEqual(
    functions.map(({ name, lines }) => [name, lines]),
    [
      ['B', 1],
      ['g', 1],
      ['B::g', 5],
    ],
  );
});

test(`no function has more than ${maxLines} lines, no class more than ${maxMethods} methods`, () => {
  const beyond = {};
  let functions = 0;
  for (const file of [...sourceFiles('kernels'), ...sourceFiles('src')]) {
    const found = measure(readFileSync(join(root, file), 'utf8'));
    functions += found.functions.length;
    for (const { name, lines } of found.functions)
      if (lines > maxLines) beyond[`${file} ${name}`] = `${lines} lines`;
    for (const { name, methods } of found.classes)
      if (methods > maxMethods) beyond[`${file} ${name}`] = `${methods} methods`;
  }
  assert.ok(functions > 5000, `${functions} functions`);
  assert.deepEqual(beyond, {});
});
