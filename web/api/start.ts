// Starts workers, also from scripts of other origins, and finds out why a worker did not start,
// because browsers report almost no reason. This package's script sends 'hello' as its first
// message, so that a wrong script is detected and not waited for forever.

import { moved, publicUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';
import type { WorkerEvent, WorkerFailure, WorkerPort } from '../protocol/messages.js';
import { platform } from './platform.js';

const kGreetMs = 30_000;
const kProbeMs = 5000;
const kKeepMs = 30_000;

/** A worker without a model, which has a GPU's pipelines for the next one. */
let idle: { address: string; worker: WorkerPort; end: ReturnType<typeof setTimeout> } | undefined;

/** Keeps a worker for a while, in place of another one. */
function keep(address: string, worker: WorkerPort): void {
  const drop = (): void => {
    if (idle?.worker === worker) idle = undefined;
    worker.terminate();
  };
  clearTimeout(idle?.end);
  idle?.worker.terminate();
  worker.onmessage = worker.onmessageerror = null;
  worker.onerror = drop;
  const end = setTimeout(drop, kKeepMs);
  (end as { unref?: () => void }).unref?.(); // in Node
  idle = { address, worker, end };
}

/** The kept worker of this script, if there is one. */
function reused(address: string): WorkerPort | undefined {
  if (idle?.address !== address) return undefined;
  const { worker, end } = idle;
  clearTimeout(end);
  idle = undefined;
  return worker;
}

/** The part of Trusted Types that is used here; TypeScript's DOM types lack it. */
interface ScriptPolicy {
  createScriptURL(url: string): string;
}
interface TrustedTypes {
  createPolicy(name: string, rules: ScriptPolicy): ScriptPolicy;
}

let policy: ScriptPolicy | undefined;
const blobUrls = new Map<string, string>();

/**
 * Whether the script is on another origin. A worker cannot run such a script, but can import it.
 */
export const isOther = (address: string): boolean =>
  address.startsWith('http') && new URL(address).origin !== globalThis.origin;

/**
 * A sandboxed frame has an origin of its own, "null", where only classic workers can start. Such a
 * one imports the script too, and keeps messages until it is there.
 */
const sandboxed = globalThis.origin === 'null' && globalThis.location?.origin !== 'null';

function importing(address: string): string {
  const name = JSON.stringify(address);
  const code = sandboxed
    ? `let q=[];onmessage=(e)=>q.push(e);import(${name}).then(()=>q.forEach((e)=>onmessage(e)),(e)=>setTimeout(()=>{throw e}))`
    : `import ${name};`;
  const script = new Blob([code], { type: 'text/javascript' });
  const url = blobUrls.get(address) ?? URL.createObjectURL(script);
  blobUrls.set(address, url);
  return url;
}

/**
 * Starts a worker from a script on any origin. Creates a policy if the page needs trusted types.
 */
export function workerFrom(
  address: string,
  options: WorkerOptions = { type: sandboxed ? 'classic' : 'module', name: 'sluice' },
): Worker {
  const url = isOther(address) ? importing(address) : address;
  try {
    return new Worker(url, options);
  } catch (error) {
    const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes };
    if (!trustedTypes || !(error instanceof TypeError)) throw error;
    policy ??= trustedTypes.createPolicy('sluice-llm', {
      createScriptURL: (given: string) => given,
    });
    return new Worker(policy.createScriptURL(url), options);
  }
}

/**
 * Starts the package's worker. If it does not send 'hello' within `limitMs`, its onerror receives a
 * SluiceError with the reason. `reuse`: takes one that was kept.
 */
