// Saves and restores the state of a sequence whose KV cache only the GPU has, in gpu-kv.js. The engine reads
// and writes everything else of a state (src/session/session_state.cpp). The rows of the KV cache pass
// through memory in the engine's layout, a layer at a time.

import { SluiceError } from '../protocol/errors.js';
import type { Buffers } from './buffers.js';
import { Usage } from './buffers.js';
import type { GpuKvCache, Layer } from './kv-cache.js';
import { rowsOf } from './kv-cache.js';
import { KvType, type CacheShape, type Program } from './program.js';

/** Bytes of a state's header: StateHeader, whose last four words begin with the numbers of lists. */
const kHeader = 112;
/** Positions of a group in q4_0. */
const kGroup = 64;

/** Bytes of a state that are rows of a head. */
interface Segment {
  at: number;
  bytes: number;
  /** Where they are in the layer's memory; -1: in none. */
  own: number;
}

/** Bytes [at, end) of a state, which are a layer's. */
interface Section {
  layer: Layer;
  first: number;
  at: number;
  end: number;
  segments: Segment[];
}

/** A part of a head: `units` of `bytes` bytes, each of so many positions. Copies: of the last group. */
interface Part {
  positions: number;
  units: number;
  bytes: number;
  copies?: boolean;
}

const blocks = (n: number): number => Math.ceil(n / 32);

function partsOf(shape: CacheShape): Part[] {
  const { dk, dv, type, capacity } = shape;
  if (type === KvType.F16)
    return [dk, dv].map((n) => ({ positions: 1, units: capacity, bytes: 2 * n }));
  if (type === KvType.Q8)
    return [dk, dv].map((n) => ({ positions: 1, units: capacity, bytes: 34 * blocks(n) }));
  const { recent } = rowsOf(shape);
  const units = Math.ceil(capacity / kGroup);
  return [
    ...[dk, dv].map((n) => ({ positions: kGroup, units, bytes: kGroup * 18 * blocks(n) })),
    ...[dk, dv].map((n) => ({ positions: 1, units: recent, bytes: 2 * n, copies: true })),
  ];
}

/** Segments of a layer from byte `at` of the state on, with the positions [first, position). */
function segmentsOf(shape: CacheShape, at: number, first: number, position: number): Segment[] {
  const segments: Segment[] = [];
  const add = (bytes: number, own: number): void => {
    if (bytes) segments.push({ at, bytes, own });
    at += bytes;
  };
  for (let head = 0; head < shape.heads; head++) {
    let own = head * shape.headBytes;
    for (const { positions, units, bytes, copies } of partsOf(shape)) {
      let from = Math.floor((copies ? position - (position % kGroup) : first) / positions);
      const to = Math.floor(position / positions);
      const gone = bytes ? Math.max(0, to - units - from) : 0;
      add(gone * bytes, -1);
      for (from += gone; bytes && from < to;) {
        const place = from % units;
        const n = Math.min(to - from, units - place);
        add(n * bytes, own + place * bytes);
        from += n;
      }
      own += units * bytes;
    }
  }
  return segments;
}

export class KvState {
  readonly #program: Program;
  readonly #device: GPUDevice;
  /** By slot. */
  readonly #caches: GpuKvCache[];
  readonly #chunk: GPUBuffer;
  #cache!: GpuKvCache;
  #position = 0;
  #sections: Section[] = [];
  /** The section whose layer is in memory. */
  #current: Section | undefined;
  #own = new Uint8Array();

  constructor(
    program: Program,
    device: GPUDevice,
    buffers: Pick<Buffers, 'make'>,
    caches: GpuKvCache[],
    chunkBytes: number,
  ) {
    this.#program = program;
    this.#device = device;
    this.#caches = caches;
    this.#chunk = buffers.make(chunkBytes, Usage.MapRead | Usage.CopyTarget);
  }

