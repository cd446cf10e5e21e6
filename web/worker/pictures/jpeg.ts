// What the markers of a JPEG file say, without decoding: its size, components and scans. Walked as
// libjpeg does it: bytes between segments are skipped.

export interface JpegMarkers {
  width: number;
  height: number;
  components: number;
  scans: number;
  /** A scan is not the whole picture. */
  partial: boolean;
  /** The file has its end mark. */
  ended: boolean;
}

/** null: there is no frame. */
export function jpegMarkers(bytes: Uint8Array): JpegMarkers | null {
  const word = (at: number): number => ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
  let found: JpegMarkers | null = null;
  for (let at = 2; ;) {
    at = bytes.indexOf(0xff, at);
    if (at < 0) return found;
    const marker = bytes[++at];
    // A fill byte; compressed data, or a mark in it.
    if (marker === 0xff) continue;
    if (!marker || marker === 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    if (marker === 0xd9) return found && { ...found, ended: true };
    const size = word(at + 1);
    // Start of frame; C4, C8 and CC are other segments.
    if (marker >= 0xc0 && marker <= 0xcf && (marker === 0xc0 || marker % 4)) {
      found ??= {
        width: word(at + 6),
        height: word(at + 4),
        components: bytes[at + 8] ?? 0,
        scans: 0,
        partial: marker % 4 === 2, // progressive
        ended: false,
      };
    }
    if (marker === 0xda && found) {
      found.scans++;
      found.partial ||= bytes[at + 3]! < found.components;
    }
    at += 1 + size;
  }
}
