// Pictures of the fake engine. A picture is three tokens, numbers made of a hash of its pixels, so
// that it changes the text behind it. There is no encoder: the projector is any model file. As in
// the real engine, a picture's tokens can be computed only while its prompt's pictures are there.

import type { EngineBinding, PicturesBinding } from '../../web/worker/binding.js';
import { Step } from '../../web/worker/binding.js';

/** Tokens of pictures are numbers from here on. */
export const kMediaToken = 2 ** 30;
const kTokens = 3;
const kPixels = 80 * 1024; // address of a picture's pixels, between the fill queue and the slots
const kMaxPixelBytes = 40 * 1024;
const kMark = '<__media__>';

/** What pictures need of the fake engine. */
export interface FakeText {
  /** Pictures' tokens can be computed. */
  sees: boolean;
  tokenize(text: Uint8Array, how: number): Int32Array;
  fail(code: string, message: string): false;
  clear(): void;
  cancel(): void;
}

function tokensOf(pixels: Uint8Array): number[] {
  let h = 1;
  for (const value of pixels) h = Math.imul(h ^ value, 0x01000193) ^ 0x811c9dc5;
  return Array.from({ length: kTokens }, (_, i) => {
    h = Math.imul(h ^ (i + 1), 0x01000193);
    return kMediaToken + ((h >>> 2) % kMediaToken);
  });
}

export class FakePictures implements PicturesBinding {
  private readonly engine: FakeText;
  private readonly projector: EngineBinding;
  private readonly memory: WebAssembly.Memory;
  private bytes = 0;
  private pictures: number[][] = [];

  constructor(engine: FakeText, projector: EngineBinding, memory: WebAssembly.Memory) {
    this.engine = engine;
    this.projector = projector;
    this.memory = memory;
  }

  header(): EngineBinding {
    return this.projector;
  }
  open(): boolean {
    return true;
  }
  attach(): void {}
  cost(width: number, height: number): string {
    return JSON.stringify({ tokens: kTokens, bytes: 3 * width * height });
  }
  room(width: number, height: number): number {
    this.bytes = 3 * width * height;
    if (this.bytes <= kMaxPixelBytes) return kPixels;
    this.engine.fail('OUT_OF_MEMORY', 'The picture is too large.');
    return 0;
  }
  add(): boolean {
    this.pictures.push(tokensOf(new Uint8Array(this.memory.buffer, kPixels, this.bytes).slice()));
    return true;
  }
  file(): number {
    this.engine.fail('INVALID_ARGUMENT', 'The fake engine decodes no files.');
    return 0;
  }
  addFile(): boolean {
    return false;
  }

  /** Tokens of a text, whose marks are the pictures from number `first` on. null: their numbers differ. */
  private read(text: Uint8Array, how: number, first: number): number[] | null {
    const parts: string[] = [''];
    let literal = false;
    for (const piece of new TextDecoder().decode(text).split(/([\uFDD0\uFDD1]|<__media__>)/)) {
      if (piece === '\uFDD0' || piece === '\uFDD1') literal = piece === '\uFDD0';
      else if (piece === kMark && !literal) parts.push('');
      else parts[parts.length - 1] += piece;
    }
    if (parts.length - 1 !== this.pictures.length - first) {
      this.engine.fail('INVALID_ARGUMENT', 'There are other numbers of marks and pictures.');
      return null;
    }
    return parts.flatMap((part, i) => [
      ...(i > 0 ? this.pictures[first + i - 1]! : []),
      ...this.engine.tokenize(new TextEncoder().encode(part), i === 0 ? how : 0),
    ]);
  }

  layout(
    prompt: Uint8Array,
    how: number,
    known: Int32Array,
    images: number,
    rest: Uint8Array,
  ): Int32Array | null {
    const whole = this.read(prompt, how, 0);
    if (!whole || known.every((token, i) => token === whole[i]))
      return whole && Int32Array.from(whole);
    const seen = known.filter((token) => token >= kMediaToken);
    const same = this.pictures
      .slice(0, images)
      .flat()
      .every((token, i) => token === seen[i]);
    if (!same) return Int32Array.from(whole);
    const behind = this.read(rest, 0, images);
    return behind && Int32Array.from([...known, ...behind]);
  }

  begin(reuse: boolean): boolean {
    if (!reuse) this.engine.clear();
    this.engine.sees = true;
    return true;
  }
  /** Used with a GPU, which the fake engine has not. */
  prepare(): boolean {
    return false;
  }
  beginRest(): boolean {
    return false;
  }
  gpuInput(): number {
    return 0;
  }
  markEncoded(): void {}
  step(): number {
    return Step.Done;
  }
  queue(): number {
    return 0;
  }
  closeEncoder(): boolean {
    return true;
  }
  idle(): boolean {
    return true;
  }
  release(): boolean {
    this.pictures = [];
    this.engine.sees = false;
    return true;
  }
  end(): boolean {
    this.engine.cancel();
    return this.release();
  }
}
