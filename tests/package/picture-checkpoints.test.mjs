// The vision tower of a Hugging Face directory as a projector, in Node and in Chromium: a directory
// made of a fixture's projector (../shared/fixtures/vision), in which attention has one matrix and the
// convolution both frames, gives the tokens of llama.cpp.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { serve } from '../../web/scripts/serve.mjs';
import { readGguf, Safetensors, tokenizer, usualNames } from '../web/checkpoints.mjs';
import { crossOrigin, inTab, launch } from '../web/chromium.mjs';
import { Engine } from '../../dist/node.js';

const vision = inRoot('..', 'shared', 'fixtures', 'vision');
const missing = !existsSync(vision) && 'no ../shared/fixtures/vision';
const family =
  !missing &&
  JSON.parse(readFileSync(join(vision, 'manifest.json'))).find(({ name }) => name === 'qwen2.5vl');
const entry = missing || family.cases.find(({ media }) => media.every((m) => m.endsWith('.png')));
const greedy = !missing && { temperature: 0, maxTokens: entry.greedy.length, ignoreEos: true };
const folder = mkdtempSync(join(tmpdir(), 'sluice-tower-'));

const kNames = [
  ['v.patch_embd.', 'patch_embed.proj.'],
  ['v.post_ln.', 'merger.ln_q.'],
  ['mm.', 'merger.mlp.'],
  ['ln1.', 'norm1.'],
  ['ln2.', 'norm2.'],
  ['attn_out.', 'attn.proj.'],
  ['ffn_gate.', 'mlp.gate_proj.'],
  ['ffn_up.', 'mlp.up_proj.'],
  ['ffn_down.', 'mlp.down_proj.'],
];

function theirName(ours) {
  const [, block = '', rest] = /^v\.(blk\.\d+\.)?(.*)$/.exec(ours) ?? [, , ours];
  const own = block ? rest : ours;
  const [from, to] = kNames.find(([from]) => own.startsWith(from)) ?? assert.fail(ours);
  return `visual.${block.replace('blk', 'blocks')}${to}${own.slice(from.length)}`;
}

/** [rows][channels][frame][plane] of two convolutions. */
function bothFrames(a, b, planeBytes) {
  const planes = [];
  for (let at = 0; at < a.length; at += planeBytes)
    planes.push(a.subarray(at, at + planeBytes), b.subarray(at, at + planeBytes));
  return Buffer.concat(planes);
}

/** The text model under transformers' names. */
function putText(tensors, put) {
  const names = { ...usualNames, ffn_norm: 'post_attention_layernorm' };
  for (const t of tensors) {
    const [, layer, own, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(t.name);
    const where = layer ? `model.layers.${layer}.` : own === 'output' ? '' : 'model.';
    put(t, `${where}${names[own]}.${kind}`, t.data);
  }
}

/** Writes the vision tower, and the text model if its tensors are given. */
function writeDirectory(tensors, to, text = []) {
  const named = new Map(tensors.map((t) => [t.name, t]));
  const out = new Safetensors();
  const put = ({ type, ne }, name, data, shape = [...ne].reverse()) =>
    out.tensor(name, type === 0 ? 'F32' : 'F16', shape, data);
  for (const t of tensors) {
    const { name, data, ne } = t;
    if (name.endsWith('.weight.1') || /attn_[kv]\./.test(name)) continue;
    const second = named.get(`${name}.1`);
    if (second) {
      const plane = ne[0] * ne[1] * (data.length / ne.reduce((a, b) => a * b, 1));
      const shape = [ne[3], ne[2], 2, ne[1], ne[0]];
      put(t, theirName(name), bothFrames(data, second.data, plane), shape);
    } else if (name.includes('attn_q.')) {
      const parts = ['q', 'k', 'v'].map((which) =>
        named.get(name.replace('attn_q', `attn_${which}`)),
      );
      const shape = [...ne].reverse();
      shape[0] *= 3;
      const whole = name.replace('attn_q.', 'attn_out.');
      const joined = Buffer.concat(parts.map((part) => part.data));
      put(t, theirName(whole).replace('attn.proj', 'attn.qkv'), joined, shape);
    } else put(t, theirName(name), data);
  }
  putText(text, put);
  const config = {
    model_type: 'qwen2_5_vl',
    vocab_size: 331,
    num_hidden_layers: 2,
    max_position_embeddings: 4096,
    num_attention_heads: 3,
    num_key_value_heads: 1,
    hidden_size: 48,
    intermediate_size: 80,
    rms_norm_eps: 9.999999747378752e-6,
    rope_theta: 1e6,
    rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] },
    vision_config: {
      depth: 4,
      hidden_act: 'silu',
      hidden_size: 32,
      intermediate_size: 72,
      num_heads: 2,
      patch_size: 14,
      spatial_merge_size: 2,
      temporal_patch_size: 2,
      window_size: 112,
      fullatt_block_indexes: [1, 3],
    },
  };
  mkdirSync(to, { recursive: true });
  writeFileSync(join(to, 'config.json'), JSON.stringify(config));
  writeFileSync(join(to, 'preprocessor_config.json'), '{}');
  writeFileSync(join(to, 'tokenizer.json'), JSON.stringify(tokenizer()));
  writeFileSync(join(to, 'tokenizer_config.json'), '{}');
  writeFileSync(join(to, 'model.safetensors'), out.build());
}

