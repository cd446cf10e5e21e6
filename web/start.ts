// Starting a worker from wherever its script is, and, where it does not start, finding out why: browsers
// tell a page next to nothing. The right script greets as its first word, so that a wrong one, which
// would be waited for without end, is known too.

import { abortError, shownAddress, SluiceError, throwIfAborted } from './errors.js';
import type { WorkerPort } from './protocol.js';

const kGreetMs = 30_000;
const kProbeMs = 5000;

const kModule: WorkerOptions = { type: 'module', name: 'sluice' };
const blobUrls = new Map<string, string>();
let policy: { createScriptURL(url: string): string } | undefined;

/**
 * A worker from a script that `new Worker` has refused with `error`: one of another origin is imported
 * by one of this origin, and a page that demands trusted types gets one from a policy of ours.
 */
export function workerDespite(error: unknown, address: string, options = kModule): Worker {
  const { trustedTypes } = globalThis as { trustedTypes?: any };
  if (trustedTypes && error instanceof TypeError) {
    policy ??= trustedTypes.createPolicy('sluice-llm', { createScriptURL: (url: string) => url });
  }
  const start = (url: string): Worker => new Worker(policy?.createScriptURL(url) ?? url, options);
  try {
    if (policy) return start(address);
  } catch (refused) {
    error = refused;
  }
  if ((error as Error).name !== 'SecurityError' || !address.startsWith('http')) throw error;
  if (!blobUrls.has(address)) {
    const script = new Blob([`import ${JSON.stringify(address)};`], { type: 'text/javascript' });
    blobUrls.set(address, URL.createObjectURL(script));
  }
  return start(blobUrls.get(address)!);
}

/** The worker that `start` starts, once it has greeted; WORKER_LOAD says what is in the way. */
export async function greeted(start: () => WorkerPort, address: string, signal?: AbortSignal, limitMs = kGreetMs): Promise<WorkerPort> {
  throwIfAborted(signal);
  let blocked = false;
  const onViolation = (event: { effectiveDirective?: string }): void => void (blocked ||= event.effectiveDirective === 'worker-src');
  const listen = (on: boolean): void => globalThis[on ? 'addEventListener' : 'removeEventListener']?.('securitypolicyviolation', onViolation as EventListener);
  let worker: WorkerPort | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let leave = (): void => {};
  listen(true);
  try {
    await new Promise<void>((resolve, reject) => {
      signal?.addEventListener('abort', (leave = () => reject()));
      worker = start();
      worker.onerror = (event) => {
        event?.preventDefault?.();
        reject(event);
      };
      worker.onmessage = ({ data }) => (data?.event === 'hello' ? resolve() : reject(new Error("it is not this package's worker")));
      timer = setTimeout(() => reject(new Error(`it has not greeted for ${limitMs / 1000} s, as this package's worker does`)), limitMs);
    });
    return worker!;
  } catch (cause) {
    worker?.terminate();
    if (signal?.aborted) throw abortError(signal);
    if (cause instanceof SluiceError) throw cause;
    const why = await reason(cause as ErrorEvent | Error, address, () => blocked);
    throw new SluiceError('WORKER_LOAD', `The engine's worker cannot be started from ${shownAddress(address)}: ${why}.`, { cause });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', leave);
    listen(false);
    if (worker) worker.onmessage = worker.onerror = null;
  }
}

/** What is in the way, and what helps. */
async function reason(cause: ErrorEvent | Error | undefined, address: string, blocked: () => boolean): Promise<string> {
  const said = cause?.message || (cause as ErrorEvent | undefined)?.error?.message;
  if (/Trusted|createPolicy/.test(said)) return `trusted types forbid it; add sluice-llm to the trusted-types of the Content-Security-Policy`;
  const copy = "copy the package's worker.js there, or give its address as workerUrl";
  if (/^http/.test(address)) {
    const probe = await fetch(address, { signal: AbortSignal.timeout(kProbeMs) }).catch((error: Error) => error);
    if (blocked()) return `the Content-Security-Policy forbids it; allow it in worker-src${isOther(address) ? ', with blob:' : ''}`;
    if (probe instanceof Error) return `it cannot be fetched (${probe.message}); ${isOther(address) ? 'from another origin it needs Access-Control-Allow-Origin' : copy}`;
    if (!probe.ok) return `it answered ${probe.status}; ${copy}`;
    const type = probe.headers.get('content-type');
    if (!/(java|ecma)script/.test(`${type}`)) return `it comes as ${type}, not as text/javascript; ${copy}`;
    if (globalThis.crossOriginIsolated && !isOther(address) && !probe.headers.get('cross-origin-embedder-policy')) {
      return `the page is cross-origin isolated and the script is not; send Cross-Origin-Embedder-Policy with it`;
    }
  }
  return `${said || 'it failed while it began'}; ${copy}`;
}

const isOther = (address: string): boolean => new URL(address).origin !== globalThis.location?.origin;
