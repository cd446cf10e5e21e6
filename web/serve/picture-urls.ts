// Fetches pictures that requests name by http(s) URLs, by the rules of the native server
// (src/io/guarded_fetch.h). Whoever sends a request must not reach through the server what only the
// server can: each connection is judged by the address that it is made to, of redirects too.

import { lookup } from 'node:dns';
import * as http from 'node:http';
import * as https from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';

import { publicUrl } from '../protocol/address.js';
import { SluiceError } from '../protocol/errors.js';

const kMaxBytes = 16 << 20;
const kTimeoutMs = 20_000; // for the whole of it
const kMaxRedirects = 3;

/** What is not public, as in src/io/public_address.cpp. */
const kNotPublic4: [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
];
const kGlobal6: [string, number][] = [['2000::', 3]];
/** Of the global ones. */
const kNotPublic6: [string, number][] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

function listOf(ranges: [string, number][], family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList();
  for (const [address, bits] of ranges) list.addSubnet(address, bits, family);
  return list;
}
const notPublic4 = listOf(kNotPublic4, 'ipv4');
const global6 = listOf(kGlobal6, 'ipv6');
const notPublic6 = listOf(kNotPublic6, 'ipv6');

/** Whether an address is one of the public internet. False for IPv6 that stands for IPv4. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !notPublic4.check(address, 'ipv4');
  const [plain = ''] = address.split('%'); // without a zone
  return isIP(plain) === 6 && global6.check(plain, 'ipv6') && !notPublic6.check(plain, 'ipv6');
}

/** Limits of a fetch. `allows`: whether a connection to an address may be made. */
export interface PictureLimits {
  allows: (address: string) => boolean;
  maxBytes?: number;
  timeoutMs?: number;
}

/**
 * A picture's file. Errors: INVALID_ARGUMENT (not http or https, an address that is not allowed, too
 * large), HTTP_STATUS, NETWORK.
 */
export async function fetchPicture(url: string, limits: PictureLimits): Promise<Uint8Array> {
  const { allows, maxBytes = kMaxBytes, timeoutMs = kTimeoutMs } = limits;
  const name = publicUrl(url).slice(0, 200);
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    let target = url;
    for (let redirects = 0; redirects <= kMaxRedirects; redirects++) {
      const response = await request(target, name, allows, signal);
      const { statusCode = 0, headers } = response;
      if (![301, 302, 303, 307, 308].includes(statusCode) || !headers.location) {
        if (statusCode !== 200) {
          response.destroy();
          throw new SluiceError('HTTP_STATUS', `${name}: HTTP status ${statusCode}`);
        }
        return await bytesOf(response, name, maxBytes);
      }
      response.destroy();
      target = new URL(headers.location, target).href;
    }
    throw new SluiceError('NETWORK', `${name}: too many redirects`);
  } catch (error) {
    if (error instanceof SluiceError) throw error;
    const why = signal.aborted ? 'it takes too long' : (error as Error).message;
    throw new SluiceError('NETWORK', `${name}: ${why}`);
  }
}

function request(
  url: string,
  name: string,
  allows: (address: string) => boolean,
  signal: AbortSignal,
): Promise<http.IncomingMessage> {
  const refuse = (message: string): never => {
    throw new SluiceError('INVALID_ARGUMENT', `${name}${message}`);
  };
  const elsewhere = ' leads to an address that is not public';
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed?.protocol !== 'http:' && parsed?.protocol !== 'https:')
    return refuse(': only http and https addresses are supported');
  const host = parsed.hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) && !allows(host)) return refuse(elsewhere);
  // Only addresses are looked up that a connection may then be made to.
  const guarded: LookupFunction = (hostname, options, done) =>
    lookup(hostname, { ...options, all: true }, (error, found) => {
      const allowed = error ? [] : found.filter(({ address }) => allows(address));
      const [first] = allowed;
      if (error) done(error, []);
      else if (!first) done(new SluiceError('INVALID_ARGUMENT', `${name}${elsewhere}`), []);
      else if (options.all) done(null, allowed);
      else done(null, first.address, first.family);
    });
  const { get } = parsed.protocol === 'https:' ? https : http;
  parsed.username = parsed.password = '';
  return new Promise((resolve, reject) => {
    // A connection of its own: none is reused that another lookup has led to.
    const options = { agent: false, lookup: guarded, signal, headers: { 'user-agent': 'sluice' } };
    get(parsed, options, resolve).on('error', reject);
  });
}

async function bytesOf(
  response: http.IncomingMessage,
  name: string,
  maxBytes: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = Number(response.headers['content-length'] ?? 0);
  const check = (): void => {
    if (length > maxBytes)
      throw new SluiceError('INVALID_ARGUMENT', `${name} has more than ${maxBytes} bytes`);
  };
  try {
    check();
    length = 0;
    for await (const part of response as AsyncIterable<Uint8Array>) {
      length += part.length;
      check();
      parts.push(part);
    }
  } finally {
    response.destroy();
  }
  return new Uint8Array(Buffer.concat(parts));
}
