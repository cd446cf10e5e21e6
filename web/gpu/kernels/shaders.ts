// A shader is texts of kernels/wgsl behind constants: what differs between variants is constants,
// replaced words, and the parts that are pasted. Its struct Params is read here once more, so that
// parameters are passed by name.
import numbers from '../../../kernels/wgsl/numbers.wgsl';
import memory from '../../../kernels/wgsl/memory.wgsl';
import sum from '../../../kernels/wgsl/sum.wgsl';
import sumSubgroups from '../../../kernels/wgsl/sum_subgroups.wgsl';
import functions from '../../../kernels/wgsl/functions.wgsl';

export interface Features {
  subgroups: boolean;
  /** Halves are a type of numbers. */
  f16: boolean;
  /** Products of four bytes with four are one instruction. */
  dots: boolean;
}

/** What is bound at 3 and up: so many read-only buffers, or one that is written. */
export type Bound = 0 | 1 | 2 | 3 | 4 | 'written';

export interface Variant {
  name: string;
  texts: string[];
  constants?: Record<string, number | boolean>; // numbers are u32
  words?: Record<string, string>; // replaced in the texts
  bound?: Bound;
  sums?: boolean; // over a workgroup: constants WG and SUMS
  f16?: boolean;
  dots?: boolean; // what it needs of Features
}

/** Two variants with one key are the same shader. */
export const keyOf = (v: Variant) =>
  `${v.name} ${JSON.stringify(v.constants ?? {})} ${JSON.stringify(v.words ?? {})}`;

export const kBinding = 3;

/**
 * The text once for each binding, whose number replaces `$`; only its marked parts where it has
 * marks.
 */
export function pasted(text: string, bindings: number): string {
  const once = (part: string) =>
    Array.from({ length: bindings }, (_, i) =>
      part.replaceAll('WEIGHTS$', String(kBinding + i)).replaceAll('$', String(i)),
    ).join('');
  if (!text.includes('//@ each binding')) return once(text);
  return text.replace(/\/\/@ each binding([^]*?)\/\/@ once/g, (_, part: string) => once(part));
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
  let text = [...parts, ...v.texts].join('\n');
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

/** The fields of a text's struct Params, with their places in words. */
export function fieldsOf(texts: string[]): Field[] {
  const body =
    /struct Params\s*\{([^}]*)\}/.exec(
      texts.map((t) => t.replace(/\/\/.*/g, '')).join('\n'),
    )?.[1] ?? '';
  let end = 0;
  return [...body.matchAll(/(\w+)\s*:\s*(\w+)/g)].map(([, name, type]) => {
    const lanes = type!.startsWith('vec4') ? 4 : 1;
    const at = Math.ceil(end / lanes) * lanes;
    end = at + lanes;
    return { name: name!, at, lanes, float: type === 'f32' || type === 'vec4f' };
  });
}

/** Writes every field to `words` and `floats`, two views of the same bytes, from word `at` on. */
export function writeFields(
  fields: Field[],
  values: Values,
  words: Uint32Array,
  floats: Float32Array,
  at: number,
): void {
  for (const field of fields) {
    const value = values[field.name];
    if (value === undefined) throw new Error(`no value of ${field.name}`);
    for (let i = 0; i < field.lanes; ++i) {
      const x = typeof value === 'number' ? value : (value[i] ?? 0);
      if (field.float) floats[at + field.at + i] = x;
      else words[at + field.at + i] = x;
    }
  }
}
