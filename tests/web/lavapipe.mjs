// Mesa's lavapipe, a Vulkan driver that computes on the CPU.
import { existsSync } from 'node:fs';

const driver =
  process.env.LAVAPIPE ??
  `/usr/share/vulkan/icd.d/lvp_icd.${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.json`;

/** What it needs and this machine lacks, or false. */
export const noLavapipe = existsSync(driver) ? false : 'no mesa-vulkan-drivers';

/** Makes it the only driver of a process. */
export const lavapipeEnvironment = { VK_ICD_FILENAMES: driver };
