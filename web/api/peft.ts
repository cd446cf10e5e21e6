// Converts a PEFT adapter (adapter_config.json and adapter_model.safetensors) to one GGUF file. The
// tensors get the model's names, their bytes stay as they are, and a key states their row order.
// Only plain LoRA is supported: any other key or tensor is an error that names it, as in
// src/adapter/peft.cpp.
// Format: https://huggingface.co/docs/peft/developer_guides/checkpoint

/** Throws an error with this code. */
export type Refuse = (code: string, message: string) => never;

const kMaxConfig = 1 << 20;
const kMaxDirectory = 16 << 20;
const kTypes: Record<string, number> = { F32: 0, F16: 1, BF16: 30 };
const kAlignment = 32;

/** Unsupported options: with them an adapter is more than the product of two matrices. */
const kRefused = [
  'use_dora',
  'use_qalora',
  'lora_bias',
  'fan_in_fan_out',
  'alpha_pattern',
  'modules_to_save',
  'arrow_config',
  'target_parameters',
  'trainable_token_indices',
  'layer_replication',
  'alora_invocation_tokens',
];

/** Names of a layer's modules: PEFT's to GGUF's. */
const kModules: Record<string, string> = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
};

type Tensor = { name: string; type: number; shape: number[]; begin: number; end: number };

/** Whether a key has an effect: not if it is null, false, '' or empty. */
const isSet = (value: unknown): boolean =>
  typeof value === 'object' && value !== null
    ? Object.keys(value).length > 0
    : typeof value === 'number' || !!value;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

async function parse(blob: Blob, what: string, refuse: Refuse): Promise<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(await blob.text());
    if (isObject(value)) return value;
  } catch {
    // Reported below.
  }
  return refuse('BAD_HEADER', `${what} is not a JSON object.`);
}

/** Reads lora_alpha, and whether it is divided by the square root of the rank. */
async function readConfig(
  blob: Blob,
  refuse: Refuse,
): Promise<{ alpha: number; stabilized: boolean }> {
  const name = 'adapter_config.json';
  if (blob.size > kMaxConfig)
    refuse('BAD_HEADER', `${name} has ${blob.size} bytes; at most 1 MiB is allowed.`);
  const config = await parse(blob, name, refuse);
  const unsupported = (what: string): never =>
    refuse('UNSUPPORTED_ARCHITECTURE', `${name}: ${what} is not supported.`);
  if (config.peft_type !== 'LORA')
    unsupported(`the adapter's type ${JSON.stringify(config.peft_type ?? '')}`);
  for (const key of kRefused) if (isSet(config[key])) unsupported(key);
  if ((config.bias ?? 'none') !== 'none') unsupported('bias');
  // Other initializations also change the weights of the model itself.
  const begun = config.init_lora_weights;
  if (typeof begun === 'string' && !/^(gaussian|eva|orthogonal)?$/.test(begun))
    unsupported('init_lora_weights');
  const alpha = config.lora_alpha;
  if (typeof alpha !== 'number' || !alpha)
    return refuse('BAD_HEADER', `${name}: lora_alpha is missing or invalid.`);
  return { alpha, stabilized: config.use_rslora === true };
}

/**
 * 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' to 'blk.0.attn_q.weight.lora_a';
 * '' when unknown.
 */
function modelName(name: string): string {
  const match =
    /^(?:base_model\.model\.)?(.*)\.lora_(embedding_)?([AB])(?:\.default)?(\.weight)?$/.exec(name);
  if (!match || !match[2] !== !!match[4]) return '';
  const module = match[1]!.replace(/^model\./, '');
  const layer = /^layers\.(\d{1,5})\.(.*)$/.exec(module);
  const part =
    layer && Object.hasOwn(kModules, layer[2]!) && `blk.${layer[1]}.${kModules[layer[2]!]}`;
  const found =
    part || ({ embed_tokens: 'token_embd', lm_head: 'output' } as Record<string, string>)[module];
  if (!found || (found === 'token_embd') !== !!match[2]) return '';
  return `${found}.weight.lora_${match[3]!.toLowerCase()}`;
}

