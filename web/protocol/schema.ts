// Extracts the JSON schema from schema objects of Zod, Valibot, ArkType and other libraries that
// implement Standard Schema. They are recognized by their members, so none of them is a dependency.

import { invalid } from './errors.js';

/** The members that are used of a schema object. */
interface SchemaLibraryObject {
  '~standard'?: { jsonSchema?: { input(options: { target: string }): unknown } };
  toJSONSchema?: (this: unknown, options: { target: string; io: 'input' }) => unknown;
}

/**
 * The JSON schema of a schema object. Returns any other value unchanged, also a JSON schema on which
 * a library has left a hidden reference to its schema object, as Zod does.
 */
export function schemaOf<T>(given: T): T {
  const { '~standard': standard, toJSONSchema } = (given ?? {}) as SchemaLibraryObject;
  const hidden = Object.getOwnPropertyDescriptor(given ?? {}, '~standard')?.enumerable === false;
  const plain = Object.getPrototypeOf(given ?? {}) === Object.prototype;
  if (!standard || (hidden && plain)) return given;
  const target = 'draft-2020-12';
  if (standard.jsonSchema) return standard.jsonSchema.input({ target }) as T;
  if (!toJSONSchema)
    invalid(
      'This schema has no JSON schema: pass z.toJSONSchema(schema), or the equivalent of your ' +
        'library.',
    );
  return toJSONSchema.call(given, { target, io: 'input' }) as T;
}
