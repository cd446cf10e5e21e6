// Rejects targets that the engine cannot run on. Weights are used in the file's byte order, and a
// native process is assumed to have enough address space for any model.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Sluice supports little-endian processors only: weights are used in the file's byte order."
#endif
#if !defined(__EMSCRIPTEN__) && __SIZEOF_POINTER__ < 8
#error "Native builds of Sluice support 64-bit processors only."
#endif