async function tokensOf(generation) {
  const out = [];
  for await (const { token } of generation) out.push(token);
  return out;
}

describe('the vision tower of a checkpoint', { skip: missing }, () => {
  before(() => {
    const { tensors } = readGguf(readFileSync(join(vision, family.mmproj)));
    writeDirectory(tensors, join(folder, 'tower'));
    const text = readGguf(readFileSync(join(vision, family.model)));
    writeDirectory(tensors, join(folder, 'whole'), text.tensors);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('from a path and from files, it gives the tokens of its GGUF file', async () => {
    const directory = join(folder, 'tower');
    const files = ['config.json', 'preprocessor_config.json', 'model.safetensors'].map(
      (name) => new File([readFileSync(join(directory, name))], name),
    );
    const images = entry.media.map((name) => readFileSync(join(vision, name)));
    for (const projector of [`${directory}/`, files]) {
      const options = { projector, contextLength: 1024, threads: 1, cache: 'none' };
      const engine = await Engine.load(join(vision, family.model), options);
      const answer = engine.generate(entry.prompt, { ...greedy, images });
      assert.deepEqual(await tokensOf(answer), entry.greedy);
      await engine.dispose();
    }
  });

  test('a directory with both is a model that sees', async () => {
    const directory = join(folder, 'whole');
    const names = ['config.json', 'tokenizer.json', 'model.safetensors'];
    const files = [...names, 'tokenizer_config.json', 'preprocessor_config.json'].map(
      (name) => new File([readFileSync(join(directory, name))], name),
    );
    const images = [readFileSync(inRoot('tests', 'data', 'pictures', 'rgb.png'))];
    const tokens = [];
    for (const [model, projector] of [
      [`${directory}/`, join(vision, family.mmproj)],
      [`${directory}/`, true],
      [files, true],
    ]) {
      const engine = await Engine.load(model, { projector, contextLength: 1024, cache: 'none' });
      const options = { temperature: 0, maxTokens: 12, ignoreEos: true, images };
      tokens.push(await tokensOf(engine.generate('hello <__media__> world', options)));
      await engine.dispose();
    }
    assert.equal(tokens[0].length, 12);
    assert.deepEqual(tokens[1], tokens[0]);
    assert.deepEqual(tokens[2], tokens[0]);
  });

  test('a directory without one is an error', async () => {
    const directory = join(folder, 'blind');
    mkdirSync(directory);
    writeFileSync(join(directory, 'config.json'), JSON.stringify({ model_type: 'llama' }));
    writeFileSync(join(directory, 'model.safetensors'), new Safetensors().build());
    await assert.rejects(
      Engine.load(join(vision, family.model), { projector: `${directory}/`, cache: 'none' }),
      { code: 'NOT_SUPPORTED', message: /"llama" has no vision projector/ },
    );
  });

  test('in Chromium, also from the cache', async () => {
    const browser = await launch();
    const mounts = [
      ['/vision/', vision],
      ['/tower/', join(folder, 'tower')],
      ['/whole/', join(folder, 'whole')],
    ];
    const server = await serve(mounts, crossOrigin);
    try {
      await inTab(browser, inRoot('dist'), {}, async ({ page }) => {
        const { tokens, own } = await page.evaluate(
          async ({ url, family, entry, greedy }) => {
            const images = entry.media.map((name) => `${url}/vision/${name}`);
            const read = async (model, projector, cache, prompt = entry.prompt) => {
              const options = { projector, cache, contextLength: 1024 };
              const engine = await window.Engine.load(model, options);
              const tokens = [];
              for await (const { token } of engine.generate(prompt, { ...greedy, images }))
                tokens.push(token);
              await engine.downloaded;
              await engine.dispose();
              return tokens;
            };
            const tokens = await read(`${url}/vision/${family.model}`, `${url}/tower/`);
            const own = [];
            for (const cache of ['default', 'only'])
              own.push(await read(`${url}/whole/`, true, cache, 'hello <__media__> world'));
            return { tokens, own };
          },
          { url: server.url, family, entry, greedy },
        );
        assert.deepEqual(tokens, entry.greedy);
        assert.equal(own[0].length, entry.greedy.length);
        assert.deepEqual(own[1], own[0]);
      });
    } finally {
      await browser.close();
      await server.close();
    }
  });
});
