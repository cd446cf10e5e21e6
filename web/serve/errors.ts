// Converts any error to one with an HTTP status. chat-server.wasm writes its document.

import type { DescribedError } from '../chat/exchange.js';
import { isAbort, SluiceError } from '../protocol/errors.js';

/**
 * Error codes of the servers, in addition to the engine's, each with its status. The native server
 * has the same codes. docs/errors.md is generated from these comments.
 */
export type ServerCode =
  /** 400: The request is not valid HTTP, or its body broke off. Fix: check the client. */
  | 'bad_request'
  /** 400: The prompt or the conversation does not fit the context. Fix: shorten it. */
  | 'context_length_exceeded'
  /** 401: The API key is missing or wrong. Fix: send `Authorization: Bearer KEY`. */
  | 'invalid_api_key'
  /** 403: Pages of this origin must not use the server. Fix: start it with `--cors-origin`. */
  | 'origin_not_allowed'
  /** 404: There is nothing at this path. Fix: use one of the endpoints in docs/cli.md. */
  | 'unknown_url'
  /** 404: The server has no model of this name. Fix: take the name from `/v1/models`. */
  | 'model_not_found'
  /** 405: This path does not support the method. Fix: see the `Allow` header. */
  | 'method_not_allowed'
  /** 408 or 503: The request did not arrive in time, or took too long. Fix: raise `--timeout`. */
  | 'timeout'
  /** 413, 414 or 431: Body, address or headers are too long. Fix: raise `--max-body-size`. */
  | 'request_too_large'
  /** 415: The body is compressed or multipart. Fix: send plain JSON. */
  | 'unsupported_media_type'
  /** 429: The queue is full. Fix: try again after the seconds in `Retry-After`. */
  | 'rate_limit_exceeded'
  /** 503: Too many connections are open. Fix: close idle ones, and try again. */
  | 'too_many_connections'
  /** 503: The server is shutting down or overloaded. Fix: try again later. */
  | 'unavailable'
  /** 500: The server failed at this request. Fix: report it, with the request. */
  | 'internal';

/** An error with an HTTP status and a code. Status 0: that of the engine's error with this code. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly code: ServerCode | (string & {}),
    message: string,
    readonly more: { param?: string; headers?: Record<string, string> } = {},
  ) {
    super(message);
  }
}

/** An error of the engine has no status: chat-server.wasm knows which codes blame the request. */
export function httpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (isAbort(error)) return new HttpError(503, 'unavailable', 'The server aborted this request.');
  const { message, status = 0, param } = error as Error & Partial<DescribedError>;
  const code = error instanceof SluiceError ? error.code : 'INTERNAL';
  return new HttpError(status, code, message, { ...(param && { param }) });
}
