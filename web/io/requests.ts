// fetch() with the caller's headers and token. Each goes to the host that it is for and to no other,
// also after a redirect. Loaded only if there are any.

import type { RequestSpec } from '../protocol/messages.js';

const kRedirect = new Set([301, 302, 303, 307, 308]);
const kMaxRedirects = 20;

// Browsers do not show where a redirect leads. There, fetch() itself keeps Authorization from
// another host, and no other header.
const showsRedirects = Boolean(
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node,
);

/** A fetch() for addresses, which sends what `spec` says to the hosts that it names. */
export function fetchWith(
  { headers, origins, token, hub }: RequestSpec,
  send: typeof fetch = globalThis.fetch.bind(globalThis),
): typeof fetch {
  const headersTo = (url: string, given: HeadersInit | undefined): Headers => {
    const { origin } = new URL(url);
    const all = new Headers(origins.includes(origin) ? headers : []);
    if (token && origin === hub && !all.has('Authorization'))
      all.set('Authorization', `Bearer ${token}`);
    new Headers(given).forEach((value, name) => all.set(name, value));
    return all;
  };
  return async (input, init) => {
    let url = input instanceof Request ? input.url : String(input);
    if (!showsRedirects) return send(url, { ...init, headers: headersTo(url, init?.headers) });
    for (let hops = 0; hops <= kMaxRedirects; hops++) {
      const response = await send(url, {
        ...init,
        headers: headersTo(url, init?.headers),
        redirect: 'manual',
      });
      const location = kRedirect.has(response.status) && response.headers.get('location');
      if (!location)
        return hops ? Object.defineProperty(response, 'redirected', { value: true }) : response;
      void response.body?.cancel();
      url = new URL(location, url).href;
    }
    throw new TypeError('redirect count exceeded');
  };
}
