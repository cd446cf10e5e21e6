// Writes GGUF fixtures as Hugging Face checkpoints: the tensors under transformers' names, in its
// order and shapes, and a config.json with the fixture's numbers. Value heads are ordered by the
// key head that they share, decays are logarithms, matrices are joined, MXFP4 blocks and scales are
// separate. The families are those of tests/conformance/hf_further_test.cpp and
// hf_encoder_test.cpp.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const kF32 = 0;
const kMxfp4 = 39;

// --- GGUF

/**
 * Reads a GGUF file: its header bytes before the tensor list, and the tensors: { name, ne (columns
 * first), type, data }.
 */
export function readGguf(bytes) {
  let at = 24;
  const u32 = () => bytes.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const text = () => {
    const length = u64();
    return bytes.toString('utf8', at, (at += length));
  };
  const skip = (type) => {
    if (type === 8) return text();
    if (type !== 9) return (at += [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][type]);
    const element = u32();
    for (let n = u64(); n > 0; n--) skip(element);
  };
  for (let n = Number(bytes.readBigUInt64LE(16)); n > 0; n--) {
    text();
    skip(u32());
  }
  const front = bytes.subarray(0, at);
  const tensors = Array.from({ length: Number(bytes.readBigUInt64LE(8)) }, () => {
    const name = text();
    const ne = Array.from({ length: u32() }, () => u64());
    return { name, ne, type: u32(), offset: u64() };
  });
  const data = bytes.subarray(Math.ceil(at / 32) * 32);
  for (const t of tensors) {
    const values = t.ne.reduce((a, b) => a * b, 1);
    t.data = data.subarray(t.offset, t.offset + values * (t.type === kF32 ? 4 : 2));
  }
  return { front, tensors };
}

function writeGguf({ front, tensors }) {
  const infos = [];
  const data = [];
  let offset = 0;
  for (const t of tensors) {
    const info = Buffer.alloc(8 + t.name.length + 4 + 8 * t.ne.length + 12);
    info.writeBigUInt64LE(BigInt(t.name.length));
    info.write(t.name, 8);
    let at = info.writeUInt32LE(t.ne.length, 8 + t.name.length);
    for (const n of t.ne) at = info.writeBigUInt64LE(BigInt(n), at);
    info.writeBigUInt64LE(BigInt(offset), info.writeUInt32LE(t.type, at));
    infos.push(info);
    data.push(t.data, Buffer.alloc(-t.data.length & 31));
    offset += t.data.length + (-t.data.length & 31);
  }
  const header = Buffer.concat([front, ...infos]);
  return Buffer.concat([header, Buffer.alloc(-header.length & 31), ...data]);
}

function half(bits) {
  const exponent = (bits >> 10) & 31;
  const value = exponent
    ? (1 + (bits & 1023) / 1024) * 2 ** (exponent - 15)
    : (bits & 1023) * 2 ** -24;
  return bits >> 15 ? -value : value;
}

function floats({ type, data }) {
  if (type === kF32) return new Float32Array(Uint8Array.from(data).buffer);
  return Float32Array.from(new Uint16Array(Uint8Array.from(data).buffer), half);
}

const stored = (values) => Buffer.from(Float32Array.from(values).buffer);

/** The same tensor in MXFP4: blocks of 32 with a scale; a byte holds values i and i + 16. */
function quantized(t) {
  const steps = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
  const x = floats(t);
  const data = Buffer.alloc((x.length / 32) * 17);
  for (let b = 0; b < x.length / 32; b++) {
    const block = x.subarray(b * 32, b * 32 + 32);
    const exponent =
      Math.floor(Math.log2(block.reduce((most, v) => Math.max(most, Math.abs(v)), 2 ** -20))) - 2;
    data[b * 17] = exponent + 127;
    block.forEach((v, i) => {
      const size = Math.abs(v) / 2 ** exponent;
      const nearest = steps.reduce(
        (best, step, j) => (Math.abs(step - size) < Math.abs(steps[best] - size) ? j : best),
        0,
      );
      data[b * 17 + 1 + (i % 16)] |= (nearest | (v < 0 ? 8 : 0)) << (i < 16 ? 0 : 4);
    });
  }
  return { ...t, type: kMxfp4, data };
}

