// Dawn in Node asks in each turn of the event loop whether the GPU has finished. That keeps a core busy
// which a software adapter needs. Here it asks once in a millisecond.
const { setImmediate } = globalThis;
const isNative = (f) => /\[native code\]/.test(Function.prototype.toString.call(f));
globalThis.setImmediate = (run, ...given) =>
  isNative(run) ? setTimeout(run, 1, ...given) : setImmediate(run, ...given);
