// Addresses as people and the store may see them. A message shows neither user, password nor query;
// the store knows a file by all that tells it apart, but not by a signature, which would be another
// one tomorrow and is a secret besides.

/**
 * Any "user:password@": up to the last @ of the host, or further where a password hides the host.
 */
const kUser = /^([a-z][\w+.-]*:\/\/)(?:[^/?#]*@|(?!\[)[^/?#]*:(?!\d*(?:[/?#]|$)).*@)/is;
const kSecret =
  /^sig$|signature|token(?!iz)|secret|passw|credential|auth(?!or)|policy|expires|^x-(amz|goog)|api.?key|access.?key|key.?pair/i;

/** For messages. */
export const publicUrl = (url: string): string => url.replace(kUser, '$1').replace(/[?#].*/s, '');

/** For messages of others, which may quote an address. */
export const withoutSecrets = (text: string): string =>
  text.replace(/[a-z][\w+.-]*:\/\/\S+/gi, publicUrl);

/** Fetch refuses addresses with a user or a password. */
export const hasUser = (url: string): boolean => kUser.test(url);

/** What the store knows a file by. */
export function storedUrl(url: string): string {
  const [path = '', query] = url
    .replace(kUser, '$1')
    .replace(/#.*/s, '')
    .split(/\?(.*)/s);
  const kept = query?.split('&').filter((part) => part && !kSecret.test(part.split('=', 1)[0]!));
  return kept?.length ? `${path}?${kept.join('&')}` : path;
}

/** The last part of the path, readable where it is readable. */
export function fileName(url: string): string {
  const name = publicUrl(url).replace(/^.*\//s, '');
  try {
    return decodeURIComponent(name) || publicUrl(url);
  } catch {
    return name;
  }
}
