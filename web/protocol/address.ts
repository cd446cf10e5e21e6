// URLs without their secrets, for messages and for the model cache. Messages show neither user nor
// password nor query. The cache key keeps the query, which may tell files apart, but drops
// signatures and tokens, which are secret and change with each request.

/** "user:password@": up to the last @ of the host, or further if a password hides the host. */
const kUser = /^([a-z][\w+.-]*:\/\/)(?:[^/?#]*@|(?!\[)[^/?#]*:(?!\d*(?:[/?#]|$)).*@)/is;
// Names of parameters in small letters, without - and _. tests/data/addresses.json has examples.
const kSecret =
  /^(sig|sign|hmac|jwt|hdn(ts|ea|tl)|q(ak|(sign|keytime|headerlist|urlparamlist).*)|x(amz|goog|oss|cos|obs|tos|xet).*|response(content|cache).*)$|signature|token(?!iz)|secret|passw|credential|auth(?!or(?!iz))|policy|expire|apikey|access(key|id)|keypair/;
/** Short names that belong to a signature only beside one of these. */
const kBeside: [RegExp, RegExp][] = [
  [
    /^(s([eiprtv]|dd|ip|pr|cid|k[estv]|k[ot]id|[au]oid)|rsc[cdelt]|exp|acl|t|xid|keyname|urlprefix)$/,
    /signature|^(sign?|hmac)$/,
  ],
  [/^md5$/, /expire|^e(xp)?$/],
  [/^e$/, /token|^(st|md5)$/],
  [/^st$/, /^e$/],
];

/** URL for messages: without user, password, query and fragment. */
export const publicUrl = (url: string): string => url.replace(kUser, '$1').replace(/[?#].*/s, '');

/** Text of other software's errors, which may quote a URL, with publicUrl() applied to each. */
export const withoutSecrets = (text: string): string =>
  text.replace(/[a-z][\w+.-]*:\/\/\S+/gi, publicUrl);

/** Whether the URL has a user or a password. fetch() rejects such URLs. */
export const hasUser = (url: string): boolean => kUser.test(url);

/** One spelling of percent-encodings: only characters that need it, with capital digits. */
const encodedOnce = (url: string): string =>
  url
    .replace(/%[\da-f]{2}/gi, (code) => {
      const char = String.fromCharCode(parseInt(code.slice(1), 16));
      return /[!$'()*,\-.\w:@~]/.test(char) ? char : code.toUpperCase();
    })
    .replace(/[^!#-;=?-\]_a-z~\p{Cs}]/gu, encodeURIComponent);

/**
 * Key of a file in the model cache: the URL without user and fragment, and without parameters that
 * do not identify the file: signatures, other secrets, and `download`.
 */
export function storedUrl(url: string): string {
  const [path = '', query = ''] = encodedOnce(url.replace(kUser, '$1').replace(/#.*/s, '')).split(
    /\?(.*)/s,
  );
  const nameOf = (part: string): string =>
    part.replace(/=.*/s, '').replace(/[-_]/g, '').toLowerCase();
  const parts = query.split('&');
  const names = parts.map(nameOf);
  const kept = parts.filter((part, i) => {
    const name = names[i]!;
    return !(
      /^(download(=(true|1)?)?)?$/i.test(part) ||
      kSecret.test(name) ||
      kBeside.some(([short, sign]) => short.test(name) && names.some((other) => sign.test(other)))
    );
  });
  return path + (kept.length ? `?${kept.join('&')}` : '');
}

/** Whether the address is its own storedUrl(), as most are. */
export const isOwnKey = (url: string): boolean => /^[\w.:/~-]*$/.test(url);

/** Last part of the path, percent-decoded if possible. */
export function fileName(url: string): string {
  const name = publicUrl(url).replace(/^.*\//s, '');
  try {
    return decodeURIComponent(name) || publicUrl(url);
  } catch {
    return name;
  }
}

const kMoved = /\/node_modules\/\.(vite|cache)\/(.*\/)?deps\w*\//;

/**
 * Whether this is a script that Vite's development server (before version 8) has moved into a
 * directory of its own, such as node_modules/.vite/deps, away from the files beside it.
 */
export const moved = (script: string | undefined): boolean => kMoved.test(script ?? '');

/** Where a file beside such a script really is; other addresses stay as they are. */
export const unmoved = (address: string): string =>
  address.replace(kMoved, '/node_modules/sluice-llm/dist/');
