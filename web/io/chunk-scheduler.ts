// Decides which chunks of a file to download next, without doing I/O. Chunks that reads wait for
// come first. A stream ends before the next chunk that is local or already being downloaded.
// Otherwise missing chunks follow in file order. If a read needs a stream, one that no read waits
// for is stopped.

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
  /** Can be read immediately. */
  isLocal(chunk: number): boolean;
  /** Is in the store. */
  isStored(chunk: number): boolean;
  /** Another process downloads it. */
  isElsewhere(chunk: number): boolean;
  /** Reserves chunks for a stream. Returns how far: the rest is elsewhere. */
  reserve(first: number, end: number): number;
  release(first: number, end: number): void;
}

export class ChunkScheduler<Read extends Waiting> {
  /** Number of chunks of the file; 0 while unknown. */
  count = 0;
  /** Maximum number of chunks per stream, and of parallel streams. */
  streamChunks = 1;
  streamLimit = 3;
  /** The server does not support ranges: one stream delivers the whole file. */
  whole = false;
  /** Also download chunks that no read waits for. */
  background = false;
  readonly reads = new Set<Read>();
  readonly #streams = new Set<Stream>();
  readonly #flying = new Set<number>();
  #cursor = 0; // all chunks before it are stored
  readonly #chunks: ChunkState;
  readonly #stop: (stream: Stream) => void;

  constructor(chunks: ChunkState, stop: (stream: Stream) => void) {
    this.#chunks = chunks;
    this.#stop = stop;
  }

  /** The next stream to start; null: none. */
  next(): Stream | null {
    for (;;) {
      const wanted = this.#firstWanted();
      const limit = this.whole ? 1 : this.streamLimit;
      if (this.#streams.size >= limit && (wanted < 0 || !this.#preempt())) return null;
      const first = wanted >= 0 ? wanted : this.#firstMissing();
      if (first < 0) return null;
      if (this.whole) return this.begin({ first: 0, end: this.count });
      const end = this.#chunks.reserve(first, this.#endOf(first));
      if (end > first && !this.#chunks.isStored(first)) return this.begin({ first, end });
      if (end > first) this.#chunks.release(first, end);
    }
  }

  /** Registers a stream that has been started. */
  begin(stream: Stream): Stream {
    this.#streams.add(stream);
    this.#fly(stream);
    return stream;
  }

  /** Removes a stream that has ended. */
  ended(stream: Stream): void {
    if (!this.#streams.delete(stream)) return;
    this.#chunks.release(stream.first, stream.end);
    for (let i = stream.first; i < stream.end; i++) this.#flying.delete(i);
    for (const other of this.#streams) this.#fly(other);
  }

  arrived(chunk: number): void {
    this.#flying.delete(chunk);
  }

  /** Restarts the search: a stored chunk became missing. */
  rewind(): void {
    this.#cursor = 0;
  }

  /** The first chunk that a read waits for and no stream delivers; -1: none. */
  #firstWanted(): number {
    for (const { missing } of this.reads) {
      for (const chunk of missing) if (this.#isFree(chunk)) return chunk;
    }
    return -1;
  }

  /** Nobody downloads the chunk, and no other process has. */
  #isFree(chunk: number): boolean {
    const chunks = this.#chunks;
    return !this.#flying.has(chunk) && !chunks.isElsewhere(chunk) && !chunks.isStored(chunk);
  }

  #firstMissing(): number {
    if (!this.background) return -1;
    while (this.#cursor < this.count && this.#chunks.isStored(this.#cursor)) this.#cursor++;
    for (let i = this.#cursor; i < this.count; i++) {
      if (this.#isFree(i)) return i;
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

  /**
   * Marks the chunks of a stream as being downloaded. Always marks the first one: otherwise a chunk
   * that a read waits for would be requested again and again.
   */
  #fly({ first, end }: Stream): void {
    for (let i = first; i < end; i++)
      if (i === first || !this.#chunks.isLocal(i)) this.#flying.add(i);
  }

  /** Stops a stream that no read waits for. */
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
