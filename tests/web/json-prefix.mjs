// Whether a text can still become JSON, which an output that was cut off must.

const tails = [
  '',
  '"',
  'n"',
  '0"',
  '00"',
  '000"',
  '0000"',
  'u0000"',
  '0',
  '"":0', // a string, an escape, a number, a member
  ...['true', 'false', 'null'].flatMap((word) =>
    Array.from(word.slice(1), (_, i) => word.slice(i + 1)),
  ),
];

const parses = (text) => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

/** Tries possible continuations and closes what is open. */
export function isJsonPrefix(text) {
  const open = [];
  const bare = text.replace(/"(\\.|[^"\\])*("|\\?$)/gs, ''); // without string contents
  for (const char of bare) {
    if (char === '{') open.unshift('}');
    else if (char === '[') open.unshift(']');
    else if (char === '}' || char === ']') open.shift();
  }
  return tails.some((tail) =>
    ['', ':0'].some((value) => parses(text + tail + value + open.join(''))),
  );
}
