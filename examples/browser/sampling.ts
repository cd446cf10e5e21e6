// Sampling settings and the JSON schema for structured output, read from the form and remembered.

import type { GenerateOptions } from 'sluice-llm';

import { byId, on } from './dom.js';

const kKey = 'sampling';

type Field = HTMLInputElement | HTMLTextAreaElement;

const fields = (): Field[] => [...byId('sampling').querySelectorAll<Field>('input, textarea')];
const schemaField = (): HTMLTextAreaElement => byId<HTMLTextAreaElement>('schema');

/** Restores the settings of the last visit. */
export function restoreSampling(): void {
  const kept = read();
  for (const field of fields()) {
    const value = kept[field.name];
    if (typeof value === 'string') field.value = value;
  }
  on(byId('sampling'), 'change', ({ target }) => {
    const { name, value } = target as Field;
    try {
      // Writes only the changed field: another tab may have set the others.
      localStorage.setItem(kKey, JSON.stringify({ ...read(), [name]: value }));
    } catch {
      // no storage: not remembered
    }
  });
}

/** The stored settings; empty if there is no storage or it is invalid. */
function read(): Record<string, unknown> {
  try {
    return Object(JSON.parse(localStorage.getItem(kKey) ?? '{}')) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Whether a schema is entered. A model that is loaded then sets memory aside for it. */
export const wantsSchema = (): boolean => schemaField().value.trim() !== '';

/** The schema: an object or a boolean. Throws SyntaxError. */
export function schema(): object | boolean {
  const value: unknown = JSON.parse(schemaField().value);
  if (typeof value === 'boolean' || (typeof value === 'object' && value && !Array.isArray(value)))
    return value;
  throw new SyntaxError('it must be an object or a boolean');
}

/** What is wrong with the first field that holds no number in its range; '' if all are right. */
export function wrongField(): string {
  // A fraction between two steps is as good as a step.
  const isWrong = (field: Field): boolean =>
    !field.validity.valid &&
    !(field.validity.stepMismatch && (field as HTMLInputElement).step !== '1');
  const wrong = fields().find(isWrong);
  const name = wrong?.labels?.[0]?.firstChild?.textContent?.trim();
  return wrong ? `${name}: ${wrong.validationMessage}` : '';
}

/** Options for generate(). Throws SyntaxError if the schema is invalid. */
export function sampling(): GenerateOptions {
  const options: Record<string, number | string> = {};
  for (const field of fields()) {
    if (field.value !== '' && field !== schemaField())
      options[field.name] = field.type === 'number' ? Number(field.value) : field.value;
  }
  return { ...(options as GenerateOptions), ...(wantsSchema() && { jsonSchema: schema() }) };
}