export function startWorker(
  workerUrl: string | URL | undefined,
  limitMs = kGreetMs,
  reuse = false,
): WorkerPort {
  let worker: WorkerPort | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let blocked = false;
  let waiting = true;
  const onViolation = (event: Event): void =>
    void (blocked ||= (event as SecurityPolicyViolationEvent).effectiveDirective === 'worker-src');
  const settle = (): boolean => {
    clearTimeout(timer);
    const first = waiting;
    waiting = false;
    return first;
  };
  const fail = async (cause: WorkerFailure): Promise<void> => {
    if (!settle()) return port.onerror?.(cause);
    worker?.terminate();
    let error = cause;
    if (!(cause instanceof SluiceError)) {
      const address = platform().workerAddress(workerUrl);
      const why = await reason(cause as ErrorEvent | Error, address, () => blocked);
      error = new SluiceError(
        'WORKER_LOAD',
        `The engine's worker cannot be started from ${publicUrl(address)}: ${why}.`,
        { cause },
      );
    }
    globalThis.removeEventListener?.('securitypolicyviolation', onViolation);
    port.onerror?.(error);
  };
  const port: WorkerPort = {
    onmessage: null,
    onerror: null,
    onmessageerror: null,
    postMessage: (message, transfer) => worker?.postMessage(message, transfer),
    terminate: () => {
      settle();
      globalThis.removeEventListener?.('securitypolicyviolation', onViolation);
      worker?.terminate();
    },
  };
  globalThis.addEventListener?.('securitypolicyviolation', onViolation);
  try {
    const address = platform().workerAddress(workerUrl);
    port.keep = () => {
      settle();
      globalThis.removeEventListener?.('securitypolicyviolation', onViolation);
      keep(address, worker!);
    };
    worker = reuse ? reused(address) : undefined;
    waiting = !worker;
    worker ??= platform().startWorker(workerUrl);
    worker.onmessage = (event) => {
      if (!waiting) port.onmessage?.(event);
      else if ((event.data as Partial<WorkerEvent> | null)?.event === 'hello') settle();
      else void fail(new Error("it is not this package's worker"));
    };
    worker.onerror = (event) => {
      event?.preventDefault?.();
      void fail(event);
    };
    worker.onmessageerror = () => port.onmessageerror?.(undefined);
    const late = (): void =>
      void fail(new Error(`it sent nothing for ${limitMs / 1000} s, unlike this package's worker`));
    // In two steps: if the page was busy, messages that arrived meanwhile are delivered first.
    if (waiting) timer = setTimeout(() => (timer = setTimeout(late, limitMs / 2)), limitMs / 2);
  } catch (error) {
    void Promise.resolve().then(() => fail(error as Error));
  }
  return port;
}

/** Why the worker did not start, and what to do. */
async function reason(
  cause: ErrorEvent | Error | undefined,
  address: string,
  blocked: () => boolean,
): Promise<string> {
  const message = cause?.message || (cause as ErrorEvent | undefined)?.error?.message;
  if (/Trusted|createPolicy/.test(message))
    return (
      'trusted types forbid it; add sluice-llm to the trusted-types of the ' +
      'Content-Security-Policy'
    );
  const copy = moved(import.meta.url)
    ? "in Vite's settings add optimizeDeps: { exclude: ['sluice-llm'] }"
    : "copy the package's worker.js there, or give its address as workerUrl";
  const other = isOther(address);
  const probe = await (/^http/.test(address)
    ? fetch(address, { signal: AbortSignal.timeout(kProbeMs) }).catch((error: Error) => error)
    : new Promise<undefined>((later) => setTimeout(later))); // a violation is reported later
  if (blocked())
    return (
      'the Content-Security-Policy forbids it; allow it in ' +
      `worker-src${other || /^blob:/.test(address) ? ', with blob:' : ''}`
    );
  if (probe instanceof Error)
    return (
      `it cannot be fetched (${probe.message}); ` +
      `${other ? 'from another origin it needs Access-Control-Allow-Origin' : copy}`
    );
  if (probe) {
    const header = (name: string): string => `${probe.headers.get(name)}`;
    if (!probe.ok) return `it answered ${probe.status}; ${copy}`;
    if (!/(java|ecma)script/.test(header('content-type')))
      return `its type is ${header('content-type')}, not text/javascript; ${copy}`;
    if (
      globalThis.crossOriginIsolated &&
      !other &&
      !/r.*corp|cred/.test(header('cross-origin-embedder-policy'))
    ) {
      return (
        'the page is cross-origin isolated and the script is not; send ' +
        'Cross-Origin-Embedder-Policy with it'
      );
    }
  }
  return `${message || 'it failed at start'}; ${copy}`;
}
