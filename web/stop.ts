// Stop strings across token borders: holds back pieces whose text may be the beginning of a stop
// string, and cuts the text where one begins. Pieces stay whole otherwise, so that log-probabilities
// keep their tokens.

import type { Piece } from './protocol.js';

export class StopFilter {
  /** The stop string that was met. */
  stopped: string | undefined;
  private held: Piece[] = [];
  private text = '';

  constructor(private readonly stops: readonly string[]) {}

  /** Takes one piece; returns those that are now certain. */
  push(piece: Piece): Piece[] {
    this.held.push(piece);
    this.text += piece.text;
    let at = -1;
    for (const stop of this.stops) {
      const found = this.text.indexOf(stop);
      if (found < 0 || (at >= 0 && found >= at)) continue;
      at = found;
      this.stopped = stop;
    }
    if (at >= 0) return this.release(at, true);
    return this.release(this.text.length - this.ambiguous(), false);
  }

  /** Everything that is still held. */
  finish(): Piece[] {
    return this.release(this.text.length, true);
  }

  /** Length of the longest end of the text that begins a stop string. */
  private ambiguous(): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let n = Math.min(stop.length - 1, this.text.length); n > longest; n--) {
        if (this.text.endsWith(stop.slice(0, n))) longest = n;
      }
    }
    return longest;
  }

  /** Lets go of the pieces within the first `length` characters; `last` cuts one that straddles. */
  private release(length: number, last: boolean): Piece[] {
    const out: Piece[] = [];
    let at = 0;
    for (const piece of this.held) {
      const end = at + piece.text.length;
      if (end > length) {
        if (last && length > at) out.push({ ...piece, text: piece.text.slice(0, length - at) });
        break;
      }
      out.push(piece);
      at = end;
    }
    this.held = last ? [] : this.held.slice(out.length);
    this.text = last ? '' : this.text.slice(at);
    return out;
  }
}