function readTensor(name: string, value: unknown, bytes: number, refuse: Refuse): Tensor {
  const bad = (what: string): never =>
    refuse('BAD_HEADER', `adapter_model.safetensors: the tensor ${JSON.stringify(name)} ${what}.`);
  const ours = modelName(name);
  if (!ours)
    refuse(
      'UNSUPPORTED_ARCHITECTURE',
      `The adapter's tensor ${JSON.stringify(name)} is not supported.`,
    );
  const { dtype, shape, data_offsets: offsets } = isObject(value) ? value : bad('is not an object');
  const whole = (list: unknown): list is number[] =>
    Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (
    !whole(shape) ||
    shape.length < 1 ||
    shape.length > 4 ||
    !whole(offsets) ||
    offsets.length !== 2
  )
    return bad('has an incomplete directory entry');
  const type = Object.hasOwn(kTypes, String(dtype))
    ? kTypes[String(dtype)]!
    : refuse(
        'UNSUPPORTED_TYPE',
        `The tensor ${JSON.stringify(name)} has the type ${String(dtype)}; F32, F16 and BF16 ` +
          'are supported.',
      );
  const [begin, end] = offsets as [number, number];
  if (end > bytes)
    refuse(
      'TRUNCATED',
      `adapter_model.safetensors: the tensor ${JSON.stringify(name)} ends after the end of ` +
        'the file.',
    );
  if (shape.reduce((a, b) => a * b, type === 0 ? 4 : 2) !== end - begin)
    bad('has a shape that does not fit its bytes');
  return { name: ours, type, shape, begin, end };
}

/** Writes the header of a GGUF file. */
class Writer {
  readonly #parts: Uint8Array[] = [];
  bytes = 0;

  #number(size: number, set: (view: DataView) => void): this {
    const view = new DataView(new ArrayBuffer(size));
    set(view);
    return this.raw(new Uint8Array(view.buffer));
  }

  raw(part: Uint8Array): this {
    this.#parts.push(part);
    this.bytes += part.length;
    return this;
  }

  u32 = (n: number): this => this.#number(4, (view) => view.setUint32(0, n, true));
  u64 = (n: number): this => this.#number(8, (view) => view.setBigUint64(0, BigInt(n), true));
  f64 = (n: number): this => this.#number(8, (view) => view.setFloat64(0, n, true));

  text(text: string): this {
    const utf8 = new TextEncoder().encode(text);
    return this.u64(utf8.length).raw(utf8);
  }

  /** GGUF value types: 7 bool, 8 string, 12 float64. */
  key(name: string, value: string | boolean | number): this {
    this.text(name);
    if (typeof value === 'string') return this.u32(8).text(value);
    return typeof value === 'boolean'
      ? this.u32(7).raw(Uint8Array.of(value ? 1 : 0))
      : this.u32(12).f64(value);
  }

  pad = (): this => this.raw(new Uint8Array(-this.bytes & (kAlignment - 1)));
  parts = (): BlobPart[] => this.#parts as BlobPart[];
}

/** The GGUF file as a Blob. Tensor data is not read, only referenced. */
export async function adapterOfPeft(config: Blob, weights: Blob, refuse: Refuse): Promise<Blob> {
  const { alpha, stabilized } = await readConfig(config, refuse);
  const file = 'adapter_model.safetensors';
  if (weights.size < 8) refuse('TRUNCATED', `${file} is too short for a safetensors file.`);
  const length = Number(
    new DataView(await weights.slice(0, 8).arrayBuffer()).getBigUint64(0, true),
  );
  if (length > kMaxDirectory)
    refuse(
      'BAD_HEADER',
      `${file} is not a safetensors file: its header length is ${length} bytes.`,
    );
  if (8 + length > weights.size) refuse('TRUNCATED', `${file} ends inside its header.`);
  const start = 8 + length;
  const { __metadata__: _, ...entries } = await parse(
    weights.slice(8, start),
    `${file}'s header`,
    refuse,
  );
  const tensors = Object.entries(entries).map(([name, value]) =>
    readTensor(name, value, weights.size - start, refuse),
  );
  const header = new Writer()
    .raw(new TextEncoder().encode('GGUF'))
    .u32(3)
    .u64(tensors.length)
    .u64(6);
  header
    .key('general.type', 'adapter')
    .key('general.architecture', 'peft')
    .key('adapter.type', 'lora');
  header
    .key('adapter.lora.alpha', alpha)
    .key('sluice.checkpoint', true)
    .key('sluice.rank_stabilized', stabilized);
  const data: BlobPart[] = [];
  let at = 0;
  for (const { name, type, shape, begin, end } of tensors) {
    header.text(name).u32(shape.length);
    for (const n of [...shape].reverse()) header.u64(n);
    header.u32(type).u64(at);
    const padding = -(end - begin) & (kAlignment - 1);
    data.push(weights.slice(start + begin, start + end), new Uint8Array(padding));
    at += end - begin + padding;
  }
  return new Blob([...header.pad().parts(), ...data]);
}
