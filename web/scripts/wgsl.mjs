// WGSL files as text in a bundle, without comments and indentation. Lines that begin with //@ mark
// parts of a template and stay.
import { readFileSync } from 'node:fs';

export const shortened = (text) => text.split('\n').map((line) => line.trim().replace(/\/\/(?!@).*$/, '').trimEnd())
  .filter(Boolean).join('\n') + '\n';

export const wgsl = {
  name: 'wgsl',
  setup: (build) => build.onLoad({ filter: /\.wgsl$/ }, ({ path }) => ({ contents: shortened(readFileSync(path, 'utf8')), loader: 'text' })),
};
