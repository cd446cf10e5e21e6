// LZ4's block format. Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

/** Decoded bytes that matches may refer to. */
const kWindow = 1 << 16;

const enum State {
  Token,
  LiteralLength,
  Literals,
  /** Behind literals. A block may end here. */
  OffsetLow,
  OffsetHigh,
  MatchLength,
  Match,
}

/**
 * Decodes a block from its first byte to its last, in any pieces. A layer is one block: a decoder
 * that needs all of it would hold a layer twice, and deliver its first tensor after its last.
 */
export class Lz4Stream {
  /** Bytes that it holds. */
  static readonly held = 4 * kWindow;
  readonly #buffer = new Uint8Array(Lz4Stream.held);
  /** End of the decoded bytes in the buffer. */
  #to = 0;
  #from: Uint8Array = new Uint8Array(0);
  #at = 0;
  #state = State.Token;
  /** The token's code of the match length. */
  #match = 0;
  #distance = 0;
  /** Literals or match bytes that are left. */
  #length = 0;

  /** Begins a block. */
  start(): void {
    this.#to = 0;
    this.#state = State.Token;
    this.give(new Uint8Array(0));
  }

  /** Whether a block may end here. */
  get ends(): boolean {
    return this.#state === State.OffsetLow && this.#at === this.#from.length;
  }

  /** The input that follows; what was left is dropped. Returns how many bytes were left. */
  give(from: Uint8Array): number {
    const left = this.#from.length - this.#at;
    this.#from = from;
    this.#at = 0;
    return left;
  }

  /**
   * Decodes at most `most` bytes. They are valid until the next call. Empty: it needs more input.
   * Null: the block is damaged.
   */
  next(most: number): Uint8Array | null {
    const buffer = this.#buffer;
    if (this.#to === buffer.length) {
      buffer.copyWithin(0, buffer.length - kWindow);
      this.#to = kWindow;
    }
    const begin = this.#to;
    const end = Math.min(buffer.length, begin + most);
    for (;;) {
      if (this.#state === State.Literals) {
        this.#copyLiterals(end);
        if (this.#length) break;
        this.#state = State.OffsetLow;
      } else if (this.#state === State.Match) {
        this.#copyMatch(end);
        if (this.#length) break;
        this.#state = State.Token;
      } else if (this.#at === this.#from.length) break;
      else if (!this.#take(this.#from[this.#at++]!)) return null;
    }
    return buffer.subarray(begin, this.#to);
  }

  #copyLiterals(end: number): void {
    const n = Math.min(this.#length, this.#from.length - this.#at, end - this.#to);
    this.#buffer.set(this.#from.subarray(this.#at, this.#at + n), this.#to);
    this.#at += n;
    this.#to += n;
    this.#length -= n;
  }

  #copyMatch(end: number): void {
    const buffer = this.#buffer;
    const source = this.#to - this.#distance;
    const n = Math.min(this.#length, end - this.#to);
    if (this.#distance >= n) buffer.copyWithin(this.#to, source, source + n);
    // Source and target overlap.
    else for (let i = 0; i < n; i++) buffer[this.#to + i] = buffer[source + i]!;
    this.#to += n;
    this.#length -= n;
  }

  /** Takes a byte that is not a literal. */
  #take(byte: number): boolean {
    switch (this.#state) {
      case State.Token:
        this.#match = byte & 15;
        this.#length = byte >> 4;
        this.#state = this.#length === 15 ? State.LiteralLength : State.Literals;
        return true;
      case State.OffsetLow:
        this.#distance = byte;
        this.#state = State.OffsetHigh;
        return true;
      case State.OffsetHigh:
        this.#distance |= byte << 8;
        this.#length = this.#match + 4;
        this.#state = this.#match === 15 ? State.MatchLength : State.Match;
        return this.#distance > 0 && this.#distance <= this.#to;
      default:
        this.#length += byte;
        if (byte !== 255)
          this.#state = this.#state === State.LiteralLength ? State.Literals : State.Match;
        return true;
    }
  }
}
