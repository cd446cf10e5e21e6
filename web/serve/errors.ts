// What clients are told when something is wrong: OpenAI's error object with a status, of whatever went wrong.

import { isAbort, SluiceError } from '../protocol/errors.js';

/** An answer that is an error. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly more: { param?: string; headers?: Record<string, string> } = {},
  ) {
    super(message);
  }
}

const kTypes: Record<number, string> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

/** {"error": {…}} */
export function errorBody({ status, code, message, more }: HttpError): string {
  const type = kTypes[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error');
  return JSON.stringify({ error: { message, type, param: more.param ?? null, code } });
}

/** Those that say that the request is wrong, not the server. */
const kRequest = [
  'INVALID_ARGUMENT',
  'PROMPT_EMPTY',
  'GRAMMAR_SYNTAX',
  'GRAMMAR_LEFT_RECURSION',
  'GRAMMAR_TOO_LARGE',
  'SCHEMA_UNSUPPORTED',
  'TEMPLATE',
];

export function httpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (isAbort(error)) return new HttpError(503, 'unavailable', 'The server ended this answer.');
  const { message } = error as Error;
  const code = error instanceof SluiceError ? error.code : 'INTERNAL';
  if (code === 'PROMPT_TOO_LONG' || code === 'CONTEXT_FULL')
    return new HttpError(400, 'context_length_exceeded', message);
  return new HttpError(kRequest.includes(code) ? 400 : 500, code, message);
}
