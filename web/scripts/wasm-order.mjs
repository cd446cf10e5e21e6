// Orders the functions of a wasm binary for compression. gzip finds repetitions within 32 kB, so
// functions with much in common belong together: the engines become 3 % smaller than in order of
// names. Each next function is the one that shares most runs of bytes with those just before it.

const kRun = 7; // bytes
const kWindow = 28_000; // bytes of functions before, within gzip's reach
const kMaxShared = 1000; // runs that more functions have say nothing
// The functions that are called most come first, so that calls to them have an index of one byte.
const kHotFunctions = 60;

/** A reader of LEB128 numbers and sections. */
class Reader {
  at = 0;
  constructor(bytes) {
    this.bytes = bytes;
  }
  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }
}

/** The sections of a binary, `from` and `end` in bytes. `reader` is at the content of each. */
function* sections(bytes) {
  const reader = new Reader(bytes);
  for (let from = 8; from < bytes.length; from = reader.at) {
    reader.at = from + 1;
    const end = reader.number() + reader.at;
    yield { id: bytes[from], from, end, reader };
    reader.at = end;
  }
}

/** How many functions the binary imports, and the bodies of its own, in order. */
function functions(bytes) {
  const bodies = [];
  let imported = 0;
  for (const { id, reader } of sections(bytes)) {
    if (id === 2) {
      for (let n = reader.number(); n > 0; n--) imported += readImport(reader);
    } else if (id === 10) {
      for (let n = reader.number(); n > 0; n--) {
        const size = reader.number();
        bodies.push(bytes.subarray(reader.at, (reader.at += size)));
      }
    }
  }
  return { imported, bodies };
}

/** Reads an import: 1 if it is a function. Node may not know the binary's instructions. */
function readImport(reader) {
  for (const _ of ['module', 'name']) {
    const length = reader.number();
    reader.at += length;
  }
  const kind = reader.number(); // function, table, memory, global
  if (kind === 1 || kind === 3) reader.at++; // type of the elements or the value
  const limits = kind === 1 || kind === 2;
  const flags = reader.number(); // or a function's type, or whether a global is mutable
  if (limits) for (let n = flags & 1 ? 2 : 1; n > 0; n--) reader.number();
  return kind === 0 ? 1 : 0;
}

/** Hashes of all runs of bytes. */
function runs(body) {
  const out = new Set();
  for (let at = 0; at + kRun <= body.length; at++) {
    let hash = 0;
    for (let i = 0; i < kRun; i++) hash = Math.imul(hash, 0x01000193) ^ body[at + i];
    out.add(hash);
  }
  return out;
}

/** Indices of the bodies, in an order in which neighbours have much in common. */
export function similarOrder(bodies) {
  const runsOf = bodies.map(runs);
  const owners = new Map(); // by run: the bodies that have it
  for (const [i, own] of runsOf.entries())
    for (const run of own) {
      if (!owners.has(run)) owners.set(run, []);
      owners.get(run).push(i);
    }
  const shared = new Float64Array(bodies.length); // runs in common with the window
  const inWindow = new Map(); // by run: how many bodies of the window have it
  const count = (i, by) => {
    for (const run of runsOf[i]) {
      const n = inWindow.get(run) ?? 0;
      inWindow.set(run, n + by);
      if (n !== 0 && n + by !== 0) continue;
      const list = owners.get(run);
      if (list.length <= kMaxShared) for (const j of list) shared[j] += by;
    }
  };
  const order = [];
  const left = new Set(bodies.keys());
  let first = 0; // of the window
  let size = 0;
  for (let next = 0; left.size > 0;) {
    left.delete(next);
    order.push(next);
    count(next, 1);
    size += bodies[next].length;
    for (; size > kWindow && first < order.length - 1; first++) {
      size -= bodies[order[first]].length;
      count(order[first], -1);
    }
    let best = -1;
    for (const i of left) {
      const worth = shared[i] / (bodies[i].length + 30) ** 0.6; // long functions share more
      if (worth > best) [best, next] = [worth, i];
    }
  }
  return order;
}

function leb(value) {
  const out = [];
  for (; value > 127; value >>>= 7) out.push((value & 127) | 128);
  return Buffer.from([...out, value]);
}
const text = (value) => Buffer.concat([leb(value.length), Buffer.from(value)]);

/**
 * The binary with a name section, in which the names of its functions sort in similarOrder(): for
 * wasm-opt's --reorder-functions-by-name. Its functions must be in the order of use, without names.
 */
export function namedByOrder(bytes) {
  const { imported, bodies } = functions(bytes);
  const order = [
    ...similarOrder(bodies.slice(0, kHotFunctions)),
    ...similarOrder(bodies.slice(kHotFunctions)).map((i) => i + kHotFunctions),
  ];
  const place = [];
  for (const [at, i] of order.entries()) place[i] = at;
  const names = place.map((at, i) =>
    Buffer.concat([leb(imported + i), text(String(at).padStart(6, '0'))]),
  );
  const list = Buffer.concat([leb(names.length), ...names]);
  const section = Buffer.concat([text('name'), Buffer.from([1]), leb(list.length), list]);
  return Buffer.concat([bytes, Buffer.from([0]), leb(section.length), section]);
}

/** The binary without custom sections, which have its functions' names. */
export function withoutNames(bytes) {
  const kept = [...sections(bytes)].filter(({ id }) => id !== 0);
  return Buffer.concat([
    bytes.subarray(0, 8),
    ...kept.map(({ from, end }) => bytes.subarray(from, end)),
  ]);
}
