// Replaces chat-binary.ts in inline.js, which has no files beside it (see build.mjs).

import packed from 'inlined:chat.wasm';

import { unpack } from '../protocol/unpack.js';

export const chatBinary = (): Promise<ArrayBuffer> => unpack(packed);
