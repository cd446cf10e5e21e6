// Schemas for the grammar benchmark, as applications use them, each with a text that matches.

const object = (properties, more = {}) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
});
const text = { type: 'string' };
const list = (items) => ({ type: 'array', items });

const person = {
  type: 'object',
  required: ['name', 'age', 'tags'],
  properties: {
    name: { type: 'string', maxLength: 64 },
    age: { type: 'integer', minimum: 0, maximum: 150 },
    mail: { type: 'string', format: 'email' },
    tags: list(text),
    kind: { enum: ['red', 'green', 'blue'] },
    code: { type: 'string', pattern: '^[A-Z]{2}-\\d+$' },
    more: { type: 'object', additionalProperties: { type: 'number' } },
  },
};
const order = object({
  id: { type: 'string', format: 'uuid' },
  placed: { type: 'string', format: 'date-time' },
  lines: {
    type: 'array',
    minItems: 1,
    maxItems: 20,
    items: object({
      sku: { type: 'string', pattern: '^[A-Z0-9]{3,12}$' },
      count: { type: 'integer', minimum: 1, maximum: 999 },
      price: { type: 'number', minimum: 0 },
    }),
  },
  address: object({
    street: text,
    city: text,
    country: { type: 'string', minLength: 2, maxLength: 2 },
  }),
});
const tree = {
  $defs: { node: object({ name: text, children: list({ $ref: '#/$defs/node' }) }) },
  $ref: '#/$defs/node',
};
const weather = object({
  location: { type: 'string', description: 'City and country' },
  unit: { enum: ['celsius', 'fahrenheit'] },
  days: { type: 'integer', minimum: 1, maximum: 14 },
});
const events = list({
  anyOf: [
    object({ type: { const: 'message' }, from: text, text }),
    object({ type: { const: 'move' }, x: { type: 'number' }, y: { type: 'number' } }),
    object({ type: { const: 'leave' }, at: { type: ['integer', 'null'] } }),
  ],
});
const article = object({
  title: { type: 'string', minLength: 5, maxLength: 120 },
  summary: text,
  keywords: { type: 'array', items: text, minItems: 1, maxItems: 8 },
  sentiment: { enum: ['positive', 'neutral', 'negative'] },
});
const labels = {
  type: 'object',
  propertyNames: { pattern: '^[a-z][a-z0-9_]{0,30}$' },
  additionalProperties: { type: ['string', 'number', 'boolean', 'null'] },
  minProperties: 1,
};

export const cases = [
  [
    person,
    {
      name: 'Ada Lovelace',
      age: 36,
      mail: 'ada@example.org',
      tags: ['first', 'of many'],
      kind: 'green',
      code: 'AL-1815',
      more: { x: 1.5, 'longer name': -2 },
    },
  ],
  [
    order,
    {
      id: '123e4567-e89b-12d3-a456-426614174000',
      placed: '2024-02-29T23:59:58Z',
      lines: [
        { sku: 'ABC123', count: 2, price: 19.99 },
        { sku: 'Z9Z', count: 999, price: 0 },
      ],
      address: { street: 'Karl-Marx-Straße 5', city: 'Göttingen', country: 'DE' },
    },
  ],
  [
    tree,
    {
      name: 'root',
      children: [
        { name: 'left', children: [{ name: 'leaf', children: [] }] },
        { name: 'right', children: [] },
      ],
    },
  ],
  [weather, { location: 'San José, Costa Rica', unit: 'celsius', days: 10 }],
  [
    events,
    [
      { type: 'message', from: 'A', text: 'Hello "you"\nthere' },
      { type: 'move', x: -1.25, y: 3e-7 },
      { type: 'leave', at: null },
    ],
  ],
  [
    article,
    {
      title: 'A mill by the river',
      summary: 'The river ran past a small mill and turned its wheel — 水は流れる, all day long.',
      keywords: ['river', 'mill', '水車'],
      sentiment: 'neutral',
    },
  ],
  [labels, { name: 'x', size_2: 15, ready: true, none: null }],
  [
    true,
    {
      anything: [1, 'two', { three: [null, false, 4.5e10] }],
      'in any form': 'with \\ escapes \u0001 and 😀',
    },
  ],
].map(([schema, value]) => ({ schema, text: JSON.stringify(value) }));

/** A schema that leaves every token to the model, for as long as it generates. */
export const unforced = { type: 'string', minLength: 5000 };

/** A schema that determines most of the output, so that most tokens need no forward pass. */
export const forced = list(
  object({
    customer_relationship_identifier: { type: 'integer', minimum: 0, maximum: 9 },
    preferred_method_of_communication: { enum: ['electronic_mail', 'telephone'] },
    has_given_consent_to_marketing: { type: 'boolean' },
  }),
);
forced.minItems = 100;
