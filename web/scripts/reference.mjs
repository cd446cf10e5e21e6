// Generates the API reference, dist/docs/api.md, from types and comments: every public name of
// every entry, its declaration, its comment and the comment's @example, and the table of error
// codes. undocumented() lists names without a comment, withoutExample() calls without an example.
// TypeScript 7 has no stable compiler API yet, so this uses the TypeScript version that attw
// depends on.
import { createRequire } from 'node:module';
import { codeTable, errorCodes, handling, warningCodes } from './errors.mjs';
import { inRoot, write } from './lib.mjs';

const ts = createRequire(createRequire(import.meta.url).resolve('@arethetypeswrong/core'))(
  'typescript',
);

const entries = [
  ['sluice-llm', 'api/public.ts', 'Exports of `sluice-llm` and `sluice-llm/inline`.'],
  [
    'sluice-llm/huggingface',
    'huggingface.ts',
    'Finds GGUF files by quantization in a repository on the Hugging Face hub.',
  ],
  ['sluice-llm/ai-sdk', 'ai-sdk.ts', 'Provider for the Vercel AI SDK 6 and 7.'],
  ['sluice-llm/ai-sdk/v4', 'ai-sdk-v4.ts', 'The same for version 4 of its interface (AI SDK 7).'],
  ['sluice-llm/sessions', 'sessions.ts', 'Saves sessions and prompts in the browser.'],
];

/** Unions of strings that the table of error codes shows. */
const inTable = new Set(['ErrorCode', 'WarningCode']);

const isInternal = (node) => ts.getJSDocTags(node).some((tag) => tag.tagName.text === 'internal');
const isPrivate = (node) =>
  !!(ts.getCombinedModifierFlags(node) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) ||
  (node.name && ts.isPrivateIdentifier(node.name));

/** The doc comment of a node, as Markdown. */
function comment(node) {
  const docs = node.jsDoc ?? [];
  const text = docs.map((doc) => ts.getTextOfJSDocComment(doc.comment) ?? '').join('\n');
  return text.replace(/\{@link (\w+)\}/g, '`$1`').trim();
}

/** Code of a node's @example tags. Each is one ts block. */
function examplesIn(node) {
  const tags = ts.getJSDocTags(node).filter((tag) => tag.tagName.text === 'example');
  return tags.map((tag) => {
    const text = ts.getTextOfJSDocComment(tag.comment) ?? '';
    const [, code] = /^```ts\n((?:(?!```)[^])+)\n```$/.exec(text.trim()) ?? [];
    if (!code) throw new Error(`@example needs one ts block: ${node.name?.getText()}: ${text}`);
    return code;
  });
}

/** Whether users call it: a function, a method or a constructor. */
const isCallable = (node) =>
  ts.isFunctionDeclaration(node) ||
  ts.isMethodDeclaration(node) ||
  ts.isMethodSignature(node) ||
  ts.isConstructorDeclaration(node);

/** Declarations of all exports, sorted by name. */
function exportsOf(checker, source) {
  return checker
    .getExportsOfModule(checker.getSymbolAtLocation(source))
    .map((symbol) => {
      const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
      return { name: symbol.name, declarations: real.declarations };
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function membersOf(node) {
  const literal =
    ts.isTypeAliasDeclaration(node) && ts.isTypeLiteralNode(node.type) ? node.type : node;
  return (literal.members ?? []).filter(
    (member) =>
      !isPrivate(member) &&
      !isInternal(member) &&
      !(ts.isConstructorDeclaration(member) && isInternal(member)),
  );
}

/** The declaration of a member without its body and comment. */
function signature(member, source) {
  const start = member.getStart(source);
  const { character: indent } = source.getLineAndCharacterOfPosition(start);
  const text = source.text
    .slice(start, member.body?.getStart(source) ?? member.end)
    .replaceAll(`\n${' '.repeat(indent)}`, '\n');
  if (member.body) return text.replace(/\s*=>?\s*$/, '').trim();
  return (member.initializer && !member.type ? text.slice(0, text.indexOf('=')) : text)
    .replace(/;$/, '')
    .trim();
}

/** Members with signatures and comments. Overloads share one comment. */
function documentedMembers(node, source) {
  const groups = new Map();
  for (const member of membersOf(node)) {
    const name =
      member.name?.getText(source) ??
      (ts.isIndexSignatureDeclaration(member) ? '[field]' : 'constructor');
    const group = groups.get(name) ?? { name, signatures: [], doc: '', examples: [] };
    const overloaded = membersOf(node).some(
      (m) => m !== member && m.name?.getText(source) === name && !m.body,
    );
    if (!(member.body && overloaded)) group.signatures.push(signature(member, source));
    group.doc ||= comment(member);
    group.callable = isCallable(member);
    group.examples.push(...examplesIn(member));
    groups.set(name, group);
  }
  return [...groups.values()];
}

function describe({ name, declarations }) {
  const node =
    declarations.find((d) => ts.isClassDeclaration(d) || ts.isInterfaceDeclaration(d)) ??
    declarations[0];
  const source = node.getSourceFile();
  const commented = ts.isVariableDeclaration(node) ? node.parent.parent : node;
  const doc = comment(commented);
  const members = documentedMembers(node, source);
  const kind = ts.isClassDeclaration(node)
    ? 'class'
    : ts.isFunctionDeclaration(node)
      ? 'function'
      : 'type';
  const code =
    members.length || inTable.has(name)
      ? ''
      : signature(node, source).replace(/^export (declare )?/, '');
  const base = (node.heritageClauses ?? []).map((clause) => clause.getText(source)).join(' ');
  const callable = isCallable(node);
  return { name, kind, doc, members, code, base, callable, examples: examplesIn(commented) };
}

let entriesRead;

/** The public names of every entry. */
const read = () => (entriesRead ??= readEntries());

function readEntries() {
  const program = ts.createProgram(
    entries.map(([, file]) => inRoot('web', file)),
    {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      strict: true,
      noEmit: true,
      types: [],
    },
  );
  const checker = program.getTypeChecker();
  return entries.map(([module, file, about]) => {
    const found = exportsOf(checker, program.getSourceFile(inRoot('web', file)));
    return { module, about, names: found.map(describe) };
  });
}

/** All public names and members: { path: "module: name.member", doc, callable, examples }. */
const everything = () =>
  read().flatMap(({ module, names }) =>
    names.flatMap(({ members, ...own }) => [
      { ...own, path: `${module}: ${own.name}` },
      ...members.map((member) => ({ ...member, path: `${module}: ${own.name}.${member.name}` })),
    ]),
  );

/** Public names and members without a comment. */
export const undocumented = () =>
  everything()
    .filter(({ doc }) => !doc)
    .map(({ path }) => path);

/** Functions, methods and constructors without an example. */
export const withoutExample = () =>
  everything()
    .filter(({ callable, examples }) => callable && examples.length === 0)
    .map(({ path }) => path);

/** Functions, methods and constructors. */
export const callables = () => [
  ...new Set(
    everything()
      .filter(({ callable }) => callable)
      .map(({ path }) => path),
  ),
];

/** Properties of a public type: { name, optional }. */
export const properties = (type) =>
  read()
    .flatMap(({ names }) => names)
    .find(({ name }) => name === type)
    .members.map(({ name, signatures }) => ({ name, optional: /^\w+\?:/.test(signatures[0]) }));

/** All examples of the reference: { path, code }. */
export const examples = () => [
  ...everything().flatMap(({ path, examples }) => examples.map((code) => ({ path, code }))),
  { path: 'error codes', code: handling },
];

/** What examples use without declaring it: [name, type, description]. */
const context = [
  ['model', 'string', 'the address of a GGUF file'],
  ['engine', "import('sluice-llm').Engine", 'a loaded engine'],
  ['session', "import('sluice-llm').Session", 'a session of that engine'],
  ['saved', "import('sluice-llm/sessions').SavedSessions", 'opened by `SavedSessions.open()`'],
];

/** Classes that examples use without importing them. */
const imported = ['Engine', 'SluiceError'];

/** Declares for the compiler what examples use without declaring or importing it. */
export const exampleContext = [
  ...imported.map((name) => `declare const ${name}: typeof import('sluice-llm').${name};`),
  ...context.map(([name, type]) => `declare const ${name}: ${type};`),
].join('\n');

const introduction = `# API reference

