// Threads need cross-origin isolation, which needs two response headers. If the host does not set
// them, as most static hosts, this script registers a service worker that adds them, and reloads
// the page once, unless the user has already used it. Without them the page works on one thread.
if (typeof document === 'undefined') {
  self.addEventListener('install', () => self.skipWaiting());
  self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
  self.addEventListener('fetch', (event) => {
    const { request } = event;
    const own = new URL(request.url).origin === self.location.origin;
    // Range requests and other origins pass unchanged: only the page's own files need the headers.
    if (!own || request.headers.has('range') || request.cache === 'only-if-cached') return;
    event.respondWith(
      fetch(request).then((response) => {
        if (response.status !== 200) return response;
        const headers = new Headers(response.headers);
        headers.set('Cross-Origin-Opener-Policy', 'same-origin');
        headers.set('Cross-Origin-Embedder-Policy', 'require-corp');
        headers.set('Cross-Origin-Resource-Policy', 'same-origin');
        return new Response(response.body, {
          status: 200,
          statusText: response.statusText,
          headers,
        });
      }),
    );
  });
} else if (!window.crossOriginIsolated && window.isSecureContext && navigator.serviceWorker) {
  const tried = 'sluice-isolation-tried';
  let begun = false; // the page is in use: threads are available on the next visit
  for (const type of ['click', 'keydown', 'input', 'drop']) {
    addEventListener(type, () => (begun = true), { capture: true, once: true });
  }
  navigator.serviceWorker
    .register('isolate.js')
    .then(() => navigator.serviceWorker.ready)
    .then(() => {
      if (begun || sessionStorage.getItem(tried)) return;
      sessionStorage.setItem(tried, '1');
      location.reload();
    })
    .catch(() => {}); // without service worker or storage there are no threads
}
