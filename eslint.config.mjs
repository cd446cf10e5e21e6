// ESLint: typescript-eslint's recommended rules for the package, the page and the tests.
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

/** A name that begins with an underscore is left unused on purpose. */
const unused = '^_';

export default defineConfig(
  { ignores: ['.cache/', 'build/', 'dist/', 'site/', 'src/bindings/library.js'] },
  {
    files: ['**/*.ts', '**/*.mjs', '**/*.js'],
    extends: [tseslint.configs.recommended],
    rules: {
      '@typescript-eslint/no-unused-vars': [
        'error',
        {
          varsIgnorePattern: unused,
          argsIgnorePattern: unused,
          caughtErrorsIgnorePattern: unused,
          destructuredArrayIgnorePattern: unused,
        },
      ],
    },
  },
);
