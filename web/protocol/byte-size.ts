/**
 * Bytes of a text such as '64M', '1.5 GB' or '262144' (powers of 1024). NaN: not a size, or above
 * 2^53. src/base/byte_size.h is the native program's; tests/data/byte-sizes.json has cases for both.
 */
export function byteSize(text: string): number {
  const [, digits, unit = 'B'] = /^(\d+(?:\.\d+)?)(?: ?(?:([KMGT])(?:i?B)?|B))?$/i.exec(text) ?? [];
  const bytes = Math.round(Number(digits) * 1024 ** 'BKMGT'.indexOf(unit.toUpperCase()));
  return bytes <= 2 ** 53 ? bytes : NaN;
}
