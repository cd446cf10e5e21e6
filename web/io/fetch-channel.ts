// The caller's own fetch(), for the workers: a function cannot be posted to another thread, so the
// caller's thread serves requests on a BroadcastChannel with a secret name. Each chunk of a body is
// sent when the worker asks for it, so that a slow reader holds nothing up.

import {
  abortError,
  deserializeError,
  serializeError,
  type PlainError,
} from '../protocol/errors.js';

/** From a worker: starts request `id`, asks for its next chunk, or ends it. */
type Ask = { id: string } & (
  | { url: string; headers: [string, string][]; cache?: RequestCache; redirect?: RequestRedirect }
  | { next: true }
  | { end: true }
);

interface Head {
  status: number;
  statusText: string;
  headers: [string, string][];
  redirected: boolean;
  type: ResponseType;
}

/** To the worker that asked. `chunk` null: the end. */
type Reply = { to: string } & (
  { head: Head } | { chunk: Uint8Array<ArrayBuffer> | null } | { error: PlainError }
);

const kNoBody = new Set([101, 204, 205, 304]);

/** Serves `own` under this name, until the returned function is called. */
export function serveFetch(name: string, own: typeof fetch): () => void {
  const channel = new BroadcastChannel(name);
  (channel as { unref?: () => void }).unref?.(); // Node: an idle engine lets the process end
  type Served = {
    control: AbortController;
    body?: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>;
  };
  const open = new Map<string, Served>();
  const begin = async (
    ask: Extract<Ask, { url: string }>,
    control: AbortController,
  ): Promise<Reply> => {
    const served: Served = { control };
    open.set(ask.id, served);
    const { url, headers, cache, redirect } = ask;
    const init = { headers: new Headers(headers), signal: control.signal, cache, redirect };
    const response = await own(url, init as RequestInit);
    if (response.body) served.body = response.body.getReader();
    const { status, statusText, redirected, type } = response;
    return {
      to: ask.id,
      head: { status, statusText, redirected, type, headers: [...response.headers] },
    };
  };
  channel.onmessage = async ({ data: ask }: MessageEvent<Ask>) => {
    const { id } = ask;
    if (!id) return;
    try {
      if ('end' in ask) {
        open.get(id)?.control.abort();
        open.delete(id);
      } else if ('next' in ask) {
        const { done, value } = (await open.get(id)?.body?.read()) ?? { done: true };
        if (done) open.delete(id);
        channel.postMessage({ to: id, chunk: done ? null : value } as Reply);
      } else channel.postMessage(await begin(ask, new AbortController()));
    } catch (error) {
      open.delete(id);
      channel.postMessage({ to: id, error: serializeError(error) } satisfies Reply);
    }
  };
  return () => {
    for (const { control } of open.values()) control.abort();
    channel.close();
  };
}

/** The fetch() that the caller's thread serves under this name. */
export function channelFetch(name: string): typeof fetch {
  const channel = new BroadcastChannel(name);
  const waiting = new Map<
    string,
    { resolve: (reply: Reply) => void; reject: (error: unknown) => void }
  >();
  const own = Math.random().toString(36);
  let count = 0;
  channel.onmessage = ({ data: reply }: MessageEvent<Reply>) => {
    const asked = waiting.get(reply.to);
    waiting.delete(reply.to);
    if (!asked) return;
    // A TypeError, as fetch() has it, is an attempt that may be repeated.
    if ('error' in reply)
      asked.reject(
        new TypeError(reply.error.message, { cause: deserializeError(reply.error).cause }),
      );
    else asked.resolve(reply);
  };
  const ask = (message: Ask): Promise<Reply> =>
    new Promise((resolve, reject) => {
      waiting.set(message.id, { resolve, reject });
      channel.postMessage(message);
    });
  return async (input, init) => {
    const id = `${own}-${count++}`;
    const { signal, cache, redirect } = init ?? {};
    let stream: ReadableStreamDefaultController | undefined;
    const stop = (): void => {
      channel.postMessage({ id, end: true } satisfies Ask);
      waiting.get(id)?.reject(abortError(signal!));
      waiting.delete(id);
      stream?.error(abortError(signal!));
    };
    if (signal?.aborted) throw abortError(signal);
    signal?.addEventListener('abort', stop, { once: true });
    const over = (): void => signal?.removeEventListener('abort', stop);
    const headers = [...new Headers(init?.headers)];
    const reply = await ask({ id, url: String(input), headers, cache, redirect } as Ask);
    const { head } = reply as { head: Head };
    const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
      {
        start: (controller) => void (stream = controller),
        async pull(controller) {
          const { chunk } = (await ask({ id, next: true })) as {
            chunk: Uint8Array<ArrayBuffer> | null;
          };
          if (chunk) return controller.enqueue(chunk);
          over();
          controller.close();
        },
        cancel: () => {
          over();
          channel.postMessage({ id, end: true } satisfies Ask);
        },
      },
      { highWaterMark: 0 },
    );
    const { redirected, type } = head;
    const response = new Response(kNoBody.has(head.status) ? null : body, head);
    return Object.defineProperties(response, {
      redirected: { value: redirected },
      type: { value: type },
    });
  };
}
