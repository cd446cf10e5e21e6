// URLs without their secrets, for messages and for the model cache. Messages show neither user nor
// password nor query. The cache key keeps the query, which may tell files apart, but drops
// signatures and tokens, which are secret and change with each request.

/** "user:password@": up to the last @ of the host, or further if a password hides the host. */
const kUser = /^([a-z][\w+.-]*:\/\/)(?:[^/?#]*@|(?!\[)[^/?#]*:(?!\d*(?:[/?#]|$)).*@)/is;
const kSecret =
  /^sig$|signature|token(?!iz)|secret|passw|credential|auth(?!or)|policy|expires|^x-(amz|goog)|api.?key|access.?key|key.?pair/i;

/** URL for messages: without user, password, query and fragment. */
export const publicUrl = (url: string): string => url.replace(kUser, '$1').replace(/[?#].*/s, '');

/** Text of other software's errors, which may quote a URL, with publicUrl() applied to each. */
export const withoutSecrets = (text: string): string =>
  text.replace(/[a-z][\w+.-]*:\/\/\S+/gi, publicUrl);

/** Whether the URL has a user or a password. fetch() rejects such URLs. */
export const hasUser = (url: string): boolean => kUser.test(url);

/** Key of a file in the model cache: the URL without user, fragment and secret parameters. */
export function storedUrl(url: string): string {
  const [path = '', query] = url
    .replace(kUser, '$1')
    .replace(/#.*/s, '')
    .split(/\?(.*)/s);
  const kept = query?.split('&').filter((part) => part && !kSecret.test(part.split('=', 1)[0]!));
  return kept?.length ? `${path}?${kept.join('&')}` : path;
}

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
