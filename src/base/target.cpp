// What the engine can run on. Weights are used as they lie in the file, and addresses of a native
// process are taken to have room for any model.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Sluice runs on little-endian processors only: model files are used as they lie on disk."
#endif
#if !defined(__EMSCRIPTEN__) && __SIZEOF_POINTER__ < 8
#error "Sluice runs natively on 64-bit processors only: in 32-bit browsers it is WebAssembly."
#endif
