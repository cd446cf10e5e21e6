// Hit rates of cache policies for a trace of a router's choices (expert-trace.mjs). A policy gives
// every expert in memory a value; a missing expert takes the place of the one with the least.
// `measured` follows the rule of src/residency/expert_cache.h, written apart from it.

const kHalfLife = 64; // tokens
const kMargin = 1.125;
const kMarginOfLayers = 1.5;

/** Always replaces the expert with the least value in its layer. */
function plain({ touch, value }) {
  return {
    note(used, _all, _layer, now) {
      for (const e of used) touch(e, now);
    },
    victim(_e, candidates, now) {
      return candidates.reduce(
        (least, c) => (least === undefined || value(c, now) < value(least, now) ? c : least),
        undefined,
      );
    },
  };
}

/** LRFU (Lee et al., https://doi.org/10.1109/TC.2001.970573): uses, each halved with its age. */
function lrfu(halfLife) {
  const value = (e, now) => (e.score ?? 0) * 2 ** ((e.last - now) / halfLife) || 0;
  return plain({
    touch(e, now) {
      e.score = value(e, now) + 1;
      e.last = now;
    },
    value,
  });
}

/** Belady's rule: the expert that is used again last, or never, leaves. */
function belady(trace) {
  const uses = Array.from({ length: trace.layers }, (_, layer) => {
    const next = new Map();
    const out = trace.tokens.map(() => new Map());
    for (let t = trace.tokens.length - 1; t >= 0; t--) {
      for (const e of trace.tokens[t][layer]) {
        out[t].set(e, next.get(e) ?? Infinity);
        next.set(e, t);
      }
    }
    return out;
  });
  const rule = plain({
    touch: (e, now) => (e.next = uses[e.layer][now].get(e.id)),
    value: (e) => -(e.next ?? Infinity),
  });
  const { victim } = rule;
  return {
    ...rule,
    victim(e, candidates, now) {
      const found = victim(e, candidates, now);
      return found !== undefined && (found.next ?? Infinity) > e.next ? found : undefined;
    },
  };
}

/** The probability of a use by the next token, measured for experts of like age and frequency. */
function measured(trace) {
  const kAges = [1, 2, 3, 4, 8, 16, 32, 64];
  const kFrequencies = [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5].map((half) => 2 ** (half / 2));
  const decay = 2 ** (-1 / kHalfLife);
  const cells = new Map();
  const clock = new Array(trace.layers).fill(0);
  let notes = 0;
  let other = 0;
  let everywhere;
  const uses = (e) => (e.last === undefined ? 0 : e.uses * decay ** (clock[e.layer] - e.last));
  const sums = new Array(trace.layers).fill(0); // of uses() by layer
  const mean = (layer) => sums[layer] / trace.experts;
  const cell = (e, layerMean) => {
    const age = e.last === undefined ? Infinity : clock[e.layer] - e.last + 1;
    const a = kAges.filter((edge) => age > edge).length;
    const f = uses(e) > 0 ? kFrequencies.filter((edge) => uses(e) >= edge * layerMean).length : 0;
    const key = a * 8 + f;
    if (!cells.has(key)) cells.set(key, { seen: 0, used: 0 });
    return cells.get(key);
  };
  const value = (e, layerMean) => {
    const { seen, used } = cell(e, layerMean);
    const frequency = uses(e) * (1 - decay);
    return (used + 8 * Math.min(1, frequency)) / (seen + 8) + 1e-6 * frequency;
  };
  const least = (candidates) => {
    let found;
    const layerMean = candidates.length > 0 ? mean(candidates[0].layer) : 0;
    for (const c of candidates) {
      const worth = value(c, layerMean);
      if (found === undefined || worth < found.worth) found = { c, worth };
    }
    return found;
  };
  return {
    note(used, all, layer) {
      everywhere = all;
      const layerMean = mean(layer);
      for (const e of all[layer]) {
        const c = cell(e, layerMean);
        c.seen += 1;
        c.used += used.includes(e);
      }
      if (++notes % 4096 === 0) {
        for (const c of cells.values()) Object.assign(c, { seen: c.seen / 2, used: c.used / 2 });
      }
      for (const e of used) Object.assign(e, { uses: uses(e) * decay + 1, last: clock[layer] + 1 });
      clock[layer] += 1;
      sums[layer] = sums[layer] * decay + used.length;
    },
    victim(e, candidates) {
      const worth = value(e, mean(e.layer));
      const own = least(candidates);
      let best = own && kMargin * own.worth < worth ? own : undefined;
      let price = best ? kMargin * best.worth : worth;
      if (trace.layers > 1) {
        other = (other + 1) % trace.layers;
        if (other === e.layer) other = (other + 1) % trace.layers;
        const found = least(everywhere[other].filter((c) => c.cached));
        if (found && kMarginOfLayers * found.worth < price) {
          price = kMarginOfLayers * found.worth;
          best = found;
        }
      }
      return best?.c;
    },
  };
}

/** By name: the policy for a trace. */
export const policies = {
  static: () => ({ note() {}, victim: () => undefined }),
  lru: () => plain({ touch: (e, now) => (e.last = now), value: (e) => e.last ?? -1 }),
  lfu: () => plain({ touch: (e) => (e.count = (e.count ?? 0) + 1), value: (e) => e.count ?? 0 }),
  lrfu: () => lrfu(kHalfLife),
  measured,
  belady,
};

/**
 * Counts hits and misses of a cache for `capacity` experts of all layers together. It begins with
 * an even part of every layer, as the engine's plan does, and what the first `warmup` tokens do is
 * not counted. Experts of the token that is being computed do not leave. `loads`: misses that
 * entered the cache.
 */
export function simulate(trace, policy, capacity, warmup = 0) {
  if (policies[policy] === undefined) throw new Error(`unknown policy ${policy}`);
  const rule = policies[policy](trace);
  const all = Array.from({ length: trace.layers }, (_, layer) =>
    Array.from({ length: trace.experts }, (_, id) => ({ layer, id, cached: false })),
  );
  let credit = 0;
  for (const e of all.flat()) {
    credit += capacity / (trace.layers * trace.experts);
    if (credit < 1 - 1e-9) continue;
    credit -= 1;
    e.cached = true;
  }
  const counts = { hits: 0, misses: 0, loads: 0 };
  trace.tokens.forEach((token, now) => {
    const add = (key, n) => (counts[key] += now >= warmup ? n : 0);
    token.forEach((chosen, layer) => {
      const used = chosen.map((id) => all[layer][id]);
      const missing = used.filter((e) => !e.cached);
      add('hits', used.length - missing.length);
      add('misses', missing.length);
      rule.note(used, all, layer, now);
      for (const e of missing) {
        const candidates = all[layer].filter((c) => c.cached && !used.includes(c));
        const victim = rule.victim(e, candidates, now);
        if (victim === undefined) continue;
        victim.cached = false;
        e.cached = true;
        add('loads', 1);
      }
    });
  });
  return { ...counts, hitRate: counts.hits / (counts.hits + counts.misses) };
}
