// JavaScript functions that the engine imports, in addition to Emscripten's.
// Emscripten's thread library pulls in its canvas and WebGL code through two functions that the
// engine never calls. The empty versions below keep that code out of the build.
mergeInto(LibraryManager.library, {
  // Cached views of this thread's read destinations, and the read options. The engine reads to the
  // same few destinations again and again; a new view per read would be garbage, freed late.
  $reading: '{views:[],from:{at:0}}',
  // Reads from a file that was shared with this thread. Returns the bytes read; fewer on an error.
  sluice_read__deps: ['$reading'],
  sluice_read: function (file, offset, dst, length) {
    var slot = Math.imul(dst + length, 0x9e3779b1) >>> 26;
    var view = reading.views[slot];
    try {
      if (!view || view.byteOffset !== dst >>> 0 || view.length !== length) {
        reading.views[slot] = view = HEAPU8.subarray(dst >>> 0, (dst >>> 0) + length);
      }
      reading.from.at = offset;
      return Module['files'][file].read(view, reading.from);
    } catch (e) {
      return -1;
    }
  },
  // Writes Unicode normalization form C of a UTF-8 text, at most `room` bytes. Returns the bytes
  // written.
  sluice_nfc: function (text, bytes, out, room) {
    var given = new TextDecoder('utf-8', { ignoreBOM: true }).decode(
      HEAPU8.slice(text >>> 0, (text >>> 0) + bytes),
    );
    var made = new TextEncoder().encode(given.normalize('NFC'));
    HEAPU8.set(made.subarray(0, room), out >>> 0);
    return made.length < room ? made.length : room;
  },
  // Lowercases a UTF-8 text and strips accents as described in fold.h. Writes at most `room` bytes.
  // Returns the bytes written.
  sluice_fold: function (text, bytes, lower, accents, out, room) {
    var given = new TextDecoder('utf-8', { ignoreBOM: true }).decode(
      HEAPU8.slice(text >>> 0, (text >>> 0) + bytes),
    );
    if (accents == 1) {
      given = given
        .replace(/\P{ASCII}/gu, function (c) {
          return String.fromCodePoint(c.normalize('NFD').codePointAt(0));
        })
        .replace(/\p{M}/gu, '');
    }
    if (accents == 2) given = given.normalize('NFD').replace(/\p{Mn}/gu, '');
    if (lower)
      given = given.replace(/./gsu, function (c) {
        return c.toLowerCase();
      });
    var made = new TextEncoder().encode(given);
    HEAPU8.set(made.subarray(0, room), out >>> 0);
    return made.length < room ? made.length : room;
  },
  // Parses a JSON number.
  sluice_number: function (text) {
    return +UTF8ToString(text);
  },
  emscripten_set_canvas_element_size: function () {
    return -1;
  },
  emscripten_set_canvas_element_size__deps: [],
  emscripten_set_canvas_element_size__proxy: '',
  emscripten_webgl_create_context: function () {
    return 0;
  },
  emscripten_webgl_create_context__deps: [],
  emscripten_webgl_create_context__proxy: '',
});
