// Addresses in messages and in the model cache: without passwords and signatures.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { importWeb } from './helpers.mjs';
import fs from 'node:fs';

const { keys } = JSON.parse(
  fs.readFileSync(new URL('../data/addresses.json', import.meta.url), 'utf8'),
);
const { fileName, hasUser, isOwnKey, publicUrl, storedUrl, withoutSecrets } =
  await importWeb('protocol/address');

test('messages contain no user, password, query or fragment', () => {
  const shown = 'https://host/a/m.gguf';
  for (const user of [
    '',
    'token@',
    'u:p@',
    'u:p@ss@',
    'u:@@@',
    'u:p:q@',
    'u:p%40@',
    'u:p/w@',
    'u:p?w@',
    'u:p#w@',
    'u:a/b@c?d@e#f@',
    'u:p\\w@',
  ]) {
    for (const rest of ['', '?sig=secret', '?a=b@c', '#x?y@z', '?url=http://u:p@h/']) {
      const got = publicUrl(`https://${user}host/a/m.gguf${rest}`);
      // No parser accepts a password with / ? or #. Such an address may lose too much, but no secret.
      if (/[/?#]/.test(user) && rest.includes('@'))
        assert.match(got, /^https:\/\/[a-z/]*$/, user + rest);
      else assert.equal(got, shown, user + rest);
    }
    assert.equal(hasUser(`https://${user}host/a/m.gguf`), user !== '', user);
  }
  for (const plain of [
    'http://h:8080/a@b/c.gguf',
    'http://[::1]:80/x@y',
    'http://h/@scope/m.gguf',
    'https://h',
  ]) {
    assert.equal(publicUrl(plain), plain);
    assert.equal(hasUser(plain), false, plain);
  }
  assert.equal(
    withoutSecrets('Failed at http://u:p@ss@h/x?sig=1 and http://h/y#z.'),
    'Failed at http://h/x and http://h/y',
  );
});

test('the cache key of a file has its identifying parameters but no signature', () => {
  assert.ok(keys.length > 40);
  assert.ok(isOwnKey('http://h:80/a_b/m-1.Q8~.gguf'));
  for (const { note, address, key } of keys) {
    assert.equal(storedUrl(address), key, note);
    assert.equal(storedUrl(key), key, `${note}: a key is its own key`);
    if (isOwnKey(address)) assert.equal(address, key, note);
  }
});

test('fileName() accepts any spelling of an address', () => {
  assert.equal(fileName('http://h/a%20b.gguf?x'), 'a b.gguf');
  assert.equal(fileName('http://h/100%.gguf'), '100%.gguf');
  assert.equal(fileName('http://h/100%zz.gguf#a'), '100%zz.gguf');
  assert.equal(fileName('http://u:p@h/'), 'http://h/');
});
