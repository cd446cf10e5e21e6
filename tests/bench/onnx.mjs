// Writes a BERT encoder as an ONNX file with the operators that exporters use, as the baseline for
// onnxruntime (the engine of transformers.js). Format:
// https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. `quantized`: int8 matrix multiplication
// as in onnxruntime's dynamic quantization (DynamicQuantizeLinear, MatMulInteger), one scale per
// matrix.

// --- protocol buffers: field number and wire type, then the value --------------------------------

function varint(value) {
  const out = [];
  for (let v = BigInt.asUintN(64, BigInt(value)); ; v >>= 7n) {
    if (v < 128n) return Buffer.from([...out, Number(v)]);
    out.push(Number(v & 127n) | 128);
  }
}
const whole = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const real = (field, value) => {
  const out = Buffer.alloc(4);
  out.writeFloatLE(value);
  return Buffer.concat([varint(field * 8 + 5), out]);
};
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);
const text = (field, value) => bytes(field, Buffer.from(value));
const message = (field, ...parts) => bytes(field, Buffer.concat(parts));

const kinds = { Float32Array: 1, Uint8Array: 2, Int8Array: 3, BigInt64Array: 7 };

function tensor(field, name, dims, data) {
  return message(
    field,
    ...dims.map((d) => whole(1, d)),
    whole(2, kinds[data.constructor.name]),
    text(8, name),
    bytes(9, Buffer.from(data.buffer, data.byteOffset, data.byteLength)),
  );
}

const attributes = {
  int: (name, value) => message(5, text(1, name), whole(3, value), whole(20, 2)),
  ints: (name, values) =>
    message(5, text(1, name), ...values.map((v) => whole(8, v)), whole(20, 7)),
  float: (name, value) => message(5, text(1, name), real(2, value), whole(20, 1)),
};

const value = (field, name, kind, dims) =>
  message(
    field,
    text(1, name),
    message(
      2,
      message(
        1,
        whole(1, kind),
        message(
          2,
          ...dims.map((d) => message(1, typeof d === 'string' ? text(2, d) : whole(1, d))),
        ),
      ),
    ),
  );

// --- the graph -----------------------------------------------------------------------------------

/**
 * The file of a model. shape: { width, layers, heads }. weights: name → { dims, data }, named as in
 * transformers. tokens: length of every input.
 */
export function bertAsOnnx(shape, weights, tokens, quantized) {
  const parts = [];
  let made = 0;
  const node = (type, inputs, ...more) => {
    const out = `v${++made}`;
    parts.push(
      message(
        1,
        ...inputs.map((i) => text(1, i)),
        text(2, out),
        text(3, out),
        text(4, type),
        ...more,
      ),
    );
    return out;
  };
  const constant = (dims, data) => {
    const name = `c${++made}`;
    parts.push(tensor(5, name, dims, data));
    return name;
  };
  const scalar = (x) => constant([], new Float32Array([x]));
  const list = (...values) => constant([values.length], new BigInt64Array(values.map(BigInt)));
  const given = (name) => constant(weights[name].dims, weights[name].data);
  const norm = (x, name) =>
    node(
      'LayerNormalization',
      [x, given(`${name}.weight`), given(`${name}.bias`)],
      attributes.int('axis', -1),
      attributes.float('epsilon', 1e-12),
    );

  // Transposes [rows][columns] to [columns][rows], since MatMul computes x W and not x W^T.
  function turned({ dims: [rows, columns], data }) {
    const out = new Float32Array(data.length);
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) out[c * rows + r] = data[r * columns + c];
    return out;
  }
  function product(x, name) {
    const { dims } = weights[name];
    const matrix = turned(weights[name]);
    if (!quantized) return node('MatMul', [x, constant([dims[1], dims[0]], matrix)]);
    const scale = matrix.reduce((most, w) => Math.max(most, Math.abs(w)), 0) / 127;
    const w = constant(
      [dims[1], dims[0]],
      Int8Array.from(matrix, (v) => Math.round(v / scale)),
    );
    const q = node('DynamicQuantizeLinear', [x], text(2, `s${made + 1}`), text(2, `z${made + 1}`));
    const [s, z] = [`s${q.slice(1)}`, `z${q.slice(1)}`];
    const sums = node('MatMulInteger', [q, w, z, constant([], new Int8Array(1))]);
    return node('Mul', [
      node('Cast', [sums], attributes.int('to', 1)),
      node('Mul', [s, scalar(scale)]),
    ]);
  }
  const dense = (x, name) => node('Add', [product(x, `${name}.weight`), given(`${name}.bias`)]);

  const { width, layers, heads } = shape;
  const size = width / heads;
  const embedded = (name, ids) =>
    node('Gather', [given(`embeddings.${name}.weight`), ids], attributes.int('axis', 0));
  const positions = weights['embeddings.position_embeddings.weight'].data.subarray(
    0,
    tokens * width,
  );
  let x = node('Add', [
    embedded('word_embeddings', 'input_ids'),
    embedded('token_type_embeddings', 'token_type_ids'),
  ]);
  x = norm(node('Add', [x, constant([1, tokens, width], positions)]), 'embeddings.LayerNorm');
  const seen = node(
    'Cast',
    [node('Unsqueeze', ['attention_mask', list(1, 2)])],
    attributes.int('to', 1),
  );
  const mask = node('Mul', [node('Sub', [scalar(1), seen]), scalar(-1e9)]);
  const apart = list(0, 0, heads, size),
    joined = list(0, 0, width);
  const split = (y, order) =>
    node('Transpose', [node('Reshape', [y, apart])], attributes.ints('perm', order));
  for (let i = 0; i < layers; i++) {
    const at = `encoder.layer.${i}.`;
    const q = split(dense(x, `${at}attention.self.query`), [0, 2, 1, 3]);
    const k = split(dense(x, `${at}attention.self.key`), [0, 2, 3, 1]);
    const v = split(dense(x, `${at}attention.self.value`), [0, 2, 1, 3]);
    const scores = node('Div', [node('MatMul', [q, k]), scalar(Math.sqrt(size))]);
    const shares = node('Softmax', [node('Add', [scores, mask])], attributes.int('axis', -1));
    const mixed = node(
      'Transpose',
      [node('MatMul', [shares, v])],
      attributes.ints('perm', [0, 2, 1, 3]),
    );
    const attended = dense(node('Reshape', [mixed, joined]), `${at}attention.output.dense`);
    x = norm(node('Add', [attended, x]), `${at}attention.output.LayerNorm`);
    const inner = dense(x, `${at}intermediate.dense`);
    const erf = node('Add', [node('Erf', [node('Div', [inner, scalar(Math.SQRT2)])]), scalar(1)]);
    const gelu = node('Mul', [node('Mul', [inner, erf]), scalar(0.5)]);
    x = norm(node('Add', [dense(gelu, `${at}output.dense`), x]), `${at}output.LayerNorm`);
  }
  const out = 'last_hidden_state';
  parts.push(message(1, text(1, x), text(2, out), text(3, out), text(4, 'Identity')));
  for (const name of ['input_ids', 'attention_mask', 'token_type_ids'])
    parts.push(value(11, name, 7, ['batch', tokens]));
  parts.push(value(12, out, 1, ['batch', tokens, width]), text(2, 'bert'));
  return Buffer.concat([
    whole(1, 8),
    text(2, 'sluice'),
    message(7, ...parts),
    message(8, text(1, ''), whole(2, 17)),
  ]);
}