// --- safetensors

export class Safetensors {
  #entries = {};
  #data = [];
  #at = 0;

  tensor(name, dtype, shape, data) {
    this.#entries[name] = { dtype, shape, data_offsets: [this.#at, this.#at + data.length] };
    this.#data.push(data);
    this.#at += data.length;
  }
  build() {
    const json = Buffer.from(JSON.stringify(this.#entries));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(json.length));
    return Buffer.concat([length, json, ...this.#data]);
  }
}

/** A tokenizer.json: byte-level BPE with 259 tokens and an end token. */
export function tokenizer() {
  const vocab = {};
  for (let byte = 0, next = 256; byte < 256; byte++) {
    const plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
    vocab[String.fromCharCode(plain ? byte : next++)] = byte;
  }
  Object.assign(vocab, { he: 256, hel: 257, Ġw: 258 });
  const words =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  return {
    version: '1.0',
    added_tokens: [{ id: 259, content: '<|end|>', special: true }],
    normalizer: { type: 'NFC' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: words }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', use_regex: false },
      ],
    },
    model: {
      type: 'BPE',
      unk_token: null,
      byte_fallback: false,
      vocab,
      merges: ['h e', ['he', 'l'], 'Ġ w'],
    },
  };
}

export const usualNames = {
  token_embd: 'embed_tokens',
  output_norm: 'norm',
  output: 'lm_head',
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};
const usualConfig = (type, layers) => ({
  model_type: type,
  vocab_size: 280,
  num_hidden_layers: layers,
  max_position_embeddings: 512,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  hidden_size: 64,
  intermediate_size: 96,
  rms_norm_eps: 9.999999747378752e-6,
});
const windows = (layers, period) =>
  Array.from({ length: layers }, (_, i) =>
    (i + 1) % period ? 'sliding_attention' : 'full_attention',
  );

function qwen35(mixture) {
  const text = {
    ...usualConfig(mixture ? 'qwen3_5_moe_text' : 'qwen3_5_text', 4),
    head_dim: 32,
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 16,
    linear_value_head_dim: 16,
    rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.25 },
    layer_types: ['linear_attention', 'linear_attention', 'linear_attention', 'full_attention'],
    ...(mixture && { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 }),
  };
  return {
    fixture: mixture ? 'qwen35moe' : 'qwen35',
    mostNmse: 1e-8,
    normOffset: true,
    valueHeads: true,
    joins: mixture ? ['_exps'] : [],
    config: { model_type: mixture ? 'qwen3_5_moe' : 'qwen3_5', text_config: text },
    prefix: 'model.language_model.',
    names: {
      ...usualNames,
      post_attention_norm: 'post_attention_layernorm',
      attn_qkv: 'linear_attn.in_proj_qkv',
      attn_gate: 'linear_attn.in_proj_z',
      ssm_beta: 'linear_attn.in_proj_b',
      ssm_alpha: 'linear_attn.in_proj_a',
      ssm_conv1d: 'linear_attn.conv1d',
      ssm_norm: 'linear_attn.norm',
      ssm_out: 'linear_attn.out_proj',
      'ssm_dt.bias': 'linear_attn.dt_bias',
      ssm_a: 'linear_attn.A_log',
      ffn_gate_inp: 'mlp.gate',
      'ffn_down_exps.weight': 'mlp.experts.down_proj',
      'ffn_gate_up_exps.weight': 'mlp.experts.gate_up_proj',
      ffn_gate_shexp: 'mlp.shared_expert.gate_proj',
      ffn_up_shexp: 'mlp.shared_expert.up_proj',
      ffn_down_shexp: 'mlp.shared_expert.down_proj',
      ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
    },
  };
}

const gemmaNames = {
  ...usualNames,
  post_attention_norm: 'post_attention_layernorm',
  ffn_norm: 'pre_feedforward_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
  post_ffw_norm_1: 'post_feedforward_layernorm_1',
  pre_ffw_norm_2: 'pre_feedforward_layernorm_2',
  post_ffw_norm_2: 'post_feedforward_layernorm_2',
  inp_gate: 'per_layer_input_gate',
  proj: 'per_layer_projection',
  post_norm: 'post_per_layer_input_norm',
  per_layer_token_embd: 'embed_tokens_per_layer',
  per_layer_model_proj: 'per_layer_model_projection',
  per_layer_proj_norm: 'per_layer_projection_norm',
  altup_proj: 'altup_projections',
  altup_unembd_proj: 'altup_unembed_projections',
  altup_router: 'altup.modality_router',
  altup_router_norm: 'altup.router_norm',
  altup_predict_coef: 'altup.prediction_coefs',
  altup_correct_coef: 'altup.correction_coefs',
  'altup_correct_scale.weight': 'altup.correct_output_scale',
  laurel_l: 'laurel.linear_left',
  laurel_r: 'laurel.linear_right',
  laurel_post_norm: 'laurel.post_laurel_norm',
  'layer_output_scale.weight': 'layer_scalar',
  ffn_gate_inp: 'router.proj',
  'ffn_gate_inp.scale': 'router.scale',
  'ffn_down_exps.scale': 'router.per_expert_scale',
  'ffn_gate_up_exps.weight': 'experts.gate_up_proj',
  'ffn_down_exps.weight': 'experts.down_proj',
};

function gemma3n() {
  const text = {
    ...usualConfig('gemma3n_text', 22),
    hidden_size: 32,
    intermediate_size: Array(22).fill(64),
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 16,
    rope_theta: 1e6,
    sliding_window: 12,
    layer_types: windows(22, 5),
    num_kv_shared_layers: 2,
    final_logit_softcapping: 30,
    hidden_size_per_layer_input: 256,
    activation_sparsity_pattern: Array.from({ length: 22 }, (_, i) => (i < 10 ? 0.95 : 0)),
  };
  text.layer_types[21] = 'full_attention';
  return {
    fixture: 'gemma3n',
    mostNmse: 1e-8,
    names: gemmaNames,
    config: { model_type: 'gemma3n', text_config: text },
    prefix: 'model.language_model.',
  };
}

const gemma4Config = (layers) => ({
  ...usualConfig('gemma4_text', layers),
  head_dim: 16,
  global_head_dim: 32,
  sliding_window: 12,
  final_logit_softcapping: 30,
  rope_parameters: {
    full_attention: { rope_type: 'proportional', rope_theta: 1e6, partial_rotary_factor: 0.25 },
    sliding_attention: { rope_type: 'default', rope_theta: 1e4 },
  },
});
const gemma4 = () => ({
  fixture: 'gemma4',
  names: gemmaNames,
  config: {
    ...gemma4Config(6),
    num_kv_shared_layers: 2,
    use_double_wide_mlp: true,
    hidden_size_per_layer_input: 32,
    layer_types: [
      'sliding_attention',
      'sliding_attention',
      'sliding_attention',
      'full_attention',
      'sliding_attention',
      'full_attention',
    ],
  },
});
const gemma4Moe = () => ({
  fixture: 'gemma4-moe',
  names: gemmaNames,
  config: {
    ...gemma4Config(4),
    layer_types: windows(4, 2),
    attention_k_eq_v: true,
    num_key_value_heads: 4,
    num_global_key_value_heads: 2,
    hidden_size_per_layer_input: 0,
    enable_moe_block: true,
    num_experts: 4,
    top_k_experts: 2,
    moe_intermediate_size: 32,
  },
});

const granite = (dense) => ({
  fixture: dense ? 'granitehybrid-dense' : 'granitehybrid',
  mostNmse: 1e-8,
  joins: ['_exps', '_shexp', ''],
  config: {
    ...usualConfig('granitemoehybrid', dense ? 3 : 4),
    intermediate_size: 32,
    shared_intermediate_size: dense ? 96 : 64,
    layer_types: dense ? ['mamba', 'attention', 'mamba'] : ['mamba', 'mamba', 'attention', 'mamba'],
    position_embedding_type: 'nope',
    mamba_n_heads: 8,
    mamba_d_head: 16,
    mamba_d_state: 16,
    mamba_n_groups: 2,
    mamba_d_conv: 4,
    attention_multiplier: 0.125,
    embedding_multiplier: 3,
    residual_multiplier: 0.4,
    logits_scaling: 1.5,
    num_local_experts: dense ? 0 : 4,
    num_experts_per_tok: dense ? 0 : 2,
  },
  names: {
    ...usualNames,
    ffn_norm: 'post_attention_layernorm',
    ssm_in: 'mamba.in_proj',
    ssm_conv1d: 'mamba.conv1d',
    'ssm_dt.bias': 'mamba.dt_bias',
    ssm_a: 'mamba.A_log',
    ssm_d: 'mamba.D',
    ssm_norm: 'mamba.norm',
    ssm_out: 'mamba.out_proj',
    ffn_gate_inp: 'block_sparse_moe.router.layer',
    ffn_gate_up_exps: 'block_sparse_moe.input_linear',
    ffn_down_exps: 'block_sparse_moe.output_linear',
    ffn_gate_up_shexp: 'shared_mlp.input_linear',
    ffn_down_shexp: 'shared_mlp.output_linear',
    ffn_gate_up: 'shared_mlp.input_linear',
    ffn_down: 'shared_mlp.output_linear',
  },
});

const gptOss = () => ({
  fixture: 'gpt-oss',
  quantized: true,
  config: {
    ...usualConfig('gpt_oss', 4),
    intermediate_size: 32,
    head_dim: 16,
    rope_theta: 150000,
    rope_scaling: { rope_type: 'yarn', factor: 8, original_max_position_embeddings: 32 },
    num_local_experts: 4,
    num_experts_per_tok: 2,
    sliding_window: 12,
    quantization_config: { quant_method: 'mxfp4' },
  },
  names: {
    ...usualNames,
    post_attention_norm: 'post_attention_layernorm',
    'attn_sinks.weight': 'self_attn.sinks',
    ffn_gate_inp: 'mlp.router',
    'ffn_down_exps.bias': 'mlp.experts.down_proj_bias',
  },
});

export const families = [
  qwen35(false),
  qwen35(true),
  gemma3n(),
  gemma4(),
  gemma4Moe(),
  granite(false),
  granite(true),
  gptOss(),
];

export const encoder = {
  fixture: 'bert-mean',
  layers: 'encoder.layer.',
  prefix: '',
  pooling: 'pooling_mode_mean_tokens',
  config: {
    model_type: 'bert',
    vocab_size: 280,
    hidden_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    intermediate_size: 96,
    hidden_act: 'gelu',
    max_position_embeddings: 64,
    layer_norm_eps: 9.999999747378752e-6,
  },
  names: {
    token_embd: 'embeddings.word_embeddings',
    position_embd: 'embeddings.position_embeddings',
    token_types: 'embeddings.token_type_embeddings',
    token_embd_norm: 'embeddings.LayerNorm',
    cls: 'pooler.dense',
    attn_q: 'attention.self.query',
    attn_k: 'attention.self.key',
    attn_v: 'attention.self.value',
    attn_output: 'attention.output.dense',
    attn_output_norm: 'attention.output.LayerNorm',
    ffn_up: 'intermediate.dense',
    ffn_down: 'output.dense',
    layer_output_norm: 'output.LayerNorm',
  },
};

// --- conversion

const rows = (ne) => ne.slice(1).reduce((a, b) => a * b, 1);

/** Concatenates gate and up of each layer, or of each of its experts. */
function joined(tensors, kinds) {
  for (const kind of kinds) {
    for (const gate of tensors.filter(({ name }) => name.endsWith(`ffn_gate${kind}.weight`))) {
      const up = tensors.find(({ name }) => name === gate.name.replace('ffn_gate', 'ffn_up'));
      const matrices = gate.ne[2] ?? 1;
      const n = gate.data.length / matrices;
      const parts = Array.from({ length: matrices }, (_, e) => [
        gate.data.subarray(e * n, e * n + n),
        up.data.subarray(e * n, e * n + n),
      ]);
      tensors = tensors.filter((t) => t !== gate && t !== up);
      tensors.push({
        ...gate,
        name: gate.name.replace('ffn_gate', 'ffn_gate_up'),
        ne: [gate.ne[0], 2 * gate.ne[1], ...gate.ne.slice(2)],
        data: Buffer.concat(parts.flat()),
      });
    }
  }
  return tensors;
}

/** Reorders GGUF's value heads, four of which share two key heads, to the checkpoint's order. */
function grouped(data, skip, unit) {
  const out = Buffer.from(data);
  for (let shared = 0; shared < 2; shared++) {
    for (let key = 0; key < 2; key++)
      data.copy(
        out,
        skip + (key * 2 + shared) * unit,
        skip + (shared * 2 + key) * unit,
        skip + (shared * 2 + key + 1) * unit,
      );
  }
  return out;
}

function turned(family, part, t) {
  let { type, data } = t;
  if (part === 'ssm_a') {
    data = stored(floats(t).map((x) => Math.log(-x)));
    type = kF32;
  }
  if (family.normOffset && part.endsWith('_norm') && part !== 'ssm_norm')
    data = stored(floats(t).map((x) => x - 1));
  if (family.valueHeads) {
    const row = t.ne.length === 1 ? 4 : data.length / rows(t.ne);
    if (/^(attn_gate|ssm_beta|ssm_alpha|ssm_a|ssm_dt\.bias)$/.test(part))
      data = grouped(data, 0, data.length / 4);
    else if (/^(attn_qkv|ssm_conv1d)$/.test(part))
      data = grouped(data, 64 * row, (data.length - 64 * row) / 4);
    else if (part === 'ssm_out') {
      data = Buffer.concat(
        Array.from({ length: data.length / row }, (_, i) =>
          grouped(data.subarray(i * row, i * row + row), 0, row / 4),
        ),
      );
    }
  }
  return { ...t, type, data };
}

/** GPT-OSS's experts: rows of gate and up alternate; blocks of adjacent values and their scales. */
function addExperts(out, at, tensors) {
  const of = (name) => tensors.find((t) => t.name.endsWith(name));
  const blocks = (name, ts) => {
    const [{ ne }] = ts;
    const row = (ne[0] / 32) * 17;
    const scales = [];
    const values = [];
    for (let from = 0; from < ts[0].data.length; from += row) {
      for (const { data } of ts) {
        for (let b = from; b < from + row; b += 17) {
          const value = (i) => (data[b + 1 + (i % 16)] >> (i < 16 ? 0 : 4)) & 15;
          scales.push(data[b]);
          for (let i = 0; i < 32; i += 2) values.push(value(i) | (value(i + 1) << 4));
        }
      }
    }
    const shape = [ne[2], ne[1] * ts.length, ne[0] / 32];
    out.tensor(`${at}${name}_scales`, 'U8', shape, Buffer.from(scales));
    out.tensor(`${at}${name}_blocks`, 'U8', [...shape, 16], Buffer.from(values));
  };
  blocks('gate_up_proj', [of('ffn_gate_exps.weight'), of('ffn_up_exps.weight')]);
  blocks('down_proj', [of('ffn_down_exps.weight')]);
  const [gate, up] = [floats(of('ffn_gate_exps.bias')), floats(of('ffn_up_exps.bias'))];
  const { ne } = of('ffn_gate_exps.bias');
  out.tensor(
    `${at}gate_up_proj_bias`,
    'F32',
    [ne[1], 2 * ne[0]],
    stored([...gate].flatMap((x, i) => [x, up[i]])),
  );
}

function weights(family, tensors) {
  const { names, prefix = 'model.', layers = 'layers.' } = family;
  const out = new Safetensors();
  for (const t of tensors) {
    const [, layer, rest] = /^(?:blk\.(\d+)\.)?(.*)$/.exec(t.name);
    const at = layer === undefined ? '' : `${layers}${layer}.`;
    if (t.name === 'rope_freqs.weight') continue;
    if (family.quantized && /(gate|up)_exps\.|down_exps\.weight/.test(rest)) {
      if (rest === 'ffn_down_exps.weight')
        addExperts(
          out,
          `${prefix}${at}mlp.experts.`,
          tensors.filter(({ name }) => name.startsWith(`blk.${layer}.`)),
        );
      continue;
    }
    const ending = names[rest] ? '' : rest.slice(rest.lastIndexOf('.'));
    const part = rest.slice(0, rest.length - ending.length);
    const { type, ne, data } = turned(family, part, t);
    const dtype = type === kF32 ? 'F32' : 'F16';
    let shape = [...ne].reverse();
    if (part === 'attn_qkv' && !names[part]) {
      // The fixture joins them, the checkpoint does not.
      const n = data.length / 3;
      ['attn_q', 'attn_k', 'attn_v'].forEach((one, i) =>
        out.tensor(
          `${prefix}${at}${names[one]}${ending}`,
          dtype,
          [shape[0] / 3, ...shape.slice(1)],
          data.subarray(i * n, i * n + n),
        ),
      );
      continue;
    }
    if (!names[part]) throw new Error(`${t.name} has no name`);
    if (part === 'ssm_conv1d' && shape.length === 2) shape.splice(1, 0, 1);
    if (/^ssm_(a|d|norm)$/.test(part)) shape = [ne.reduce((a, b) => a * b, 1)];
    const name = `${part === 'output' ? '' : prefix}${at}${names[part]}`;
    if (!part.startsWith('altup_') || ne.length !== 3) {
      out.tensor(name + ending, dtype, shape, data);
      continue;
    }
    const n = data.length / ne[2];
    for (let i = 0; i < ne[2]; i++)
      out.tensor(`${name}.${i}${ending}`, dtype, [ne[1], ne[0]], data.subarray(i * n, i * n + n));
  }
  return out.build();
}

/** Writes the directory, and reference.gguf with the same weights in it. */
export function writeCheckpoint(family, gguf, folder) {
  const file = readGguf(readFileSync(gguf));
  if (family.quantized)
    file.tensors = file.tensors.map((t) => (t.name.endsWith('_exps.weight') ? quantized(t) : t));
  mkdirSync(folder, { recursive: true });
  const write = (name, content) => writeFileSync(join(folder, name), content);
  write('reference.gguf', writeGguf(file));
  write('config.json', JSON.stringify(family.config));
  write('tokenizer.json', JSON.stringify(tokenizer()));
  write('model.safetensors', weights(family, joined(file.tensors, family.joins ?? [])));
  if (!family.pooling) return;
  mkdirSync(join(folder, '1_Pooling'));
  const kind = 'sentence_transformers.models.';
  write(
    'modules.json',
    JSON.stringify([
      { idx: 0, path: '', type: `${kind}Transformer` },
      { idx: 1, path: '1_Pooling', type: `${kind}Pooling` },
    ]),
  );
  write(
    '1_Pooling/config.json',
    JSON.stringify({ word_embedding_dimension: 64, [family.pooling]: true }),
  );
}
