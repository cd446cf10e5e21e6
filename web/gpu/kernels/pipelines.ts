// Caches of pipelines by variant (compiled in advance or on first use) and of bind groups, and the
// uniform buffers whose slots hold the parameters of dispatches.
import { CodebookBuffers } from './codebooks.js';
import {
  fieldsOf,
  keyOf,
  sourceOf,
  type Bound,
  type Features,
  type Values,
  type Variant,
  writeFields,
} from './shaders.js';

export const kSlotBytes = 256; // the largest alignment of dynamic offsets that WebGPU allows
const kSlots = 512; // per uniform buffer
const kBindGroups = 4096; // cached at most

export interface Compiled {
  pipeline: GPUComputePipeline;
  bound: Bound;
  fields: ReturnType<typeof fieldsOf>;
}

export class Pipelines {
  readonly #device: GPUDevice;
  readonly features: Features;
  readonly codebooks: CodebookBuffers;
  readonly #compiled = new Map<string, Compiled>();
  readonly #compiling = new Map<string, Promise<Compiled>>();
  readonly #layouts = new Map<Bound, GPUBindGroupLayout>();
  readonly #groups = new Map<string, GPUBindGroup>();
  readonly #names = new WeakMap<GPUBuffer, number>();
  readonly #uniforms: GPUBuffer[] = [];
  readonly #words: Uint32Array<ArrayBuffer>[] = [];
  #lastName = 0;

  constructor(device: GPUDevice, features: Features) {
    this.#device = device;
    this.features = features;
    this.codebooks = new CodebookBuffers(device);
  }

  get queue(): GPUQueue {
    return this.#device.queue;
  }
  get count(): number {
    return this.#compiled.size;
  }
  get bytes(): number {
    return this.#uniforms.length * kSlots * kSlotBytes + this.codebooks.bytes;
  }

  #layout(bound: Bound): GPUBindGroupLayout {
    let layout = this.#layouts.get(bound);
    if (layout) return layout;
    const others: GPUBufferBindingType[] =
      bound === 'written'
        ? ['storage']
        : Array<GPUBufferBindingType>(bound).fill('read-only-storage');
    const entries = (
      ['uniform', 'storage', 'read-only-storage', ...others] as GPUBufferBindingType[]
    ).map((type, binding) => ({
      binding,
      visibility: 4 /* compute */,
      buffer: { type, hasDynamicOffset: binding === 0 },
    }));
    this.#layouts.set(bound, (layout = this.#device.createBindGroupLayout({ entries })));
    return layout;
  }

  #describe(variant: Variant): GPUComputePipelineDescriptor {
    const bound = variant.bound ?? 0;
    return {
      label: keyOf(variant),
      layout: this.#device.createPipelineLayout({ bindGroupLayouts: [this.#layout(bound)] }),
      compute: {
        module: this.#device.createShaderModule({
          label: variant.name,
          code: sourceOf(variant, this.features),
        }),
      },
    };
  }

  #keep(variant: Variant, pipeline: GPUComputePipeline): Compiled {
    const compiled = { pipeline, bound: variant.bound ?? 0, fields: fieldsOf(variant) };
    this.#compiled.set(keyOf(variant), compiled);
    return compiled;
  }

  get(variant: Variant): Compiled {
    return (
      this.#compiled.get(keyOf(variant)) ??
      this.#keep(variant, this.#device.createComputePipeline(this.#describe(variant)))
    );
  }

  /** Compiles what is missing, without blocking. Two calls never compile the same pipeline twice. */
  async compile(variants: Iterable<Variant>): Promise<void> {
    await Promise.all([...variants].map((variant) => this.#start(variant)));
  }

  #start(variant: Variant): Promise<Compiled> | Compiled {
    const key = keyOf(variant);
    const there = this.#compiled.get(key) ?? this.#compiling.get(key);
    if (there) return there;
    const compiling = this.#device
      .createComputePipelineAsync(this.#describe(variant))
      .then((pipeline) => this.#compiled.get(key) ?? this.#keep(variant, pipeline))
      .finally(() => this.#compiling.delete(key));
    this.#compiling.set(key, compiling);
    return compiling;
  }

  #uniform(chunk: number): GPUBuffer {
    this.#words[chunk] ??= new Uint32Array((kSlots * kSlotBytes) / 4);
    return (this.#uniforms[chunk] ??= this.#device.createBuffer({
      label: 'parameters',
      size: kSlots * kSlotBytes,
      usage: 0x40 | 0x8 /* uniform, copy destination */,
    }));
  }

  #name(buffer: GPUBuffer): number {
    let name = this.#names.get(buffer);
    if (name === undefined) this.#names.set(buffer, (name = ++this.#lastName));
    return name;
  }

  /** The bind group for a buffer of parameters and these buffers, in the order of bindings. */
  group(bound: Bound, parameters: GPUBuffer, buffers: GPUBufferBinding[]): GPUBindGroup {
    const all = [{ buffer: parameters, size: kSlotBytes }, ...buffers];
    const names = all.map(
      (b: GPUBufferBinding) => `${this.#name(b.buffer)}:${b.offset ?? 0}:${b.size ?? ''}`,
    );
    const key = `${bound} ${names.join(' ')}`;
    let group = this.#groups.get(key);
    if (group) return group;
    if (this.#groups.size >= kBindGroups) this.#groups.clear();
    group = this.#device.createBindGroup({
      layout: this.#layout(bound),
      entries: all.map((resource, binding) => ({ binding, resource })),
    });
    this.#groups.set(key, group);
    return group;
  }

  /** Records dispatch number `index` of a recording. */
  dispatch(
    pass: GPUComputePassEncoder,
    index: number,
    compiled: Compiled,
    values: Values,
    buffers: GPUBufferBinding[],
    size: readonly number[],
  ): void {
    const chunk = Math.floor(index / kSlots),
      slot = index % kSlots;
    const group = this.group(compiled.bound, this.#uniform(chunk), buffers);
    const words = this.#words[chunk]!;
    writeFields(
      compiled.fields,
      values,
      words,
      new Float32Array(words.buffer),
      (slot * kSlotBytes) / 4,
    );
    pass.setPipeline(compiled.pipeline);
    pass.setBindGroup(0, group, [slot * kSlotBytes]);
    pass.dispatchWorkgroups(size[0]!, size[1] ?? 1, size[2] ?? 1);
  }

  /** Uploads the parameters of the first `count` dispatches, for the next submit. */
  write(count: number): void {
    for (let chunk = 0; chunk * kSlots < count; ++chunk) {
      const slots = Math.min(kSlots, count - chunk * kSlots);
      this.#device.queue.writeBuffer(
        this.#uniform(chunk),
        0,
        this.#words[chunk]!,
        0,
        (slots * kSlotBytes) / 4,
      );
    }
  }

  /** Frees the buffers. Pipelines stay, for other buffers. */
  free(): void {
    for (const buffer of this.#uniforms.splice(0)) buffer.destroy();
    this.codebooks.destroy();
    this.#groups.clear();
  }
}
