// JSON schemas of tools, for models that write each parameter separately instead of as one JSON
// object. Determines the types of a value and what a parameter's text may be. A keyword that cannot
// be enforced is an error that names it, as in the engine.

import { SluiceError } from '../protocol/errors.js';

type Schema = Record<string, unknown>;

const kTypes = ['string', 'number', 'boolean', 'object', 'array', 'null'];
const kAnnotations =
  'title description default examples deprecated readOnly writeOnly $comment nullable';
const kObject =
  'type properties required additionalProperties $defs definitions $schema ' + kAnnotations;

const isObject = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export function refuse(where: string, why: string): never {
  throw new SluiceError('SCHEMA_UNSUPPORTED', `at "${where}": ${why}`);
}

/** The type of a JSON value. */
export const typeOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;

/**
 * Resolves a local $ref. Null if that fails, or if keywords other than annotations are beside it.
 */
function resolved(schema: unknown, root: unknown, depth = 0): Schema | null {
  if (!isObject(schema)) return null;
  if (!('$ref' in schema)) return schema;
  const [, place, name] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(String(schema['$ref'])) ?? [];
  if (
    !place ||
    Object.keys(schema).some((key) => key !== '$ref' && !kAnnotations.split(' ').includes(key))
  )
    return null;
  const found = (root as Record<string, Schema | undefined> | undefined)?.[place]?.[
    decodeURIComponent(name!).replaceAll('~1', '/').replaceAll('~0', '~')
  ];
  return depth < 20 ? resolved(found, root, depth + 1) : null;
}

/** The types that a value may have; null: not specified. */
export function typesOf(given: unknown, root: unknown): ReadonlySet<string> | null {
  const schema = resolved(given, root);
  if (!schema) return null;
  if (schema['type'] !== undefined)
    return new Set(
      [schema['type'] as string | string[]]
        .flat()
        .map((type) => (type === 'integer' ? 'number' : type)),
    );
  const values = 'const' in schema ? [schema['const']] : schema['enum'];
  if (Array.isArray(values)) return new Set(values.map(typeOf));
  const ways = schema['anyOf'] ?? schema['oneOf'];
  if (!Array.isArray(ways)) return null;
  const types = ways.map((way) => typesOf(way, root));
  return types.includes(null) ? null : new Set(types.flatMap((each) => [...each!]));
}

export interface Parameter {
  name: string;
  required: boolean;
  /** Strings, which are written without quotes. true: any string; otherwise one of these. */
  texts: true | readonly string[];
  /** Schemas of values that are written as JSON. */
  values: readonly unknown[];
}

/** Parameters of a function, in order. `strict`: with their full schemas; otherwise only types. */
export function parametersOf(schema: unknown, strict: boolean): Parameter[] {
  if (!isObject(schema)) return [];
  const wrong = Object.keys(schema).find((key) => !kObject.split(' ').includes(key));
  if (strict && wrong)
    refuse(`/${wrong}`, 'this model writes parameters separately, so this is not supported');
  if (
    strict &&
    /"\$(dynamicRef|recursiveRef|id|anchor)":|"\$ref":"(?!#\/(\$defs|definitions)\/)/.test(
      JSON.stringify(schema),
    )
  ) {
    refuse('', 'this model writes parameters separately, so references can only point into $defs');
  }
  const defs = Object.fromEntries(
    ['$defs', 'definitions'].filter((key) => key in schema).map((key) => [key, schema[key]]),
  );
  const required = (schema['required'] ?? []) as readonly string[];
  const missing = required.find((name) => !Object.hasOwn(schema['properties'] ?? {}, name));
  if (strict && missing !== undefined) refuse('/required', `"${missing}" is not in properties`);
  return Object.entries(schema['properties'] ?? {}).map(([name, own]) => {
    const at = `/properties/${name}`;
    const { texts, values } = strict ? split(own, schema, at) : loose(own, schema);
    return {
      name,
      required: required.includes(name),
      texts,
      values: values.map((value) => (isObject(value) ? { ...value, ...defs } : value)),
    };
  });
}

type Split = Pick<Parameter, 'texts' | 'values'>;

function loose(own: unknown, root: unknown): Split {
  const types = typesOf(own, root) ?? new Set(kTypes);
  return {
    texts: types.has('string') || [],
    values: [...types].filter((type) => type !== 'string').map((type) => ({ type })),
  };
}

/** Splits a schema into strings, which are written without quotes, and other values. */
function split(own: unknown, root: unknown, at: string): Split {
  const schema = own === true ? {} : resolved(own, root);
  if (!schema) return refuse(at, 'no value is possible, or the reference cannot be resolved');
  const { $defs: _, definitions: __, ...rest } = schema;
  const keys = Object.keys(rest).filter((key) => !kAnnotations.split(' ').includes(key));
  const values = 'const' in rest ? [rest['const']] : rest['enum'];
  if (Array.isArray(values)) {
    const types = rest['type'] === undefined ? null : typesOf(rest, root)!;
    const wrong = keys.find((key) => !['const', 'enum', 'type'].includes(key));
    if (wrong)
      refuse(`${at}/${wrong}`, 'this is not supported beside enum or const in a parameter');
    const fit = values.filter((value) => !types || types.has(typeOf(value)));
    const others = fit.filter((value) => typeof value !== 'string');
    return {
      texts: fit.filter((value) => typeof value === 'string'),
      values: others.length ? [{ ...rest, const: undefined, enum: others }] : [],
    };
  }
  if (Array.isArray(rest['anyOf'])) {
    const wrong = keys.find((key) => key !== 'anyOf');
    if (wrong) refuse(`${at}/${wrong}`, 'this is not supported beside anyOf in a parameter');
    const ways = (rest['anyOf'] as unknown[]).map((way, i) => split(way, root, `${at}/anyOf/${i}`));
    const any = ways.some(({ texts }) => texts === true);
    return {
      texts: any || ways.flatMap(({ texts }) => texts as string[]),
      values: ways.flatMap((way) => way.values),
    };
  }
  if (keys.length === 0) return { texts: true, values: [{}] };
  const types = [
    rest['type'] ?? refuse(`${at}/type`, 'a parameter needs a type'),
  ].flat() as string[];
  const others = types.filter((type) => type !== 'string');
  if (others.length < types.length) {
    const wrong = keys.find((key) =>
      /^(pattern|format|minLength|maxLength|allOf|oneOf|not|if)$/.test(key),
    );
    if (wrong)
      refuse(`${at}/${wrong}`, 'this cannot be enforced for strings written without quotes');
  }
  return {
    texts: others.length < types.length || [],
    values: others.length ? [{ ...rest, type: others }] : [],
  };
}
