// Replaces modules.ts in the worker of inline.js, which has no files beside it (see build.mjs).

import packed from 'inlined:safetensors.wasm';

import type { GpuModule } from '../gpu/gpu.js';
import type { Safetensors } from '../io/directory.js';
import * as hosts from '../io/hosts.js';
import * as qsf from '../io/qsf.js';
import { load } from '../io/safetensors.js';
import { SluiceError } from '../protocol/errors.js';
import * as pictures from './pictures/page.js';
import { unpack } from '../protocol/unpack.js';

const kNoPart =
  "sluice-llm/inline does not support GPUs: load with device 'wasm', or import " + "'sluice-llm'.";
const noGpus: GpuModule = {
  advise: async () => ({ prefill: 'wasm', decode: 'wasm', gpuMinBatch: Infinity, reason: kNoPart }),
  async findGpu({ device }) {
    if (device === 'auto') return null;
    throw new SluiceError('NOT_SUPPORTED', kNoPart);
  },
};

export const modules = {
  gpu: () => Promise.resolve(noGpus),
  qsf: () => Promise.resolve(qsf),
  hosts: () => Promise.resolve(hosts),
  pictures: () => Promise.resolve(pictures),
  safetensors: (): Promise<Safetensors> => load(() => unpack(packed)),
};
