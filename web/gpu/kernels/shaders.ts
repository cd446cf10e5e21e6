// Assembles shaders from constants and texts of kernels/wgsl. Variants differ in constants,
// replaced words, and parts repeated per binding. Struct Params of a shader is parsed here, so that
// parameters can be passed by name.
import numbers from '../../../kernels/wgsl/numbers.wgsl';
import memory from '../../../kernels/wgsl/memory.wgsl';
import sum from '../../../kernels/wgsl/sum.wgsl';
import sumSubgroups from '../../../kernels/wgsl/sum_subgroups.wgsl';
import functions from '../../../kernels/wgsl/functions.wgsl';

export interface Features {
  subgroups: boolean;
  /** shader-f16: halves are a native type. */
  f16: boolean;
  /** packed_4x8_integer_dot_product: dot products of four bytes. */
  dots: boolean;
}

/** Bindings from 3 on: a number of read-only buffers, or one buffer that is written. */
export type Bound = 0 | 1 | 2 | 3 | 4 | 5 | 'written';

export interface Variant {
  name: string;
  /** A function if they take work to put together, which only a compilation needs. */
  texts: string[] | (() => string[]);
  constants?: Record<string, number | boolean>; // numbers are u32
  words?: Record<string, string>; // replaced in the texts
  bound?: Bound;
  sums?: boolean; // uses sums over a workgroup: constants WG and SUMS
  f16?: boolean; // requires these features
  dots?: boolean;
}

export const textsOf = ({ texts }: Variant): string[] =>
  typeof texts === 'function' ? texts() : texts;

/** Variants with equal keys are the same shader. */
export const keyOf = (v: Variant) =>
  `${v.name} ${JSON.stringify(v.constants ?? {})} ${JSON.stringify(v.words ?? {})}`;

export const kBinding = 3;

/** Repeats the text per binding and replaces `$` by its number; only marked parts, if any are. */
export function pasted(text: string, bindings: readonly number[]): string {
  const once = (part: string) =>
    bindings
      .map((i) => part.replaceAll('WEIGHTS$', String(kBinding + i)).replaceAll('$', String(i)))
      .join('');
  if (!text.includes('//@ each binding')) return once(text);
  return text.replace(/\/\/@ each binding([^]*?)\/\/@ once/g, (_, part: string) => once(part));
}

/**
 * Gives what a text declares, and `others`, names of their own, so that one shader can have texts of
 * several quantization types. Names with `$` are different already.
 */
export function renamed(text: string, kind: number, others: readonly string[]): string {
  const declared = [...text.matchAll(/^(?:const|fn|alias|struct) (\w+)(?![\w$])/gm)];
  return [...declared.map(([, name]) => name!), ...others].reduce(
    (all, name) => all.replace(new RegExp(`\\b${name}\\b(?!\\$)`, 'g'), `${name}_${kind}`),
    text,
  );
}

export function sourceOf(v: Variant, features: Features): string {
  const parts = [];
  if (v.sums && features.subgroups) parts.push('enable subgroups;\n');
  if (v.f16) parts.push('enable f16;\n');
  if (v.dots) parts.push('requires packed_4x8_integer_dot_product;\n');
  for (const [name, value] of Object.entries(v.constants ?? {})) {
    parts.push(`const ${name} = ${typeof value === 'number' ? `${value}u` : value};\n`);
  }
  parts.push(numbers, memory, functions);
  if (v.sums) parts.push(features.subgroups ? sumSubgroups : sum);
  let text = [...parts, ...textsOf(v)].join('\n');
  for (const [word, by] of Object.entries(v.words ?? {}))
    text = text.replace(new RegExp(`\\b${word}\\b`, 'g'), by);
  return text;
}

export type Values = Record<string, number | readonly number[]>;

interface Field {
  name: string;
  at: number;
  lanes: number;
  float: boolean;
}

/** The fields of struct Params, with their offsets in words. */
export function fieldsOf(variant: Variant): Field[] {
  const body =
    /struct Params\s*\{([^}]*)\}/.exec(
      textsOf(variant)
        .map((t) => t.replace(/\/\/.*/g, ''))
        .join('\n'),
    )?.[1] ?? '';
  let end = 0;
  return [...body.matchAll(/(\w+)\s*:\s*(\w+)/g)].map(([, name, type]) => {
    const lanes = type!.startsWith('vec4') ? 4 : 1;
    const at = Math.ceil(end / lanes) * lanes;
    end = at + lanes;
    return { name: name!, at, lanes, float: type === 'f32' || type === 'vec4f' };
  });
}

/** Writes all fields from word `at` on. `words` and `floats` are views of the same bytes. */
export function writeFields(
  fields: Field[],
  values: Values,
  words: Uint32Array,
  floats: Float32Array,
  at: number,
): void {
  for (const field of fields) {
    const value = values[field.name];
    if (value === undefined) throw new Error(`parameter ${field.name} is missing`);
    for (let i = 0; i < field.lanes; ++i) {
      const x = typeof value === 'number' ? value : (value[i] ?? 0);
      if (field.float) floats[at + field.at + i] = x;
      else words[at + field.at + i] = x;
    }
  }
}