  /** Begins with a state of the sequence in `slot`, whose first bytes are `head`. Errors: CORRUPT. */
  begin(slot: number, head: Uint8Array): void {
    const copy = head.slice();
    const view = new DataView(copy.buffer);
    const word = (at: number): number => view.getUint32(at, true);
    const { caches } = this.#program;
    const lists =
      copy.length < kHeader ? Infinity : caches.length + word(kHeader - 12) + 4 * word(kHeader - 8);
    if (kHeader + 4 * lists > copy.length)
      throw new SluiceError('CORRUPT', 'The saved state is damaged or has too many lists.');
    this.#cache = this.#caches[slot]!;
    this.#position = word(4);
    this.#sections = [];
    this.#current = undefined;
    let at = kHeader + 4 * lists + 4 * this.#position;
    for (const layer of this.#cache.layers) {
      const first = word(kHeader + 4 * layer.index);
      const segments = segmentsOf(layer.shape, at, first, this.#position);
      const end = segments.reduce((sum, { bytes }) => sum + bytes, at);
      this.#sections.push({ layer, first, at, end, segments });
      at = end;
    }
  }

  /** Writes keys and values to a piece of a state that begins at byte `offset`. */
  async save(piece: Uint8Array, offset: number): Promise<void> {
    for (const section of this.#within(offset, piece.length)) {
      if (this.#enter(section)) await this.#download(section);
      this.#overlaps(section, offset, piece.length, (from, n, own) => {
        if (own >= 0) piece.set(this.#own.subarray(own, own + n), from);
        else piece.fill(0, from, from + n);
      });
    }
  }

  /** Takes keys and values from a piece. Pieces come in order. */
  restore(piece: Uint8Array, offset: number): void {
    for (const section of this.#within(offset, piece.length)) {
      this.#enter(section);
      this.#overlaps(section, offset, piece.length, (from, n, own) => {
        if (own >= 0) this.#own.set(piece.subarray(from, from + n), own);
      });
      if (section.end <= offset + piece.length) this.#upload(section);
    }
  }

  /** Copies the rows of the first `n` positions to another slot. */
  copy(from: number, to: number, n: number): void {
    const encoder = this.#device.createCommandEncoder();
    const [own, other] = [this.#caches[from]!, this.#caches[to]!];
    for (const [i, layer] of own.layers.entries())
      for (const [{ at, row }, { place, count }] of own.runs(layer, 0, n)) {
        const begin = at + place * row;
        const { buffer } = other.layers[i]!;
        encoder.copyBufferToBuffer(layer.buffer, begin, buffer, begin, count * row);
      }
    this.#device.queue.submit([encoder.finish()]);
  }

  #within(offset: number, length: number): Section[] {
    return this.#sections.filter(({ at, end }) => at < offset + length && offset < end);
  }

  /** Makes the memory that of a section's layer. False: it has been. */
  #enter(section: Section): boolean {
    if (this.#current === section) return false;
    this.#current = section;
    const { heads, headBytes } = section.layer.shape;
    if (this.#own.length !== heads * headBytes) this.#own = new Uint8Array(heads * headBytes);
    return true;
  }

  /** Visits what a piece and the segments of a section have in common. */
  #overlaps(
    { segments }: Section,
    offset: number,
    length: number,
    visit: (from: number, n: number, own: number) => void,
  ): void {
    for (const { at, bytes, own } of segments) {
      const begin = Math.max(at, offset);
      const n = Math.min(at + bytes, offset + length) - begin;
      if (n > 0) visit(begin - offset, n, own < 0 ? own : own + begin - at);
    }
  }

  /** Rows of a section, at most as many at a time as the chunk holds. */
  *#chunks({ layer, first }: Section) {
    for (const [rows, run] of this.#cache.runs(layer, first, this.#position - first)) {
      const most = Math.floor(this.#chunk.size / rows.row);
      for (let done = 0; done < run.count; done += most)
        yield { rows, place: run.place + done, count: Math.min(most, run.count - done) };
    }
  }

  async #download(section: Section): Promise<void> {
    const { layer } = section;
    for (const { rows, place, count } of this.#chunks(section)) {
      const size = count * rows.row;
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(layer.buffer, rows.at + place * rows.row, this.#chunk, 0, size);
      this.#device.queue.submit([encoder.finish()]);
      await this.#chunk.mapAsync(Usage.MapRead, 0, size);
      const bytes = new Uint8Array(this.#chunk.getMappedRange(0, size));
      this.#cache.format.copy(this.#own, 0, layer, rows, place, bytes, false);
      this.#chunk.unmap();
    }
  }

  #upload(section: Section): void {
    const { layer } = section;
    for (const { rows, place, count } of this.#chunks(section)) {
      const bytes = new Uint8Array(count * rows.row);
      this.#cache.format.copy(this.#own, 0, layer, rows, place, bytes, true);
      this.#device.queue.writeBuffer(layer.buffer, rows.at + place * rows.row, bytes);
    }
  }
}
