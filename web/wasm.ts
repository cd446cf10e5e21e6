// Getting the engine's wasm to run: choosing the binary that this engine of WebAssembly validates,
// compiling it, and making an instance whose memory can never grow past the budget.

import { createEngine, initialMemory, type ThreadPort } from './glue.js';
import { SluiceError } from './errors.js';
import type { CompiledWasm, WasmInstance } from './host.js';
import type { WasmSource } from './protocol.js';

const kPage = 65536;
const kMaxPages = 65536;

// (func (param v128 v128 v128) (result v128) (i32x4.relaxed_dot_i8x16_i7x16_add_s …))
const kRelaxedProbe = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, 3, 2, 1, 0, 0x0a,
  0x0d, 1, 0x0b, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x93, 2, 0x0b,
]);

export type Variant = 'simd128' | 'relaxed';

/** The binary for a kernel table's name; '' takes the best that runs here. */
export function variantFor(kernels: string): Variant {
  if (/relaxed/.test(kernels)) return 'relaxed';
  if (kernels !== '') return 'simd128';
  return WebAssembly.validate(kRelaxedProbe) ? 'relaxed' : 'simd128';
}

/** Compiles from what the caller gave, or else from `fetchDefault`. */
export async function compileWasm(
  source: WasmSource,
  kernels: string,
  fetchBytes: (variant: Variant, url: string | undefined) => Promise<ArrayBuffer | Response>,
): Promise<CompiledWasm> {
  const variant = variantFor(kernels);
  const simd128 = source.url ? !/relaxed/.test(source.url) : variant === 'simd128';
  try {
    if (source.module) return { module: source.module, simd128 };
    const bytes = source.binary ?? (await fetchBytes(variant, source.url));
    if (typeof Response !== 'undefined' && bytes instanceof Response) {
      return { module: await compileResponse(bytes), simd128 };
    }
    return { module: await WebAssembly.compile(bytes as ArrayBuffer), simd128 };
  } catch (cause) {
    if (cause instanceof SluiceError) throw cause;
    const message = `The engine's wasm could not be loaded: ${(cause as Error).message}`;
    throw new SluiceError('WASM_LOAD', message, { cause });
  }
}

async function compileResponse(response: Response): Promise<WebAssembly.Module> {
  if (!response.ok) {
    throw new SluiceError('WASM_LOAD', `${response.url} answered ${response.status}.`);
  }
  const type = response.headers.get('content-type') ?? '';
  if (type.startsWith('application/wasm') && WebAssembly.compileStreaming) {
    return WebAssembly.compileStreaming(response);
  }
  return WebAssembly.compile(await response.arrayBuffer());
}

/** An instance in a memory of at most `budget` bytes; throws OUT_OF_MEMORY when that is too small. */
export async function instantiateWasm(
  wasm: CompiledWasm,
  budget: number,
  poolThreads: number,
  createThread: () => ThreadPort,
): Promise<WasmInstance> {
  const initial = Math.ceil(initialMemory / kPage);
  const maximum = Math.min(kMaxPages, Math.floor(budget / kPage));
  if (maximum < initial) {
    throw new SluiceError('OUT_OF_MEMORY', `The engine itself needs ${initialMemory} bytes.`);
  }
  let memory: WebAssembly.Memory;
  try {
    memory = new WebAssembly.Memory({ initial, maximum, shared: true });
  } catch (cause) {
    const message = `The platform refuses a memory of ${maximum * kPage} bytes; set a smaller memoryBudget.`;
    throw new SluiceError('INVALID_ARGUMENT', message, { cause });
  }
  const module = await createEngine({
    wasmMemory: memory,
    wasmModule: wasm.module,
    simd128: wasm.simd128,
    threadPoolSize: poolThreads,
    createThread,
    printErr: (line) => console.error(line),
  });
  return { binding: new module.Engine(), memory };
}
