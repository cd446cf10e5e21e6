// Browsers with WebGPU on a machine without a GPU. Chromium's SwiftShader has subgroups. Firefox on
// Mesa's lavapipe has none, and compiles WGSL with its own compiler.
import { launch } from './chromium.mjs';
import { chromiumArgs } from '../../web/scripts/lib.mjs';
import { launchFirefox, missing } from './drivers.mjs';
import { lavapipeEnvironment, noLavapipe } from './lavapipe.mjs';

/** What Firefox needs and this machine lacks, or false. */
export const noFirefoxGpu = missing.firefox || noLavapipe;

export const launchChromiumGpu = () =>
  launch({ args: [...chromiumArgs, '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] });

export const launchFirefoxGpu = (preferences = {}) =>
  launchFirefox({
    env: lavapipeEnvironment,
    preferences: {
      'dom.webgpu.enabled': true,
      'dom.webgpu.workers.enabled': true,
      'gfx.webgpu.ignore-blocklist': true,
      // Test tabs are in the background, where timers may run only once in many seconds.
      'dom.min_background_timeout_value': 4,
      'dom.timeout.enable_budget_timer_throttling': false,
      ...preferences,
    },
  });
