// Finds the Vulkan driver of a machine that has the libraries of a GPU but not the files that the
// Vulkan loader looks for, as in containers, and gives Dawn its options.
import { existsSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const kDescriptions = [
  '/etc/vulkan/icd.d',
  '/usr/share/vulkan/icd.d',
  '/usr/local/share/vulkan/icd.d',
];
const kLibraries = ['/usr/lib/x86_64-linux-gnu', '/lib/x86_64-linux-gnu', '/usr/lib64', '/usr/lib'];
/** The first needs X11's libraries, the second does not. */
const kNvidia = ['libGLX_nvidia.so.0', 'libEGL_nvidia.so.0'];

const described = () =>
  process.env.VK_ICD_FILENAMES ||
  process.env.VK_DRIVER_FILES ||
  kDescriptions.some((folder) => existsSync(folder) && readdirSync(folder).length > 0);

/** Call before Dawn is loaded: it reads the environment of the process. */
export function findDriver() {
  if (described()) return;
  const found = kNvidia.filter((name) =>
    kLibraries.some((folder) => existsSync(join(folder, name))),
  );
  if (!found.length) return;
  const folder = mkdtempSync(join(tmpdir(), 'sluice-vulkan-'));
  const files = found.map((name) => {
    const file = join(folder, `${name}.json`);
    const ICD = { library_path: name, api_version: '1.3.0' };
    writeFileSync(file, JSON.stringify({ file_format_version: '1.0.0', ICD }));
    return file;
  });
  process.env.VK_ICD_FILENAMES = files.join(':');
}

/** Options of Dawn, from SLUICE_DAWN, where the package's worker reads them too. */
export const dawnOptions = () => (process.env.SLUICE_DAWN ?? '').split(';').filter(Boolean);

/** Timestamps in steps of nanoseconds; browsers round them to 0.1 ms. */
export function exactTimestamps() {
  const option = 'disable-dawn-features=timestamp_quantization';
  if (!dawnOptions().includes(option))
    process.env.SLUICE_DAWN = [...dawnOptions(), option].join(';');
}

/** Whether an adapter is implemented in software. */
export const isSoftware = ({ isFallbackAdapter, device, description }) =>
  isFallbackAdapter || /swiftshader|llvmpipe/i.test(`${device} ${description}`);

/** Defines navigator.gpu in this process. Resolves to a function that ends it. */
export async function openDawn() {
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  const navigator = { gpu: create(dawnOptions()) };
  Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
  return () => {
    navigator.gpu = null; // Dawn would keep the process alive
    delete globalThis.navigator;
    if (before) Object.defineProperty(globalThis, 'navigator', before);
  };
}
