// Emscripten's thread library drags its canvas and WebGL layers in through two calls that nothing
// here makes; these empty ones keep them out of the glue.
mergeInto(LibraryManager.library, {
  emscripten_set_canvas_element_size: function () { return -1; },
  emscripten_set_canvas_element_size__deps: [],
  emscripten_set_canvas_element_size__proxy: '',
  emscripten_webgl_create_context: function () { return 0; },
  emscripten_webgl_create_context__deps: [],
  emscripten_webgl_create_context__proxy: '',
});