Generated by the build from the types and comments in the sources.

Examples import ${imported.map((name) => `\`${name}\``).join(' and ')} from \`sluice-llm\`. They also use:

${context.map(([name, , meaning]) => `- \`${name}\`: ${meaning}`).join('\n')}
`;

const block = (code) => `\`\`\`ts\n${code}\n\`\`\`\n`;

function section({ name, kind, doc, members, code, base, examples }) {
  const lines = [`### ${name}`, ''];
  if (base) lines.push(`_${kind} ${base}_`, '');
  lines.push(doc, '');
  if (inTable.has(name)) lines.push('The table is in [Error codes](#error-codes).', '');
  if (code) lines.push(block(code));
  lines.push(...examples.map(block));
  for (const member of members) {
    const signatures = member.signatures.join('\n');
    if (kind === 'class')
      lines.push(
        `#### ${name}.${member.name}`,
        '',
        block(signatures),
        member.doc,
        '',
        ...member.examples.map(block),
      );
    else
      lines.push(
        `- \`${signatures.replace(/\s+/g, ' ').replaceAll('`', "'")}\` ` +
          `${member.doc.replace(/\s+/g, ' ')}`,
      );
  }
  return [...lines, ''].join('\n');
}

const errors = () => `## Error codes

A call that fails throws a \`SluiceError\` or rejects with it. Its \`code\` is one of these, and its message
says what to do. [errors.md](../../docs/errors.md) also has the numbers of the C API and the codes of the servers.

${block(handling)}
${codeTable(errorCodes())}

These codes only come with warnings: \`onProgress\` events of phase \`warning\`.

${codeTable(warningCodes())}
`;

/** The complete reference as Markdown. */
export function reference() {
  const parts = read().map(({ module, about, names }) => {
    const order = ['class', 'function', 'type'];
    const sorted = order.flatMap((kind) => names.filter((n) => n.kind === kind));
    const index = sorted.map(({ name }) => `[${name}](#${name.toLowerCase()})`).join(' · ');
    return [`## ${module}`, '', about, '', index, '', ...sorted.map(section)].join('\n');
  });
  return [introduction, ...parts, errors()].join('\n').replace(/\n{3,}/g, '\n\n');
}

export const writeReference = () => write(inRoot('dist', 'docs', 'api.md'), reference());
