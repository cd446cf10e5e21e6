// JSON schemas as libraries hand them over: as they are, or in an object of Standard Schema's kind
// (Zod, Valibot, ArkType), which is known by its members; none of those libraries is needed.

import { invalid } from './errors.js';

/** What is looked for in an object that may have a schema. */
interface SchemaLibraryObject {
  '~standard'?: { jsonSchema?: { input(options: { target: string }): unknown } };
  toJSONSchema?: (this: unknown, options: { target: string; io: 'input' }) => unknown;
}

/** The JSON schema of what a caller passed as one; anything else is given back. */
export function schemaOf<T>(given: T): T {
  const { '~standard': standard, toJSONSchema } = (given ?? {}) as SchemaLibraryObject;
  if (!standard) return given;
  const target = 'draft-2020-12';
  if (standard.jsonSchema) return standard.jsonSchema.input({ target }) as T;
  if (!toJSONSchema)
    invalid(
      'This schema cannot tell its JSON schema: pass z.toJSONSchema(schema), or what your ' +
        'library has for it.',
    );
  return toJSONSchema.call(given, { target, io: 'input' }) as T;
}
