// What the engine imports from JavaScript beside Emscripten's own.
// Emscripten's thread library drags its canvas and WebGL layers in through two calls that nothing
// here makes; these empty ones keep them out of the glue.
mergeInto(LibraryManager.library, {
  // Bytes read of a file that was shared with this thread, less than asked for when something is wrong.
  sluice_read: function (file, offset, dst, length) {
    try {
      return Module["files"][file].read(HEAPU8.subarray(dst >>> 0, (dst >>> 0) + length), { at: offset });
    } catch (e) {
      return -1;
    }
  },
  // Normalization form C of UTF-8, in at most `room` bytes; the bytes that it takes.
  sluice_nfc: function (text, bytes, out, room) {
    var given = new TextDecoder("utf-8", { ignoreBOM: true }).decode(HEAPU8.slice(text >>> 0, (text >>> 0) + bytes));
    var made = new TextEncoder().encode(given.normalize("NFC"));
    HEAPU8.set(made.subarray(0, room), out >>> 0);
    return made.length < room ? made.length : room;
  },
  // A number as JSON writes it.
  sluice_number: function (text) { return +UTF8ToString(text); },
  emscripten_set_canvas_element_size: function () { return -1; },
  emscripten_set_canvas_element_size__deps: [],
  emscripten_set_canvas_element_size__proxy: '',
  emscripten_webgl_create_context: function () { return 0; },
  emscripten_webgl_create_context__deps: [],
  emscripten_webgl_create_context__proxy: '',
});
