// Client libraries against a server: a test for each client and feature, and one line for each
// client that says which of them work. missing.json lists what a server does not have yet, with the
// reason: 'CLIENT: FEATURE', or 'CLIENT: PREFIX…' for all features that begin so. These must fail,
// so nobody forgets to take them off the list.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { inRoot } from '../../../web/scripts/lib.mjs';
import { inNode } from '../server.mjs';
import { installed, load, versions } from './install.mjs';
import { start } from './servers.mjs';
import { clients } from './table.mjs';

const kind = inNode ? 'node' : 'native';
const missing = JSON.parse(readFileSync(new URL('missing.json', import.meta.url), 'utf8'))[kind];
const used = new Set();

/** Why this server lacks the feature; undefined: it has it. */
function whyMissing(name) {
  for (const [reason, patterns] of Object.entries(missing))
    for (const each of patterns)
      if (each.endsWith('…') ? name.startsWith(each.slice(0, -1)) : name === each) {
        used.add(each);
        return reason;
      }
  return undefined;
}

installed(); // before the servers start, which would stay if it failed
const servers = await start();
const results = new Map();

for (const [client, connect] of Object.entries(clients)) {
  const list = { works: [], fails: [], missing: [] };
  results.set(client, list);
  for (const [feature, check] of Object.entries(await connect({ load, ...servers }))) {
    const name = `${client}: ${feature}`;
    const reason = whyMissing(name);
    test(name, { timeout: 120_000 }, async () => {
      list.fails.push(feature);
      await (reason ? assert.rejects(check(), undefined, `it works: ${reason}`) : check());
      list.fails.pop();
      (reason ? list.missing : list.works).push(feature);
    });
  }
}

test('each missing feature is one of the table', () => {
  const all = Object.values(missing).flat();
  assert.deepEqual(
    all.filter((each) => !used.has(each)),
    [],
  );
});

after(async () => {
  await servers.stop();
  const lines = [...results].map(([client, list]) => {
    const parts = Object.entries(list)
      .filter(([, features]) => features.length)
      .map(([mark, features]) => `${mark}: ${features.join(', ')}`);
    return `${versions(client)}, ${kind} server — ${parts.join(' — ')}\n`;
  });
  const folder = inRoot('build', 'test-results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `clients-${kind}.txt`), lines.join(''));
  console.log(lines.join(''));
});
