// Random satisfiable JSON schemas, and a shrinker: if the output for a schema is wrong, the
// smallest schema with a wrong output is reported.
import { random } from './random.mjs';

const kWords = ['a', 'name', 'Größe', 'x y', 'it"s', 'back\\slash', '', '日本', 'n\nl', 'aa'];
const kPatterns = ['^[a-z]{2,5}$', '^(ab|c)+$', '^\\d{3}-\\d{2}$', '[A-Z]', '^x*$'];

/** A random schema; the same seed gives the same one. */
export function randomSchema(seed) {
  const next = random(seed);
  const below = (n) => Math.floor(next() * n);
  const pick = (list) => list[below(list.length)];
  const chance = (share) => next() < share;
  const some = (least, most, make) => Array.from({ length: least + below(most - least + 1) }, make);
  let defs = 0;

  const values = [
    null,
    true,
    false,
    0,
    -3,
    1.5,
    1e21,
    'text',
    '',
    'it"s',
    [],
    [1, 'a'],
    {},
    { b: null, a: [true] },
  ];
  const range = (low, high) => {
    const from = low + below(high - low);
    return [from, from + below(high - from) + 1];
  };
  const kinds = {
    null: () => ({ type: 'null' }),
    boolean: () => ({ type: 'boolean' }),
    integer: () => {
      const [minimum, maximum] = range(-500, 500);
      return {
        type: 'integer',
        ...(chance(0.5) && { minimum }),
        ...(chance(0.5) && { maximum: maximum + 20 }),
        ...(chance(0.2) && { multipleOf: pick([2, 5, 10]) }),
      };
    },
    number: () => {
      const [low, high] = range(-50, 50);
      return chance(0.5)
        ? { type: 'number', exclusiveMinimum: low, maximum: high + 0.5 }
        : { type: 'number', ...(chance(0.3) && { multipleOf: 0.25 }) };
    },
    string: () => {
      if (chance(0.25)) return { type: 'string', pattern: pick(kPatterns), maxLength: 8 };
      const [minLength, maxLength] = range(0, 12);
      return { type: 'string', maxLength, ...(chance(0.5) && { minLength }) };
    },
    enum: () => ({ enum: some(1, 4, () => pick(values)) }),
    const: () => ({ const: pick(values) }),
  };
  const leaf = () => kinds[pick(Object.keys(kinds))]();
  const schema = (depth) => {
    if (depth <= 0 || chance(0.3)) return leaf();
    const way = below(10);
    if (way < 5) return object(depth);
    if (way < 7)
      return {
        type: 'array',
        items: schema(depth - 1),
        minItems: below(3),
        maxItems: 3 + below(2),
      };
    if (way < 8)
      return {
        type: 'array',
        prefixItems: some(1, 3, () => schema(depth - 1)),
        items: false,
        minItems: 1,
      };
    if (way < 9) return { anyOf: some(1, 3, () => schema(depth - 1)) };
    return defs > 0 ? { $ref: `#/$defs/d${below(defs)}` } : leaf();
  };
  const object = (depth) => {
    const names = [...new Set(some(0, 4, () => pick(kWords)))];
    const properties = Object.fromEntries(names.map((name) => [name, schema(depth - 1)]));
    const more = chance(0.15)
      ? { additionalProperties: leaf(), maxProperties: names.length + 2 }
      : { additionalProperties: false };
    return { type: 'object', properties, required: names.filter(() => chance(0.6)), ...more };
  };
  const $defs = {};
  for (const n of some(0, 2, () => 0).keys()) {
    // A recursive schema needs an end: a list that may be empty, or an optional member.
    const self = chance(0.5)
      ? { next: { $ref: `#/$defs/d${n}` } }
      : { list: { type: 'array', items: { $ref: `#/$defs/d${n}` }, maxItems: 2 } };
    $defs[`d${n}`] = {
      type: 'object',
      properties: { value: schema(1), ...self },
      required: ['value'],
      additionalProperties: false,
    };
    defs = n + 1;
  }
  return { ...schema(3), ...(defs > 0 && { $defs }) };
}

/** Schemas that are one step smaller. */
export function* smaller(schema) {
  if (typeof schema !== 'object' || schema === null) return;
  if (Array.isArray(schema)) {
    for (const at of schema.keys()) {
      if (schema.length > 1) yield schema.filter((_, i) => i !== at);
      for (const less of smaller(schema[at]))
        yield schema.map((each, i) => (i === at ? less : each));
    }
    return;
  }
  for (const [key, value] of Object.entries(schema)) {
    const { [key]: _, ...rest } = schema;
    yield rest;
    for (const less of smaller(value)) yield { ...schema, [key]: less };
  }
}

/** The smallest schema reachable by such steps that is still `wrong`. */
export async function shrunk(schema, wrong, attempts = 300) {
  for (let found = true; found;) {
    found = false;
    for (const less of smaller(schema)) {
      if (attempts-- <= 0) return schema;
      if (!(await wrong(less))) continue;
      schema = less;
      found = true;
      break;
    }
  }
  return schema;
}
