// Checks the list of faults: each applies to the checkout, and every directory has one.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { faults, occurrences, suitesOf } from './list.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const minFaults = 40;

// Directories that need no fault: scalar references, build scripts.
const exempt = ['kernels/reference', 'web/scripts'];

test('every fault has all fields and a unique name', () => {
  for (const fault of faults) {
    const fields = ['name', 'file', 'old', 'new', 'why', ...(fault.suites ? ['suites'] : [])];
    assert.deepEqual(Object.keys(fault), fields, fault.name);
    assert.match(fault.name, /^[a-z0-9]+(-[a-z0-9]+)*$/);
    assert.match(fault.why, /^\S.*\.$/, fault.name);
    assert.ok(suitesOf(fault).length > 0, fault.name);
  }
  assert.equal(new Set(faults.map(({ name }) => name)).size, faults.length);
  assert.ok(faults.length >= minFaults, `${faults.length} faults`);
});

test('every fault changes one place in one line', () => {
  for (const fault of faults) {
    const path = join(root, fault.file);
    assert.ok(existsSync(path), `${fault.name}: ${fault.file} does not exist`);
    assert.equal(
      occurrences(readFileSync(path, 'utf8'), fault.old),
      1,
      `${fault.name}: '${fault.old}' in ${fault.file}`,
    );
    assert.notEqual(fault.new, fault.old, fault.name);
    assert.ok(!`${fault.old}${fault.new}`.includes('\n'), fault.name);
  }
});

test('every directory of src, kernels and web has a fault', () => {
  const isSource = (name) => /\.(cpp|h|ts|wgsl|mjs)$/.test(name);
  const directories = ['src', 'kernels', 'web'].flatMap((top) =>
    readdirSync(join(root, top), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => `${top}/${name}`),
  );
  const without = directories.filter(
    (directory) =>
      !exempt.includes(directory) &&
      readdirSync(join(root, directory), { recursive: true }).some(isSource) &&
      !faults.some(({ file }) => file.startsWith(`${directory}/`)),
  );
  assert.deepEqual(without, []);
});
