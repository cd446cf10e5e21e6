// Generates docs/errors.md: every stable code, what it means and how to fix it. The text comes from
// the comments of the codes (web/protocol/errors.ts, web/serve/errors.ts), the numbers from
// src/api/sluice.h.
//   node web/scripts/errors.mjs --check | --write
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inRoot, markdownTable, write } from './lib.mjs';

const page = inRoot('docs', 'errors.md');
const source = (path) => readFileSync(inRoot(...path.split('/')), 'utf8');

/**
 * The members of a union type of strings, in order: { code, meaning, fix, group }. A comment in
 * front of a member reads "Meaning. Fix: what to do."; a line comment begins a group.
 */
export function documented(text, type) {
  const [, union] = new RegExp(`^export type ${type} =([^]*?'\\w+');$`, 'm').exec(text) ?? [];
  if (union === undefined) throw new Error(`there is no union type ${type}`);
  let group = '';
  let comment = '';
  const out = [];
  for (const [, line, doc, code] of union.matchAll(
    /^ *(?:\/\/ (.*)|\/\*\*([^]*?)\*\/|\| '(\w+)';?)$/gm,
  )) {
    if (line) group = line;
    if (doc) comment = doc.replace(/\s*\n\s*\*?\s*/g, ' ').trim();
    if (!code) continue;
    const [, meaning, fix] = /^(.+\.) Fix: (.+\.)$/.exec(comment) ?? [];
    if (!fix) throw new Error(`${code} needs a comment "Meaning. Fix: what to do."`);
    out.push({ code, meaning, fix: fix[0].toUpperCase() + fix.slice(1), group });
    comment = '';
  }
  return out;
}

/** The codes of the C header: { NAME: number }, without OK. */
export function numbers(header) {
  const found = [...header.matchAll(/^ *SLUICE_([A-Z_]+) = (\d+)\b/gm)];
  const [first, last] = [
    found.findIndex(([, name]) => name === 'OK'),
    found.findIndex(([, , number], i) => i > 0 && Number(number) !== i),
  ];
  return Object.fromEntries(
    found.slice(first + 1, last < 0 ? undefined : last).map(([, name, n]) => [name, Number(n)]),
  );
}

export const errorCodes = () => documented(source('web/protocol/errors.ts'), 'ErrorCode');
export const warningCodes = () => documented(source('web/protocol/errors.ts'), 'WarningCode');
export const serverCodes = () => documented(source('web/serve/errors.ts'), 'ServerCode');

/** A table of codes: what each means and how to fix it. */
export const codeTable = (codes) =>
  markdownTable(
    ['Code', 'Meaning', 'What to do'],
    codes.map(({ code, meaning, fix }) => [`\`${code}\``, meaning, fix]),
  );

/** How to handle one code. */
export const handling = `import { Engine, SluiceError } from 'sluice-llm';

try {
  await Engine.load('model.gguf', { memoryBudget: 64 << 20 });
} catch (error) {
  if (error instanceof SluiceError && error.code === 'BUDGET_TOO_SMALL') console.log(error.message);
  else throw error;
}`;

const introduction = `# Error codes

Every failure has a stable code and a message of one sentence. Programs compare the code; people read the
message. A code never changes its meaning, and a message may become clearer at any time.

- **JavaScript:** calls reject with a \`SluiceError\`, whose \`code\` is one of the names below. An aborted call
  rejects with the signal's reason, which is an \`AbortError\` by default.
- **C:** functions return the number, \`sluice_status_name()\` gives the name, and \`sluice_last_error()\` gives
  the message. An aborted call returns \`SLUICE_ABORTED\` (NUMBER_OF_ABORTED).
- **Command line:** \`sluice: MESSAGE [CODE]\` on standard error, and an exit status that is not 0
  ([cli.md](cli.md#exit-status)).
- **HTTP servers:** an OpenAI-compatible error object, whose \`code\` is one of the names on this page.
  \`/v1/messages\` has Anthropic's error objects, which have no code.

\`\`\`ts
${handling}
\`\`\`
`;

const warnings = `## Warnings

A warning says that something degraded while the work goes on. In JavaScript it is an \`onProgress\` event of
phase \`warning\` with \`code\` and \`message\`. It carries an error code from above or one of these:
`;

const servers = `## HTTP servers

\`sluice serve\` and \`npx sluice-llm serve\` answer a failed request with this object:

\`\`\`json
{"error": {"message": "…", "type": "invalid_request_error", "param": null, "code": "unknown_url"}}
\`\`\`

Errors of the engine keep their code. Those that blame the request have status 400, the others 500. The
native server's \`code\` is \`null\` where a member of the request is wrong; \`param\` names that member. The
other codes are:
`;

/** The page. Throws if a code has no comment. */
export function errorsPage() {
  const c = numbers(source('src/api/sluice.h'));
  const codes = errorCodes();
  const groups = [...new Set(codes.map(({ group }) => group))];
  const sections = groups.map((group) => {
    const rows = codes
      .filter((entry) => entry.group === group)
      .map(({ code, meaning, fix }) => [`\`${code}\``, c[code] ?? '', meaning, fix]);
    return `## ${group}\n\n${markdownTable(['Code', 'C', 'Meaning', 'What to do'], rows)}\n`;
  });
  const answers = serverCodes().map(({ code, meaning, fix }) => {
    const [, status, rest] = /^([\w, ]+): (.+)$/.exec(meaning);
    return [`\`${code}\``, status, rest, fix];
  });
  return [
    introduction.replace('NUMBER_OF_ABORTED', c.ABORTED),
    ...sections,
    warnings,
    `${codeTable(warningCodes())}\n`,
    servers,
    `${markdownTable(['Code', 'Status', 'Meaning', 'What to do'], answers)}\n`,
  ].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [how] = process.argv.slice(2);
  if (how === '--write') write(page, errorsPage());
  else if (how !== '--check') throw new Error('errors: give --check or --write');
  else if (readFileSync(page, 'utf8') !== errorsPage()) {
    console.error('errors: docs/errors.md is out of date: node web/scripts/errors.mjs --write');
    process.exitCode = 1;
  }
}
