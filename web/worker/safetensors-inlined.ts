// The same in the worker that inline.js carries, which has no files beside it (build.mjs puts it there).

import packed from 'inlined:safetensors.wasm';

import type { Safetensors } from '../io/directory.js';
import { load } from '../io/safetensors.js';
import { unpack } from '../wire/unpack.js';

export const safetensors = (): Promise<Safetensors> => load(() => unpack(packed));
