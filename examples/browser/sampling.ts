// The sampling settings: read from the form, kept for the next visit.

import type { GenerateOptions } from 'sluice-llm';

import { byId } from './dom.js';

const kKey = 'sampling';

const fields = (): HTMLInputElement[] => [...byId('sampling').querySelectorAll('input')];

/** Puts back what was set on an earlier visit. */
export function restoreSampling(): void {
  try {
    const kept = JSON.parse(localStorage.getItem(kKey) ?? '{}') as Record<string, string>;
    for (const field of fields()) field.value = kept[field.name] ?? field.value;
  } catch {
    // no storage, or not ours: the defaults
  }
  byId('sampling').addEventListener('change', () => {
    const kept = Object.fromEntries(fields().map((field) => [field.name, field.value]));
    try {
      localStorage.setItem(kKey, JSON.stringify(kept));
    } catch {
      // for this visit only
    }
  });
}

export function sampling(): GenerateOptions {
  const options: Record<string, number | string> = {};
  for (const field of fields()) {
    if (field.value !== '') options[field.name] = field.type === 'number' ? Number(field.value) : field.value;
  }
  return options as GenerateOptions;
}
