// The sampling settings: read from the form, kept for the next visit.

import type { GenerateOptions } from 'sluice-llm';

import { byId, on } from './dom.js';

const kKey = 'sampling';

const fields = (): HTMLInputElement[] => [...byId('sampling').querySelectorAll('input')];

/** Puts back what was set on an earlier visit. */
export function restoreSampling(): void {
  const kept = read();
  for (const field of fields()) {
    const value = kept[field.name];
    if (typeof value === 'string') field.value = value;
  }
  on(byId('sampling'), 'change', ({ target }) => {
    const { name, value } = target as HTMLInputElement;
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

export function sampling(): GenerateOptions {
  const options: Record<string, number | string> = {};
  for (const field of fields()) {
    if (field.value !== '') options[field.name] = field.type === 'number' ? Number(field.value) : field.value;
  }
  return options as GenerateOptions;
}
