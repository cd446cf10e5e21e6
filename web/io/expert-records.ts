// Experts of a mixture in QSF files of version 2: an expert is one record, with a checksum of its
// own (src/qsf/experts.h). Their tensors have virtual addresses from 2^52 on, 2^40 for each layer, as
// if each were in one piece. Here is where a range of them is in the records. The engine verifies the
// checksum of the table; here it is only read safely.

import { SluiceError } from '../protocol/errors.js';
import { kExperts } from './model-file.js';

/** Bytes that one checksum covers. */
export interface ExpertRecord {
  /** In the file, and its bytes. */
  offset: number;
  stored: number;
  crc: number;
}

/** A range of a record. */
export interface RecordPart {
  record: ExpertRecord;
  at: number;
  bytes: number;
}

interface ExpertTensor {
  /** Virtual, of the whole tensor. */
  address: number;
  bytes: number;
  /** Bytes of one expert, and their place in its record. */
  slice: number;
  place: number;
}

interface Layer {
  tensors: ExpertTensor[];
  records: ExpertRecord[];
}

const kLayerRoom = 2 ** 40;
const kAlignment = 4096;
const kMaxRecords = 1 << 16;
const kMaxTensors = 64;
/** Bytes of the largest table: each layer has at least one record. */
const kMaxTable = kMaxRecords * 4 * (6 + kMaxTensors + 1);

const roundUp = (n: number, unit: number): number => Math.ceil(n / unit) * unit;

export class ExpertRecords {
  /** Bytes of the largest record; 0 without experts. */
  readonly largest: number = 0;
  readonly #layers: Layer[] = [];
  readonly #name: string;

  /** `table`: the bytes of the table of experts. `name`: of the file, for errors. */
  constructor(table: DataView, name: string) {
    this.#name = name;
    let count = 0;
    for (let entry = 0; entry < table.byteLength;) {
      const layer = this.#readLayer(table, entry);
      this.#layers.push(layer);
      count += layer.records.length;
      if (count > kMaxRecords) throw this.#invalid();
      this.largest = Math.max(this.largest, layer.records[0]!.stored);
      entry += 4 * (6 + layer.tensors.length + layer.records.length);
    }
  }

  /** The table's size in bytes, if a file can have such a table; else throws BAD_HEADER. */
  static checkedSize(bytes: number, inside: boolean, name: string): number {
    if (!inside || bytes > kMaxTable) throw invalidTable(name);
    return bytes;
  }

  /** The parts of records that hold a range of virtual addresses. Throws TRUNCATED outside tensors. */
  parts(offset: number, length: number): RecordPart[] {
    const layer = this.#layers[Math.floor((offset - kExperts) / kLayerRoom)];
    const tensor = layer?.tensors.filter((t) => t.address <= offset).pop();
    let at = offset - (tensor?.address ?? 0);
    if (!layer || !tensor || at + length > tensor.bytes)
      throw new SluiceError('TRUNCATED', `A read exceeds a tensor of experts of ${this.#name}.`);
    const parts: RecordPart[] = [];
    for (const end = at + length; at < end;) {
      const skip = at % tensor.slice;
      const bytes = Math.min(end - at, tensor.slice - skip);
      const record = layer.records[Math.floor(at / tensor.slice)]!;
      parts.push({ record, at: tensor.place + skip, bytes });
      at += bytes;
    }
    return parts;
  }

  #readLayer(table: DataView, entry: number): Layer {
    const field = (i: number): number => {
      if (entry + 4 * i + 4 > table.byteLength) throw this.#invalid();
      return table.getUint32(entry + 4 * i, true);
    };
    const [offset, stored] = [field(0) + field(1) * 2 ** 32, field(2)];
    const [experts, count, alignment] = [field(3), field(4), field(5)];
    if (!experts || !count || count > kMaxTensors || !alignment) throw this.#invalid();
    let [address, place] = [kExperts + this.#layers.length * kLayerRoom, 0];
    const room = address + kLayerRoom;
    const tensors: ExpertTensor[] = [];
    for (let i = 0; i < count; i++) {
      const slice = field(6 + i);
      address = roundUp(address, alignment);
      place = roundUp(place, alignment);
      const bytes = experts * slice;
      if (!slice || place + slice > stored || address + bytes > room) throw this.#invalid();
      tensors.push({ address, bytes, slice, place });
      address += bytes;
      place += slice;
    }
    const stride = roundUp(stored, kAlignment);
    const records: ExpertRecord[] = [];
    for (let e = 0; e < experts; e++)
      records.push({ offset: offset + e * stride, stored, crc: field(6 + count + e) });
    return { tensors, records };
  }

  #invalid(): SluiceError {
    return invalidTable(this.#name);
  }
}

const invalidTable = (name: string): SluiceError =>
  new SluiceError('BAD_HEADER', `The table of experts of ${name} is invalid.`);
