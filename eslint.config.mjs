// ESLint: typescript-eslint's recommended rules for the package, the page and the tests.
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  { ignores: ['build/', 'dist/', 'site/', 'src/bindings/library.js'] },
  { files: ['**/*.ts', '**/*.mjs', '**/*.js'], extends: [tseslint.configs.recommended] },
);
