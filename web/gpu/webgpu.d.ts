// The npm package `webgpu` (Dawn), an optional peer dependency. Its own declarations would declare
// WebGPU a second time, beside those of TypeScript's DOM library.
declare module 'webgpu' {
  export function create(options: string[]): GPU;
  export const globals: object;
}
