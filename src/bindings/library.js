// What the engine imports from JavaScript beside Emscripten's own.
// Emscripten's thread library drags its canvas and WebGL layers in through two calls that nothing
// here makes; these empty ones keep them out of the glue.
mergeInto(LibraryManager.library, {
  // Views of the places that this thread reads to, and where it reads from. The engine reads to the same
  // few places again and again; a view for each read is garbage that the browser collects late.
  $reading: '{views:[],from:{at:0}}',
  // Bytes read of a file that was shared with this thread, less than asked for when something is wrong.
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
  // Normalization form C of UTF-8, in at most `room` bytes; the bytes that it takes.
  sluice_nfc: function (text, bytes, out, room) {
    var given = new TextDecoder('utf-8', { ignoreBOM: true }).decode(
      HEAPU8.slice(text >>> 0, (text >>> 0) + bytes),
    );
    var made = new TextEncoder().encode(given.normalize('NFC'));
    HEAPU8.set(made.subarray(0, room), out >>> 0);
    return made.length < room ? made.length : room;
  },
  // UTF-8 in lower case and without accents, as fold.h says, in at most `room` bytes; the bytes it takes.
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
  // A number as JSON writes it.
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
