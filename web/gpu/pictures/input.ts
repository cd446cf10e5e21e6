// An input of a vision encoder as the engine describes it: structs of 32-bit words in its memory, whose
// fields have the same names and order in GpuInput (src/bindings/pictures/pictures.cpp), FlatOp and
// FlatTensor (src/vision/flat_input.h). The numbers of the enumerations are those of
// src/vision/program.h.

export const enum OpKind {
  Patches,
  Matmul,
  MatmulT,
  Norm,
  Add,
  AddTable,
  AppendRow,
  Rows,
  Rope,
  Attention,
  Activation,
  Merge,
  Reshape,
  Pool,
  Scale,
  Affine,
  Clamp,
  Scalar,
  Copy,
  Constant,
  AddSinCos,
  AddMean,
  Emit,
}

export const enum NormKind {
  Layer,
  Rms,
}

export const enum Activation {
  GeluTanh,
  GeluErf,
  GeluQuick,
  Silu,
}

const kInput = [
  ...['ops', 'nOps', 'mats', 'nMats', 'vecs', 'nVecs'],
  ...['tables', 'nTables', 'patches', 'nPatches', 'rows', 'nRows', 'width'],
  ...['neighbours', 'halves'],
] as const;
/** Activations, by vision::Buf. */
export const kBuffers = 6;

const kOp = [
  ...['kind', 'in', 'in2', 'out', 'mat', 'vec', 'vec2', 'vec3'],
  ...['inRows', 'inCols', 'in2Rows', 'in2Cols', 'rows', 'cols'],
  ...['inCol', 'in2Col', 'outCol', 'n', 'groups', 'skip', 'columns'],
  ...['norm', 'act', 'add', 'gated', 'channelsFirst', 'taps', 'weighted', 'table'],
  ...['value', 'eps'],
] as const;
const kFloats = 2; // the last fields

const kTensor = ['type', 'rows', 'cols', 'rowBytes', 'file', 'offsetLow', 'offsetHigh'] as const;

type Fields<Names extends readonly string[]> = Record<Names[number], number>;
/** An operation; vision::FlatOp documents the fields. */
export type Op = Fields<typeof kOp>;
export type Tensor = Omit<Fields<typeof kTensor>, 'offsetLow' | 'offsetHigh'> & { offset: number };

export interface Input {
  ops: Op[];
  mats: Tensor[];
  vecs: Tensor[];
  /** Address and number of floats. */
  tables: [address: number, floats: number];
  patches: [address: number, floats: number];
  /** Address of the result, [nRows][width]. */
  rows: number;
  nRows: number;
  width: number;
  /** RoPE rotates neighbours, or pairs within each half of a head. */
  neighbours: boolean;
  halves: boolean;
  /** Floats of each buffer. */
  buffers: number[];
}

function structs<Names extends readonly string[]>(
  memory: WebAssembly.Memory,
  address: number,
  count: number,
  names: Names,
  floats = 0,
): Fields<Names>[] {
  const words = new Int32Array(memory.buffer, address, count * names.length);
  const values = new Float32Array(memory.buffer, address, count * names.length);
  return Array.from(
    { length: count },
    (_, i) =>
      Object.fromEntries(
        names.map((name, field) => {
          const at = i * names.length + field;
          return [name, field < names.length - floats ? words[at]! : values[at]!];
        }),
      ) as Fields<Names>,
  );
}

export function readInput(memory: WebAssembly.Memory, address: number): Input {
  const [head] = structs(memory, address, 1, kInput);
  const { ops, nOps, mats, nMats, vecs, nVecs, neighbours, halves, ...rest } = head!;
  const tensors = (at: number, n: number): Tensor[] =>
    structs(memory, at >>> 0, n, kTensor).map(({ offsetLow, offsetHigh, ...tensor }) => ({
      ...tensor,
      offset: (offsetLow >>> 0) + offsetHigh * 2 ** 32,
    }));
  return {
    ops: structs(memory, ops >>> 0, nOps, kOp, kFloats),
    mats: tensors(mats, nMats),
    vecs: tensors(vecs, nVecs),
    tables: [rest.tables >>> 0, rest.nTables],
    patches: [rest.patches >>> 0, rest.nPatches],
    rows: rest.rows >>> 0,
    nRows: rest.nRows,
    width: rest.width,
    neighbours: neighbours === 1,
    halves: halves === 1,
    buffers: [...new Uint32Array(memory.buffer, address + 4 * kInput.length, kBuffers)],
  };
}
