// Copies what callers pass, at the call: they may change their own objects while a call waits.
// Every public method that reads its arguments after it has returned takes such a copy first.

import { schemaOf } from './schema.js';

/**
 * A deep copy of plain objects, arrays, typed arrays and buffers. URLs become strings, and schema
 * objects of libraries become their JSON schemas. Everything else is passed on: functions, signals,
 * Blobs, handles and other class instances.
 */
export function snapshot<T>(given: T): T {
  const seen = new Map<unknown, unknown>(); // an object may contain itself
  const copy = (one: unknown): unknown => {
    const value = schemaOf(one) as Record<string, unknown>;
    if (typeof value !== 'object' || !value) return value;
    if (seen.has(value)) return seen.get(value);
    if (value instanceof URL) return value.href;
    if (value instanceof ArrayBuffer) return value.slice(0);
    // Buffer.slice() would share the memory.
    if (ArrayBuffer.isView(value)) return Uint8Array.prototype.slice.call(value);
    const list = Array.isArray(value);
    if (!list && Object.getPrototypeOf(Object.getPrototypeOf(value) ?? Object.prototype))
      return value;
    // A spread also keeps a key named __proto__.
    const own = (list ? [...value] : { ...value }) as typeof value;
    seen.set(value, own);
    for (const key of Object.keys(own)) own[key] = copy(own[key]);
    return own;
  };
  return copy(given) as T;
}
