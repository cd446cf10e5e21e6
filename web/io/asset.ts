// Loads modules on demand in the browser's worker.

import { SluiceError } from '../protocol/errors.js';

/** import() in a form that bundlers do not rewrite. build.mjs defines it before the bundle. */
declare function importAsset(url: string): Promise<unknown>;

/** Imports a module that bundlers treat as an asset, because some cannot split a worker. */
export async function asset<Module>(name: string, url: URL): Promise<Module> {
  try {
    return (await importAsset(url.href)) as Module;
  } catch (cause) {
    const advice = `${(cause as Error).message}; copy it beside worker.js`;
    throw new SluiceError('MODULE_LOAD', `${name} cannot be loaded: ${advice}.`, { cause });
  }
}
