// Which bytes of a file are fetched next, as chunks and streams over them, without any I/O. What
// reads wait for comes first, by streams that end where the next chunk is local or under way; while
// nobody waits, what is missing follows in file order. A stream that brings nothing anybody waits
// for is stopped when a read needs its place.

/** A request for the chunks [first, end). */
export interface Stream {
  readonly first: number;
  readonly end: number;
}

/** A read that waits for these chunks. */
export interface Waiting {
  readonly missing: Set<number>;
}

export interface ChunkState {
  /** Can be read at once. */
  isLocal(chunk: number): boolean;
  /** Need not be fetched for the store. */
  isStored(chunk: number): boolean;
}

export class ChunkScheduler<Read extends Waiting> {
  /** Chunks of the file; 0 while that is unknown. */
  count = 0;
  /** Most chunks of a stream, and streams at once. */
  streamChunks = 1;
  streamLimit = 3;
  /** The server knows no ranges: one stream brings everything. */
  whole = false;
  /** What nobody waits for is fetched too. */
  background = false;
  readonly reads = new Set<Read>();
  readonly #streams = new Set<Stream>();
  readonly #flying = new Set<number>();
  #cursor = 0; // everything before it is stored
  readonly #chunks: ChunkState;
  readonly #stop: (stream: Stream) => void;

  constructor(chunks: ChunkState, stop: (stream: Stream) => void) {
    this.#chunks = chunks;
    this.#stop = stop;
  }

  /** The stream to start now; null when there is none. */
  next(): Stream | null {
    const wanted = this.#firstWanted();
    const limit = this.whole ? 1 : this.streamLimit;
    if (this.#streams.size >= limit && (wanted < 0 || !this.#preempt())) return null;
    const first = wanted >= 0 ? wanted : this.#firstMissing();
    if (first < 0) return null;
    return this.begin(
      this.whole ? { first: 0, end: this.count } : { first, end: this.#endOf(first) },
    );
  }

  /** Counts a stream that has been started. */
  begin(stream: Stream): Stream {
    this.#streams.add(stream);
    this.#fly(stream);
    return stream;
  }

  /** The stream brings nothing more. */
  ended(stream: Stream): void {
    if (!this.#streams.delete(stream)) return;
    for (let i = stream.first; i < stream.end; i++) this.#flying.delete(i);
    for (const other of this.#streams) this.#fly(other);
  }

  arrived(chunk: number): void {
    this.#flying.delete(chunk);
  }

  /** Something that was stored no longer is. */
  rewind(): void {
    this.#cursor = 0;
  }

  /** The first chunk that a read waits for and no stream is bringing; -1 when there is none. */
  #firstWanted(): number {
    for (const { missing } of this.reads) {
      for (const chunk of missing) if (!this.#flying.has(chunk)) return chunk;
    }
    return -1;
  }

  #firstMissing(): number {
    if (!this.background) return -1;
    while (this.#cursor < this.count && this.#chunks.isStored(this.#cursor)) this.#cursor++;
    for (let i = this.#cursor; i < this.count; i++) {
      if (!this.#flying.has(i) && !this.#chunks.isStored(i)) return i;
    }
    return -1;
  }

  #endOf(first: number): number {
    const most = Math.min(this.count, first + this.streamChunks);
    let end = first + 1;
    while (
      end < most &&
      !this.#flying.has(end) &&
      !this.#chunks.isLocal(end) &&
      (this.background || this.#isWanted(end))
    )
      end++;
    return end;
  }

  #isWanted(chunk: number): boolean {
    for (const { missing } of this.reads) if (missing.has(chunk)) return true;
    return false;
  }

  /** Its first chunk flies in any case: a wanted one that does not would be asked for for ever. */
  #fly({ first, end }: Stream): void {
    for (let i = first; i < end; i++)
      if (i === first || !this.#chunks.isLocal(i)) this.#flying.add(i);
  }

  /** Stops a stream that brings nothing anybody waits for. */
  #preempt(): boolean {
    for (const stream of this.whole ? [] : [...this.#streams].reverse()) {
      if (this.#isNeeded(stream)) continue;
      this.ended(stream);
      this.#stop(stream);
      return true;
    }
    return false;
  }

  #isNeeded({ first, end }: Stream): boolean {
    for (const { missing } of this.reads) {
      for (const chunk of missing)
        if (chunk >= first && chunk < end && this.#flying.has(chunk)) return true;
    }
    return false;
  }
}
