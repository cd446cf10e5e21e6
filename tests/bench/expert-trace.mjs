// Traces of a router's choices, as JSON lines (docs/mixtures.md): reading, writing, and synthetic
// ones. A generator draws from a seeded random stream, so a command line names a trace exactly.
import { readFileSync } from 'node:fs';

export const kFormat = 'sluice-expert-trace';

/**
 * A trace: `tokens[t][layer]` is the list of experts that token t uses in a mixture layer. It is
 * empty where a layer was not computed, as the last one is for all of a prompt but its end.
 * Throws an Error that names the line of the first mistake.
 */
export function parseTrace(text) {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  if (lines.length === 0) throw new Error('the trace is empty');
  const { format, version, layers, experts, used } = JSON.parse(lines[0]);
  if (format !== kFormat || version !== 1) throw new Error(`line 1: not a ${kFormat} of version 1`);
  const tokens = lines.slice(1).map((line, i) => {
    const token = JSON.parse(line);
    const right =
      Array.isArray(token) &&
      token.length === layers &&
      token.every(
        (chosen) =>
          Array.isArray(chosen) &&
          chosen.length <= used &&
          new Set(chosen).size === chosen.length &&
          chosen.every((e) => Number.isInteger(e) && e >= 0 && e < experts),
      );
    if (!right) throw new Error(`line ${i + 2}: not ${layers} lists of at most ${used} experts`);
    return token;
  });
  return { layers, experts, used, tokens };
}

export const readTrace = (path) => parseTrace(readFileSync(path, 'utf8'));

export function formatTrace({ layers, experts, used, tokens }) {
  const head = { format: kFormat, version: 1, layers, experts, used };
  return [head, ...tokens].map((line) => `${JSON.stringify(line)}\n`).join('');
}

/** Uniform numbers in [0, 1) from a 32-bit seed (mulberry32). */
export function randomStream(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * A synthetic trace. Every layer has its own popularity: expert of rank r has the weight
 * 1 / (r + 1)^skew, ranks in a random order. A choice repeats, with the probability `reuse`, an
 * expert that was used at most `distance` tokens before; otherwise it is drawn by popularity.
 * skew 0 and reuse 0: uniform random routing.
 */
export function syntheticTrace({
  layers,
  experts,
  used,
  tokens,
  skew = 0,
  reuse = 0,
  distance = 1,
  seed = 1,
}) {
  const random = randomStream(seed);
  const below = (n) => Math.floor(random() * n);
  const shuffled = () => {
    const order = Array.from({ length: experts }, (_, i) => i);
    for (let i = experts - 1; i > 0; i--) {
      const j = below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  };
  const popular = Array.from({ length: layers }, shuffled);
  const sums = [];
  for (let r = 0; r < experts; r++) sums.push((sums[r - 1] ?? 0) + 1 / (r + 1) ** skew);
  const drawn = (layer) => {
    const at = random() * sums.at(-1);
    return popular[layer][sums.findIndex((sum) => sum > at)];
  };
  const out = [];
  for (let t = 0; t < tokens; t++) {
    out.push(
      popular.map((_, layer) => {
        const recent = [...new Set(out.slice(-distance).flatMap((token) => token[layer]))];
        const chosen = new Set();
        while (chosen.size < used) {
          const again = recent.length > 0 && random() < reuse;
          chosen.add(again ? recent[below(recent.length)] : drawn(layer));
        }
        return [...chosen];
      }),
    );
  }
  return { layers, experts, used, tokens: out };
}
