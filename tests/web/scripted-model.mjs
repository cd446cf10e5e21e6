// A tiny model that says what a test wants: its next token is a function of the last one. A script
// begins behind a token of its own, which a template writes at the end of the prompt.

/** GPT-2's characters for bytes. */
const kBytes = (() => {
  const printable = (b) => (b > 32 && b < 127) || (b > 160 && b !== 173 && b < 256);
  let others = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : others++));
})();
const spelled = (text) => Array.from(Buffer.from(text), (byte) => kBytes[byte]).join('');

const kWidth = 64;
const kEnd = '<|end|>';
const kNormal = 1;
const kControl = 3;

/** Numbers the tokens, and says which one follows which. */
function vocabulary(scripts, controls) {
  const texts = [];
  const types = [];
  const ids = new Map();
  const id = (text, type = kNormal) => {
    if (!ids.has(text)) {
      ids.set(text, texts.length);
      texts.push(text);
      types.push(type);
    }
    return ids.get(text);
  };
  kBytes.forEach((text) => id(text));
  const marks = new Set([kEnd, ...Object.keys(scripts), ...controls]);
  for (const mark of marks) id(mark, kControl);
  const follows = new Map();
  for (const [first, pieces] of Object.entries(scripts)) {
    let last = id(first);
    for (const piece of pieces) {
      const next = id(marks.has(piece) ? piece : spelled(piece));
      if (follows.has(last)) throw new Error(`'${piece}' follows a piece that is in use`);
      follows.set(last, next);
      last = next;
    }
    follows.set(last, id(kEnd));
  }
  return { texts, types, follows, end: id(kEnd) };
}

/** Writes GGUF: metadata of strings, numbers and lists, and tensors of 32-bit floats. */
class Writer {
  #parts = [];
  #length = 0;

  raw(bytes) {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }
  u32(value) {
    this.raw(Buffer.from(Uint32Array.of(value).buffer));
  }
  u64(value) {
    this.raw(Buffer.from(BigUint64Array.of(BigInt(value)).buffer));
  }
  text(text) {
    const bytes = Buffer.from(text);
    this.u64(bytes.length);
    this.raw(bytes);
  }
  float(value) {
    this.raw(Buffer.from(Float32Array.of(value).buffer));
  }
  value(value) {
    if (typeof value === 'string') {
      this.u32(8);
      this.text(value);
    } else if (Array.isArray(value)) {
      const numbers = typeof value[0] === 'number';
      this.u32(9);
      this.u32(numbers ? 5 : 8);
      this.u64(value.length);
      for (const each of value) {
        if (numbers) this.u32(each);
        else this.text(each);
      }
    } else {
      this.u32(Number.isInteger(value) ? 4 : 6);
      if (Number.isInteger(value)) this.u32(value);
      else this.float(value);
    }
  }
  pad() {
    this.raw(Buffer.alloc(-this.#length & 31));
  }
  finish() {
    return Buffer.concat(this.#parts);
  }
}

/**
 * A GGUF file. `scripts`: pieces of text and control tokens that follow a token. `controls`: further
 * control tokens. A piece of text occurs once.
 */
export function scriptedModel({ scripts, controls = [], template }) {
  const { texts, types, follows, end } = vocabulary(scripts, controls);
  const size = texts.length;
  const width = Math.ceil(size / kWidth) * kWidth;
  const embedding = new Float32Array(size * width);
  const output = new Float32Array(size * width);
  for (let i = 0; i < size; i++) {
    embedding[i * width + i] = 1;
    output[(follows.get(i) ?? end) * width + i] = 10;
  }
  const ones = new Float32Array(width).fill(1);
  const zeros = (rows) => new Float32Array(width * rows);
  const tensors = [
    ['token_embd.weight', [width, size], embedding],
    ['output.weight', [width, size], output],
    ['output_norm.weight', [width], ones],
    ['blk.0.attn_norm.weight', [width], ones],
    ['blk.0.ffn_norm.weight', [width], ones],
    ...['q', 'k', 'v', 'output'].map((name) => [
      `blk.0.attn_${name}.weight`,
      [width, width],
      zeros(width),
    ]),
    ['blk.0.ffn_gate.weight', [width, kWidth], zeros(kWidth)],
    ['blk.0.ffn_up.weight', [width, kWidth], zeros(kWidth)],
    ['blk.0.ffn_down.weight', [kWidth, width], zeros(kWidth)],
  ];
  const metadata = {
    'general.architecture': 'llama',
    'general.name': 'script',
    'llama.context_length': 4096,
    'llama.embedding_length': width,
    'llama.block_count': 1,
    'llama.feed_forward_length': kWidth,
    'llama.attention.head_count': width / kWidth,
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'gpt-2',
    'tokenizer.ggml.tokens': texts,
    'tokenizer.ggml.token_type': types,
    'tokenizer.ggml.merges': [],
    'tokenizer.ggml.eos_token_id': end,
    'tokenizer.chat_template': template,
  };
  const file = new Writer();
  file.raw(Buffer.from('GGUF'));
  file.u32(3);
  file.u64(tensors.length);
  file.u64(Object.keys(metadata).length);
  for (const [name, value] of Object.entries(metadata)) {
    file.text(name);
    file.value(value);
  }
  let offset = 0;
  for (const [name, shape, data] of tensors) {
    file.text(name);
    file.u32(shape.length);
    for (const count of shape) file.u64(count);
    file.u32(0); // F32
    file.u64(offset);
    offset += Math.ceil(data.byteLength / 32) * 32;
  }
  file.pad();
  for (const [, , data] of tensors) {
    file.raw(Buffer.from(data.buffer));
    file.pad();
  }
  return file.finish();
}
