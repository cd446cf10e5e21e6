// How answers are made: the sampling settings and the schema that binds them, read from the form
// and kept for the next visit.

import type { GenerateOptions } from 'sluice-llm';

import { byId, on } from './dom.js';

const kKey = 'sampling';

type Field = HTMLInputElement | HTMLTextAreaElement;

const fields = (): Field[] => [...byId('sampling').querySelectorAll<Field>('input, textarea')];
const schemaField = (): HTMLTextAreaElement => byId<HTMLTextAreaElement>('schema');

/** Puts back what was set on an earlier visit. */
export function restoreSampling(): void {
  const kept = read();
  for (const field of fields()) {
    const value = kept[field.name];
    if (typeof value === 'string') field.value = value;
  }
  judgeSchema();
  on(schemaField(), 'input', judgeSchema);
  on(byId('sampling'), 'change', ({ target }) => {
    const { name, value } = target as Field;
    try {
      // Only what was changed here: another tab may have set the others.
      localStorage.setItem(kKey, JSON.stringify({ ...read(), [name]: value }));
    } catch {
      // for this visit only
    }
  });
}

/** What is kept; nothing where there is no storage, or it is not ours. */
function read(): Record<string, unknown> {
  try {
    return Object(JSON.parse(localStorage.getItem(kKey) ?? '{}')) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Answers are to be JSON of a schema: the engine needs room for that. */
export const wantsSchema = (): boolean => schemaField().value.trim() !== '';

/** The schema: an object, or a boolean, as JSON Schema has them. */
function schema(): object | boolean {
  const value: unknown = JSON.parse(schemaField().value);
  if (typeof value === 'boolean' || (typeof value === 'object' && value && !Array.isArray(value)))
    return value;
  throw new SyntaxError('a schema is an object, or true');
}

/** Says below the field what is wrong with the text in it. */
function judgeSchema(): void {
  let wrong = '';
  try {
    if (wantsSchema()) schema();
  } catch (error) {
    wrong = `This is no schema: ${(error as Error).message}.`;
  }
  schemaField().setAttribute('aria-invalid', String(wrong !== ''));
  byId('schema-wrong').hidden = wrong === '';
  byId('schema-wrong').textContent = wrong;
}

/** Errors: SyntaxError where the schema is no JSON. */
export function sampling(): GenerateOptions {
  const options: Record<string, number | string> = {};
  for (const field of fields()) {
    if (field.value !== '' && field !== schemaField())
      options[field.name] = field.type === 'number' ? Number(field.value) : field.value;
  }
  return { ...(options as GenerateOptions), ...(wantsSchema() && { jsonSchema: schema() }) };
}
