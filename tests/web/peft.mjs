// Converts a GGUF adapter of the fixtures to PEFT's two files. Rows of llama's queries and keys,
// which GGUF stores in pairs, return to halves; the first matrix of an embedding adapter is
// transposed.

/** Metadata and tensors of a small GGUF file: { name, type, shape (rows first), data }. */
export function readGguf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 8;
  const u32 = () => view.getUint32((at += 4) - 4, true);
  const u64 = () => Number(view.getBigUint64((at += 8) - 8, true));
  const text = () => {
    const n = u64();
    return Buffer.from(bytes.subarray((at += n) - n, at)).toString();
  };
  const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
  const value = (type) => {
    if (type === 8) return text();
    if (type === 9) {
      const of = u32();
      return Array.from({ length: u64() }, () => value(of));
    }
    const start = at;
    at += sizes[type];
    if (type === 4) return view.getUint32(start, true);
    return type === 6 ? view.getFloat32(start, true) : undefined;
  };
  const [nTensors, nKeys] = [u64(), u64()];
  const metadata = {};
  for (let i = 0; i < nKeys; i++) {
    const key = text();
    metadata[key] = value(u32());
  }
  const tensors = Array.from({ length: nTensors }, () => {
    const name = text();
    const shape = Array.from({ length: u32() }, u64).reverse();
    return { name, shape, type: u32(), offset: u64() };
  });
  const start = Math.ceil(at / 32) * 32;
  for (const t of tensors) {
    const n = t.shape.reduce((a, b) => a * b, t.type === 0 ? 4 : 2);
    t.data = bytes.slice(start + t.offset, start + t.offset + n);
  }
  return { metadata, tensors };
}

const kModules = {
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

function toHalves(data, heads, rows) {
  const out = new Uint8Array(data.length);
  const n = data.length / heads / rows;
  for (let i = 0; i < heads * rows; i++) {
    const row = i % rows;
    const to = i - row + (row % 2) * (rows / 2) + (row >> 1);
    out.set(data.subarray(i * n, (i + 1) * n), to * n);
  }
  return out;
}

function transposed(data, rows, columns, size) {
  const out = new Uint8Array(data.length);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      out.set(
        data.subarray((r * columns + c) * size, (r * columns + c + 1) * size),
        (c * rows + r) * size,
      );
    }
  }
  return out;
}

/** The two files of an adapter. `model`: metadata of the model that it is for. */
export function peftOf(adapter, model) {
  const { metadata, tensors } = readGguf(adapter);
  const arch = metadata['general.architecture'];
  const heads = {
    attn_q: model[`${arch}.attention.head_count`],
    attn_k: model[`${arch}.attention.head_count_kv`],
  };
  const directory = { __metadata__: { format: 'pt' } };
  const parts = [];
  let at = 0;
  for (const { name, shape, type, data } of tensors) {
    const [, base, half] = /^(.*)\.weight\.lora_([ab])$/.exec(name);
    const [, layer, part] = /^blk\.(\d+)\.(.*)$/.exec(base) ?? [];
    const embedding = base === 'token_embd';
    const module = part
      ? `model.layers.${layer}.${kModules[part]}`
      : embedding
        ? 'model.embed_tokens'
        : 'lm_head';
    let bytes = data;
    let dims = shape;
    if (arch === 'llama' && half === 'b' && heads[part])
      bytes = toHalves(data, heads[part], shape[0] / heads[part]);
    if (embedding && half === 'a') {
      bytes = transposed(data, shape[0], shape[1], type === 0 ? 4 : 2);
      dims = [shape[1], shape[0]];
    }
    const key = `base_model.model.${module}.lora_${embedding ? 'embedding_' : ''}${half.toUpperCase()}${embedding ? '' : '.weight'}`;
    directory[key] = {
      dtype: type === 0 ? 'F32' : 'F16',
      shape: dims,
      data_offsets: [at, (at += bytes.length)],
    };
    parts.push(bytes);
  }
  const header = Buffer.from(JSON.stringify(directory));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return {
    config: JSON.stringify({
      peft_type: 'LORA',
      lora_alpha: metadata['adapter.lora.alpha'],
      bias: 'none',
      use_rslora: false,
      modules_to_save: null,
    }),
    weights: Buffer.concat([length, header, ...parts]),
  };
}
