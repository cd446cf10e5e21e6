// The model cache of this platform, which Engine.modelCache offers.

import { StoreManager } from '../io/store-manager.js';
import { sourceSpec } from './options.js';
import { platform } from './platform.js';

export const modelCache = new StoreManager(
  (cacheDir) => platform().storeBackend?.(cacheDir),
  (address) => {
    const spec = /^hf:/i.test(`${address}`) ? null : sourceSpec(address);
    return spec?.kind === 'url' ? spec.url : `${address}`;
  },
);
