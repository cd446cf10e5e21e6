// Shapes of published models, as GGUF headers: metadata, a vocabulary without meaning, and tensors
// with the types that llama-quantize gives them. The C++ twin with weights is tests/make-model.
import { ggufHeader } from './gguf.mjs';

/** File types: the type of most matrices, that of the output head, and whether some get Q6_K. */
const kFileTypes = {
  Q4_0: { type: 'Q4_0', head: 'Q6_K', id: 2 },
  Q4_K_M: { type: 'Q4_K', head: 'Q6_K', mixed: true, id: 15 },
  Q8_0: { type: 'Q8_0', head: 'Q8_0', id: 7 },
};
export const fileTypes = Object.keys(kFileTypes);

/** Collects the tensors of a file. */
class Tensors {
  all = [];
  #file;
  #layers;
  constructor(file, layers) {
    this.#file = file;
    this.#layers = layers;
  }
  matrix(name, ne, type = this.#file.type) {
    // K-quants need rows of whole blocks.
    const fits = type.endsWith('_K') && ne[0] % 256 ? 'Q8_0' : type;
    this.all.push({ name: `${name}.weight`, type: fits, ne });
  }
  head(name, ne) {
    this.matrix(name, ne, this.#file.head);
  }
  /** A matrix that gets more bits in some layers of a mix. */
  precious(layer, name, ne) {
    const eighth = Math.floor(this.#layers / 8);
    const more =
      layer < eighth || layer >= Math.floor((7 * this.#layers) / 8) || (layer - eighth) % 3 === 2;
    this.matrix(name, ne, this.#file.mixed && more ? 'Q6_K' : this.#file.type);
  }
  values(name, ne) {
    this.all.push({ name: `${name}.weight`, type: 'F32', ne });
  }
}

function attention(to, s, layer, { head = s.head, norms = s.headNorms } = {}) {
  const blk = `blk.${layer}.`;
  to.matrix(`${blk}attn_q`, [s.embd, s.heads * head]);
  to.matrix(`${blk}attn_k`, [s.embd, s.kv * head]);
  to.precious(layer, `${blk}attn_v`, [s.embd, s.kv * head]);
  to.matrix(`${blk}attn_output`, [s.heads * head, s.embd]);
  if (!norms) return;
  to.values(`${blk}attn_q_norm`, [head]);
  to.values(`${blk}attn_k_norm`, [head]);
}

function feedForward(to, s, layer, ff = s.ff) {
  const blk = `blk.${layer}.`;
  to.values(`${blk}ffn_norm`, [s.embd]);
  to.matrix(`${blk}ffn_gate`, [s.embd, ff]);
  to.matrix(`${blk}ffn_up`, [s.embd, ff]);
  to.precious(layer, `${blk}ffn_down`, [ff, s.embd]);
}

function plainLayer(to, s, layer) {
  to.values(`blk.${layer}.attn_norm`, [s.embd]);
  attention(to, s, layer);
  feedForward(to, s, layer);
}

// LFM2: attention in six layers, short convolutions in the others.
const kTaps = 3;
const attends = (layer) => layer > 0 && layer % 2 === 0;

function lfm2Layer(to, s, layer) {
  const blk = `blk.${layer}.`;
  to.values(`${blk}attn_norm`, [s.embd]);
  if (attends(layer)) attention(to, s, layer, { norms: true });
  else {
    to.values(`${blk}shortconv.conv`, [kTaps, s.embd]);
    to.matrix(`${blk}shortconv.in_proj`, [s.embd, 3 * s.embd]);
    to.matrix(`${blk}shortconv.out_proj`, [s.embd, s.embd]);
  }
  feedForward(to, s, layer);
}

const lfm2Keys = (s) => [
  [
    'attention.head_count_kv',
    'i32',
    Array.from({ length: s.layers }, (_, layer) => (attends(layer) ? s.kv : 0)),
  ],
  ['shortconv.l_cache', 'u32', kTaps],
];

// Gemma 4 E2B: per-layer embeddings, a KV cache that later layers share, wider heads in layers
// without a window.
const kPerLayer = 256,
  kShared = 20,
  kWideHead = 512;
const isGlobal = (layer) => (layer + 1) % 5 === 0;
const gemmaWidth = (s, layer) => (layer + kShared >= s.layers ? 2 : 1) * s.ff;

function gemmaLayer(to, s, layer) {
  const blk = `blk.${layer}.`;
  to.values(`${blk}attn_norm`, [s.embd]);
  attention(to, s, layer, { head: isGlobal(layer) ? kWideHead : s.head, norms: true });
  feedForward(to, s, layer, gemmaWidth(s, layer));
  to.matrix(`${blk}inp_gate`, [s.embd, kPerLayer]);
  to.values(`${blk}layer_output_scale`, [1]);
  for (const norm of ['post_attention_norm', 'post_ffw_norm', 'post_norm'])
    to.values(`${blk}${norm}`, [s.embd]);
  to.matrix(`${blk}proj`, [kPerLayer, s.embd]);
}

function gemmaGlobals(to, s) {
  to.matrix('per_layer_model_proj', [s.embd, kPerLayer * s.layers], 'F16');
  to.values('per_layer_proj_norm', [kPerLayer]);
  to.head('per_layer_token_embd', [kPerLayer * s.layers, s.vocab]);
  to.values('rope_freqs', [kWideHead / 2]);
}

const gemmaKeys = (s) => {
  const layers = Array.from({ length: s.layers }, (_, layer) => layer);
  return [
    ['feed_forward_length', 'i32', layers.map((layer) => gemmaWidth(s, layer))],
    ['attention.sliding_window', 'u32', 512],
    ['attention.sliding_window_pattern', 'i32', layers.map((layer) => Number(!isGlobal(layer)))],
    ['attention.shared_kv_layers', 'u32', kShared],
    ['attention.key_length', 'u32', kWideHead],
    ['attention.value_length', 'u32', kWideHead],
    ['attention.key_length_swa', 'u32', s.head],
    ['attention.value_length_swa', 'u32', s.head],
    ['rope.dimension_count', 'u32', kWideHead],
    ['rope.dimension_count_swa', 'u32', s.head],
    ['rope.freq_base_swa', 'f32', 10000],
    ['embedding_length_per_layer_input', 'u32', kPerLayer],
    ['final_logit_softcapping', 'f32', 30],
  ];
};

const llama = { arch: 'llama', eps: 1e-5, base: 5e5 };

// From the published model cards.
const kShapes = {
  'lfm2.5-230m': {
    arch: 'lfm2',
    layers: 14,
    embd: 1024,
    heads: 16,
    kv: 8,
    head: 64,
    ff: 2560,
    vocab: 65536,
    tied: true,
    eps: 1e-5,
    base: 1e6,
    layer: lfm2Layer,
    keys: lfm2Keys,
  },
  'qwen3-0.6b': {
    arch: 'qwen3',
    layers: 28,
    embd: 1024,
    heads: 16,
    kv: 8,
    head: 128,
    ff: 3072,
    vocab: 151936,
    tied: true,
    eps: 1e-6,
    base: 1e6,
    headNorms: true,
  },
  'llama-3.2-1b': {
    ...llama,
    layers: 16,
    embd: 2048,
    heads: 32,
    kv: 8,
    head: 64,
    ff: 8192,
    vocab: 128256,
    tied: true,
  },
  'gemma-4-e2b': {
    arch: 'gemma4',
    layers: 35,
    embd: 1536,
    heads: 8,
    kv: 1,
    head: 256,
    ff: 6144,
    vocab: 262144,
    tied: true,
    eps: 1e-6,
    base: 1e6,
    layer: gemmaLayer,
    globals: gemmaGlobals,
    keys: gemmaKeys,
  },
  'llama-3.1-8b': {
    ...llama,
    layers: 32,
    embd: 4096,
    heads: 32,
    kv: 8,
    head: 128,
    ff: 14336,
    vocab: 128256,
  },
  tiny: { ...llama, layers: 2, embd: 256, heads: 8, kv: 4, head: 32, ff: 512, vocab: 1024 },
  // As many dispatches as Qwen3-0.6B, and as little work for the GPU as possible.
  narrow: { ...llama, layers: 28, embd: 256, heads: 8, kv: 4, head: 32, ff: 512, vocab: 1024 },
};
/** Those that are measured unless others are named. */
export const shapes = Object.keys(kShapes).filter((name) => !/^(tiny|narrow)$/.test(name));
export const allShapes = Object.keys(kShapes);

/** The letters of GPT-2's bytes, then names that no text contains, then the end of a text. */
function vocabulary(size) {
  const tokens = [];
  for (let byte = 0, other = 256; byte < 256; byte++) {
    const printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    tokens.push(String.fromCharCode(printable ? byte : other++));
  }
  while (tokens.length < size - 1) tokens.push(`[${tokens.length}]`);
  return [...tokens, '<|end|>'];
}

function keysOf(s, name, file) {
  const own = s.keys?.(s) ?? [];
  const given = new Set(own.map(([key]) => key));
  const usual = [
    ['vocab_size', 'u32', s.vocab],
    ['context_length', 'u32', 32768],
    ['embedding_length', 'u32', s.embd],
    ['block_count', 'u32', s.layers],
    ['feed_forward_length', 'u32', s.ff],
    ['attention.head_count', 'u32', s.heads],
    ['attention.head_count_kv', 'u32', s.kv],
    ['attention.layer_norm_rms_epsilon', 'f32', s.eps],
    ['attention.key_length', 'u32', s.head],
    ['attention.value_length', 'u32', s.head],
    ['rope.dimension_count', 'u32', s.head],
    ['rope.freq_base', 'f32', s.base],
  ].filter(([key]) => !given.has(key));
  return [
    ['general.architecture', 'string', s.arch],
    ['general.name', 'string', `synthetic ${name}`],
    ['general.file_type', 'u32', file.id],
    ['general.quantization_version', 'u32', 2],
    ...[...usual, ...own].map(([key, ...value]) => [`${s.arch}.${key}`, ...value]),
    ['tokenizer.ggml.model', 'string', 'gpt2'],
    ['tokenizer.ggml.pre', 'string', 'gpt-2'],
    ['tokenizer.ggml.tokens', 'string', vocabulary(s.vocab)],
    [
      'tokenizer.ggml.token_type',
      'i32',
      Array.from({ length: s.vocab }, (_, i) => (i + 1 < s.vocab ? 1 : 3)),
    ],
    ['tokenizer.ggml.merges', 'string', []],
    ['tokenizer.ggml.eos_token_id', 'u32', s.vocab - 1],
    ['tokenizer.ggml.add_bos_token', 'bool', false],
  ];
}

/** { header, size } of a file of shape `name` and file type `type`. */
export function shapeFile(name, type) {
  const [s, file] = [kShapes[name], kFileTypes[type]];
  const to = new Tensors(file, s.layers);
  if (!s.tied) to.head('output', [s.embd, s.vocab]);
  s.globals?.(to, s);
  to.values(s.arch === 'lfm2' ? 'token_embd_norm' : 'output_norm', [s.embd]);
  to.matrix('token_embd', [s.embd, s.vocab], s.tied ? file.head : file.type);
  for (let layer = 0; layer < s.layers; layer++) (s.layer ?? plainLayer)(to, s, layer);
  return ggufHeader(keysOf(s, name, file), to.all);
}
