// Mesa's lavapipe, a Vulkan driver that computes on the CPU. It keeps compiled shaders on disk: in a folder
// of ccache's, where every checkout and process finds them. Dawn needs a driver in between
// (gpu/lavapipe_driver.cpp), which is compiled on first use.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { cacheFolder } from '../../web/scripts/cache.mjs';
import { inRoot } from '../../web/scripts/lib.mjs';

const description =
  process.env.LAVAPIPE ??
  `/usr/share/vulkan/icd.d/lvp_icd.${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.json`;
const kept = cacheFolder();

/** What it needs and this machine lacks, or false. */
export const noLavapipe = existsSync(description) ? false : 'no mesa-vulkan-drivers';

/** The same, and what it needs to keep shaders. */
export const noKeptShaders = noLavapipe || (kept ? false : 'no ccache');

/** Makes it the only driver of a process. */
export const lavapipeEnvironment = {
  VK_ICD_FILENAMES: description,
  ...(kept && {
    MESA_SHADER_CACHE_DIR: join(dirname(kept), 'shaders'),
    MESA_SHADER_CACHE_MAX_SIZE: '256M',
  }),
};

/** The same for Dawn. */
export const dawnEnvironment = () => ({ ...lavapipeEnvironment, VK_ICD_FILENAMES: driver() });

/** The description of the driver for Dawn. */
function driver() {
  const { ICD, ...more } = JSON.parse(readFileSync(description, 'utf8'));
  const source = inRoot('tests', 'web', 'gpu', 'lavapipe_driver.cpp');
  const hash = createHash('sha256').update(readFileSync(source)).update(ICD.library_path);
  const folder = inRoot('build', 'web-tests', 'lavapipe');
  const made = join(folder, `${hash.digest('hex').slice(0, 16)}.json`);
  if (existsSync(made)) return made;
  mkdirSync(folder, { recursive: true });
  const library = join(folder, `${process.pid}.so`); // other processes may compile it now
  const options = ['-std=c++20', '-O1', '-shared', '-fPIC', `-DLAVAPIPE="${ICD.library_path}"`];
  execFileSync(process.env.CXX ?? 'c++', [...options, source, '-o', library, '-ldl']);
  const text = JSON.stringify({ ICD: { ...ICD, library_path: library }, ...more });
  writeFileSync(`${library}.json`, text);
  renameSync(`${library}.json`, made);
  return made;
}
