// Values with pictures as JSON and bytes: files, buffers and pixels become numbers of parts, which
// the caller stores behind the JSON.

import { invalid, SluiceError } from '../protocol/errors.js';

const kPart = '\uFDD0part';

/** What JSON has in the place of bytes. */
type Part = { [kPart]: number; as: string; type?: string };

const kViews = { Uint8Array, Uint8ClampedArray } as const;

/** A copy of `value` that JSON can express; its bytes are appended to `parts`. */
export async function packed(value: unknown, parts: Uint8Array[]): Promise<unknown> {
  const numbers = new Map<object, Part>();
  const copy = async (value: unknown): Promise<unknown> => {
    if (typeof value !== 'object' || value === null) return value;
    const known = numbers.get(value) ?? (await part(value, parts));
    if (known) numbers.set(value, known);
    if (known || 'toJSON' in value) return known ?? value;
    if (Array.isArray(value)) {
      const list: unknown[] = [];
      for (const one of value) list.push(await copy(one));
      return list;
    }
    const entries =
      'data' in value && 'width' in value && 'height' in value
        ? Object.entries({ width: value.width, height: value.height, data: value.data })
        : Object.entries(value);
    const plain = Object.getPrototypeOf(Object.getPrototypeOf(value) ?? Object.prototype) === null;
    if (!plain && !('data' in value))
      throw new SluiceError('NOT_SUPPORTED', `${value.constructor.name} cannot be stored.`);
    const own: Record<string, unknown> = {};
    for (const [key, one] of entries) {
      if (key === kPart) invalid('A message has a key that is reserved.');
      own[key] = await copy(one);
    }
    return own;
  };
  return copy(value);
}

async function part(value: object, parts: Uint8Array[]): Promise<Part | undefined> {
  const add = (bytes: Uint8Array, as: string): Part => ({ [kPart]: parts.push(bytes) - 1, as });
  if (value instanceof Blob)
    return { ...add(new Uint8Array(await value.arrayBuffer()), 'Blob'), type: value.type };
  if (value instanceof ArrayBuffer) return add(new Uint8Array(value), 'ArrayBuffer');
  if (!ArrayBuffer.isView(value)) return undefined;
  const { buffer, byteOffset, byteLength } = value;
  const clamped = value instanceof Uint8ClampedArray;
  return add(
    new Uint8Array(buffer, byteOffset, byteLength),
    clamped ? 'Uint8ClampedArray' : 'Uint8Array',
  );
}

/** The value, with copies of the parts in their places. */
export function unpacked(value: unknown, parts: readonly Uint8Array<ArrayBuffer>[]): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((one) => unpacked(one, parts));
  if (!(kPart in value))
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [key, unpacked(one, parts)]),
    );
  const { [kPart]: number, as, type = '' } = value as Part;
  const bytes = parts[number]!.slice();
  if (as === 'Blob') return new Blob([bytes], { type });
  return as === 'ArrayBuffer' ? bytes.buffer : new kViews[as as keyof typeof kViews](bytes.buffer);
}
