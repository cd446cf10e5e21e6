// Modules that the browser's worker fetches when they are asked for.

import { SluiceError } from '../protocol/errors.js';

/** import() as bundlers leave it alone: build.mjs puts it before the bundle. */
declare function importAsset(url: string): Promise<unknown>;

/** A module as an asset, which bundlers leave in one piece: a worker of theirs may not be split. */
export async function asset<Module>(name: string, url: URL): Promise<Module> {
  try {
    return (await importAsset(url.href)) as Module;
  } catch (cause) {
    const advice = `${(cause as Error).message}; copy the package's beside worker.js`;
    throw new SluiceError('MODULE_LOAD', `${name} cannot be loaded: ${advice}.`, { cause });
  }
}
