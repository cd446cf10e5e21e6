// Generates the API reference, dist/docs/api.md, from types and comments: every public name of
// every entry, its declaration and its comment. undocumented() lists names without a comment.
// TypeScript 7 has no stable compiler API yet, so this uses the TypeScript version that attw
// depends on.
import { createRequire } from 'node:module';
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
  ['sluice-llm/ai-sdk', 'ai-sdk.ts', 'Provider for the Vercel AI SDK.'],
  ['sluice-llm/sessions', 'sessions.ts', 'Saves sessions and prompts in the browser.'],
];

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
  if (member.body)
    return source.text
      .slice(member.getStart(source), member.body.getStart(source))
      .replace(/\s*=>?\s*$/, '')
      .trim();
  const text = member.getText(source);
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
    const group = groups.get(name) ?? { name, signatures: [], doc: '' };
    const overloaded = membersOf(node).some(
      (m) => m !== member && m.name?.getText(source) === name && !m.body,
    );
    if (!(member.body && overloaded)) group.signatures.push(signature(member, source));
    group.doc ||= comment(member);
    groups.set(name, group);
  }
  return [...groups.values()];
}

function describe({ name, declarations }) {
  const node =
    declarations.find((d) => ts.isClassDeclaration(d) || ts.isInterfaceDeclaration(d)) ??
    declarations[0];
  const source = node.getSourceFile();
  const doc = comment(ts.isVariableDeclaration(node) ? node.parent.parent : node);
  const members = documentedMembers(node, source);
  const kind = ts.isClassDeclaration(node)
    ? 'class'
    : ts.isFunctionDeclaration(node)
      ? 'function'
      : 'type';
  const code = members.length ? '' : signature(node, source).replace(/^export (declare )?/, '');
  const base = (node.heritageClauses ?? []).map((clause) => clause.getText(source)).join(' ');
  return { name, kind, doc, members, code, base };
}

function read() {
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

/** Public names and members without a comment, as "module: name.member". */
export function undocumented() {
  return read().flatMap(({ module, names }) =>
    names.flatMap(({ name, doc, members }) => [
      ...(doc ? [] : [`${module}: ${name}`]),
      ...members
        .filter((member) => !member.doc)
        .map((member) => `${module}: ${name}.${member.name}`),
    ]),
  );
}

const block = (code) => `\`\`\`ts\n${code}\n\`\`\`\n`;

function section({ name, kind, doc, members, code, base }) {
  const lines = [`### ${name}`, ''];
  if (base) lines.push(`_${kind} ${base}_`, '');
  lines.push(doc, '');
  if (code) lines.push(block(code));
  for (const member of members) {
    const signatures = member.signatures.join('\n');
    if (kind === 'class')
      lines.push(`#### ${name}.${member.name}`, '', block(signatures), member.doc, '');
    else
      lines.push(
        `- \`${signatures.replace(/\s+/g, ' ').replaceAll('`', "'")}\` ` +
          `${member.doc.replace(/\s+/g, ' ')}`,
      );
  }
  return [...lines, ''].join('\n');
}

/** The complete reference as Markdown. */
export function reference() {
  const parts = read().map(({ module, about, names }) => {
    const order = ['class', 'function', 'type'];
    const sorted = order.flatMap((kind) => names.filter((n) => n.kind === kind));
    const index = sorted.map(({ name }) => `[${name}](#${name.toLowerCase()})`).join(' · ');
    return [`## ${module}`, '', about, '', index, '', ...sorted.map(section)].join('\n');
  });
  return `# API reference\n\nGenerated by the build from the types and comments in the sources.\n\n${parts.join('\n')}`.replace(
    /\n{3,}/g,
    '\n\n',
  );
}

export const writeReference = () => write(inRoot('dist', 'docs', 'api.md'), reference());
