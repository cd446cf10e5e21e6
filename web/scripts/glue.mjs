// Converts the output of Emscripten 3.1.6 (engine.mjs and engine.worker.js for each binary) to one
// ES module with createEngine(options) and serveThread(port). Emscripten finds its worker script
// and wasm by URL, which breaks in bundlers, in Node and in pages with an inlined engine. Here the
// caller passes the compiled module, the memory and the threads. Every patch must match exactly as
// often as expected, so another Emscripten version fails the build and not the page.
// web/worker/glue.d.ts has the types of the result.
import { readFileSync } from 'node:fs';

function patch(text, what, replacement, times = 1) {
  const parts = text.split(what);
  if (parts.length - 1 !== times) {
    throw new Error(
      `glue: expected ${times} time(s), found ${parts.length - 1}: ${what} (is this Emscripten 3.1.6?)`,
    );
  }
  return parts.join(replacement);
}

/** Replaces the body of the function `name`. */
function withBody(text, name, body) {
  const declaration = `function ${name}(`;
  const at = patch(text, declaration, declaration).indexOf(declaration);
  const open = text.indexOf('){', at) + 1;
  return `${text.slice(0, open)}{${body}}${text.slice(functionEnd(text, open))}`;
}

// Shorter bodies for Embind's functions. The binding does not use wide strings, 64-bit integers,
// loading by URL, smart pointers, overloads, base classes, several constructors, copies and late
// deletion of Engine objects, unregistered types, threads that start threads, or exit(). C++ throws
// or aborts only when memory runs out.
const embind = {
  __embind_register_std_wstring: '',
  __embind_register_bigint: '',
  emval_get_global: 'return globalThis',
  readLatin1String: 'return UTF8ToString(ptr)',
  attachFinalizer: '',
  detachFinalizer: '',
  releaseClassHandle: '',
  downcastPointer: '',
  throwBindingError: 'throw Error(message)',
  embind__requireFunction: 'return getWasmTableEntry(rawFunction)',
  registerType:
    'registeredTypes[rawType]=registeredInstance;const waiting=awaitingDependencies[rawType];' +
    'delete awaitingDependencies[rawType];waiting?.forEach(done=>done())',
  whenDependentTypesAreResolved:
    'let missing=1;const done=()=>{--missing||' +
    'getTypeConverters(dependentTypes.map(type=>registeredTypes[type]))};dependentTypes.forEach(type=>{' +
    'if(!registeredTypes[type]){missing++;(awaitingDependencies[type]??=[]).push(done)}});done()',
  // The types Engine, Engine& and Engine* are treated as one.
  __embind_register_class:
    'name=readLatin1String(name);rawDestructor=getWasmTableEntry(rawDestructor);' +
    'const made=function(...values){return made.create(...values)};' +
    'made.prototype["delete"]=function(){rawDestructor(this.ptr);this.ptr=0};' +
    'for(const type of[rawType,rawPointerType,rawConstPointerType])registerType(type,{name,made,' +
    'fromWireType:ptr=>Object.assign(Object.create(made.prototype),{ptr}),' +
    'toWireType:(destructors,{ptr})=>ptr||throwBindingError(name+" instance already deleted")});' +
    'Module[name]=made',
  __embind_register_class_constructor:
    'whenDependentTypesAreResolved(0,[rawClassType,...heap32VectorToArray(argCount,rawArgTypesAddr)],' +
    '([{made},result,...types])=>{made.create=' +
    'craftInvokerFunction("Engine",[result,,...types],0,getWasmTableEntry(invoker),rawConstructor)})',
  __embind_register_class_function:
    'methodName=readLatin1String(methodName);' +
    'whenDependentTypesAreResolved(0,[rawClassType,...heap32VectorToArray(argCount,rawArgTypesAddr)],' +
    '([type,...types])=>{type.made.prototype[methodName]=' +
    'craftInvokerFunction(methodName,types,type,getWasmTableEntry(rawInvoker),context)})',
  // If a call throws, its stack memory is freed, because the next calls need it.
  craftInvokerFunction:
    'const[result,self,...types]=argTypes;return function(...values){' +
    'if(values.length!==types.length)throwBindingError(humanName+" takes "+types.length+" arguments");' +
    'const destructors=[],wired=[cppTargetFunc];if(classType)wired.push(self.toWireType(destructors,this));' +
    'types.forEach((type,i)=>wired.push(type.toWireType(destructors,values[i])));' +
    'const stack=stackSave();let made;try{made=cppInvokerFunc(...wired)}catch(e){stackRestore(stack);throw e}' +
    'runDestructors(destructors);return result.fromWireType(made)}',
  integerReadValueFromPointer:
    'const heap=signed?[GROWABLE_HEAP_I8,GROWABLE_HEAP_I16,GROWABLE_HEAP_I32]:' +
    '[GROWABLE_HEAP_U8,GROWABLE_HEAP_U16,GROWABLE_HEAP_U32];return at=>heap[shift]()[at>>>shift]',
  floatReadValueFromPointer:
    'return at=>(shift==2?GROWABLE_HEAP_F32:GROWABLE_HEAP_F64)()[at>>>shift]',
  getShiftFromSize: 'return Math.log2(size)',
  __embind_register_bool:
    'registerType(rawType,{fromWireType:value=>!!value,' +
    'toWireType:(destructors,value)=>value?trueValue:falseValue,argPackAdvance:8,' +
    'readValueFromPointer:at=>!!GROWABLE_HEAP_U8()[at>>>0]})',
  __embind_register_integer:
    'const signed=minRange!==0;registerType(primitiveType,{name:readLatin1String(name),' +
    'fromWireType:value=>signed?value:value<<32-8*size>>>32-8*size,' +
    'toWireType:(destructors,value)=>signed?value:value>>>0,argPackAdvance:8,' +
    'readValueFromPointer:integerReadValueFromPointer(name,getShiftFromSize(size),signed)})',
  __embind_register_std_string:
    'registerType(rawType,{name:readLatin1String(name),fromWireType(value){' +
    'const at=value+4>>>0,bytes=GROWABLE_HEAP_U8().slice(at,at+GROWABLE_HEAP_U32()[value>>>2]);_free(value);' +
    'return UTF8Decoder.decode(bytes)},toWireType(destructors,value){' +
    'if(typeof value!="string")throwBindingError("Cannot pass non-string to std::string");' +
    'const bytes=new TextEncoder().encode(value),ptr=_malloc(5+bytes.length)>>>0;if(!ptr)throw noRoom();' +
    'GROWABLE_HEAP_U32()[ptr>>>2]=bytes.length;GROWABLE_HEAP_U8().set(bytes,ptr+4);' +
    'destructors?.push(_free,ptr);return ptr},argPackAdvance:8,' +
    'readValueFromPointer:simpleReadValueFromPointer,destructorFunction:_free})',
  requireRegisteredType: 'return registeredTypes[rawType]',
  getStringOrSymbol: 'return UTF8ToString(address)',
  __emval_get_method_caller:
    'const[result,...takes]=__emval_lookupTypes(argCount,argTypes);' +
    'return __emval_addMethodCaller((handle,name,destructors,args)=>{' +
    'const made=handle[name](...takes.map((type,i)=>type.readValueFromPointer(args+8*i)));' +
    'if(!result.isVoid)return result.toWireType(destructors,made)})',
  __emval_new:
    'const values=[];for(let i=0;i<argCount;i++,args+=8)' +
    'values.push(registeredTypes[GROWABLE_HEAP_I32()[(argTypes>>2)+i>>>0]].readValueFromPointer(args));' +
    'return Emval.toHandle(new(Emval.toValue(handle))(...values))',
};
const shorter = {
  ...embind,
  instantiateAsync: '',
  ___cxa_throw: 'throw noRoom()',
  _abort: 'throw noRoom()',
  callRuntimeCallbacks: 'while(callbacks.length)callbacks.shift()(Module)',
  ___pthread_create_js: 'return spawnThread({pthread_ptr,startRoutine:start_routine,arg})',
  _emscripten_check_blocking_allowed: '',
  updateGlobalBufferAndViews:
    'buffer=buf;HEAP8=new Int8Array(buf);HEAP16=new Int16Array(buf);HEAP32=new Int32Array(buf);' +
    'HEAPU8=new Uint8Array(buf);HEAPU16=new Uint16Array(buf);HEAPU32=new Uint32Array(buf);' +
    'HEAPF32=new Float32Array(buf);HEAPF64=new Float64Array(buf)',
  // Grows in steps of one page.
  _emscripten_resize_heap:
    'requestedSize>>>=0;return requestedSize>GROWABLE_HEAP_U8().length&&' +
    'requestedSize<=_emscripten_get_heap_max()&&!!emscripten_realloc_buffer(Math.ceil(requestedSize/65536)*65536)',
  // Runs once, when the binary and the workers are loaded. Only terminating the worker ends it.
  removeRunDependency: '--runDependencies||run()',
  run:
    'if(runDependencies)return;ENVIRONMENT_IS_PTHREAD?Module["port"].postMessage({"cmd":"loaded"}):' +
    'callRuntimeCallbacks(__ATINIT__);readyPromiseResolve(Module)',
  _exit: 'throw"unwind"',
  warnOnce: '',
  ExitStatus: '',
  // The engine neither writes to files nor exits, so threads never proxy such calls.
  _fd_write: 'return 52',
  _fd_seek: 'return 52',
  _fd_close: 'return 52',
  exitOnMainThread: '',
  _emscripten_receive_on_main_thread_js: '',
  UTF8ArrayToString:
    'idx>>>=0;let end=idx;while(heap[end]&&!(end>=idx+maxBytesToRead))++end;' +
    'return UTF8Decoder.decode(new Uint8Array(heap.slice(idx,end)))',
};

// Removes the stubs for functions of the imported module 'relaxed', which wasm-merge has supplied.
function dropRelaxedStubs(glue, names) {
  for (const name of names) {
    glue = patch(glue, `function _${name}(){err("missing function: ${name}");abort(-1)}`, '');
    const entry = `"${name}":_${name}`; // the last entry of the list is preceded by its comma
    glue = patch(glue, glue.includes(`${entry},`) ? `${entry},` : `,${entry}`, '');
  }
  return glue;
}

/** Names of functions that Emscripten did not find. The build accepts only those of relaxed.*. */
export function missingFunctions(glue) {
  return [...glue.matchAll(/missing function: (\w+)/g)].map((m) => m[1]);
}

/** End of the function whose parameters begin at `at`: after its closing brace. */
function functionEnd(text, at) {
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    const c = text[i];
    if (c === '"' || c === "'") while (text[++i] !== c) if (text[i] === '\\') i++;
    if (c === '{') depth++;
    if (c === '}' && --depth === 0) return i + 1;
  }
  throw new Error('glue: a function without an end');
}

// Removes unused functions and variables. Emscripten keeps everything that a program might call,
// and a bundler cannot remove it, because it is all in one function.
function dropUnused(glue) {
  const simple = /[\w.]+|\[\]|\{\}|"[^"]*"|\(\.\.\.args\)=>Module\["asm"\]\["\w+"\]\(\.\.\.args\)/
    .source;
  const declared = new RegExp(
    `(?<=[;{}\\n])(?:function ([A-Za-z_$][\\w$]*)\\(|var (\\w+)(?:=(?:${simple}))?;)`,
    'g',
  );
  for (;;) {
    const unused = [...glue.matchAll(declared)].find(
      ([, called, held]) =>
        glue.split(new RegExp(`(?<![\\w$"])${(called ?? held).replaceAll('$', '\\$')}(?![\\w$])`))
          .length === 2,
    );
    if (!unused) return glue;
    const end = unused.index + unused[0].length;
    glue = glue.slice(0, unused.index) + glue.slice(unused[1] ? functionEnd(glue, end) : end);
  }
}

// Merges the glue of all binaries. Their data layouts differ, so a few addresses differ; nothing
// else may. A literal that differs becomes a lookup by the number of the binary.
function mergeVariants([first, ...others]) {
  const number = /(?<![\w.$])\d+(?:e\d+)?(?![\w.])/g; // 75000 is written as 75e3
  if (others.some((other) => other.replace(number, '#') !== first.replace(number, '#'))) {
    throw new Error('glue: the binaries need different glue (imports or exports differ)');
  }
  const literals = others.map((other) => other.match(number));
  let i = 0;
  return first.replace(number, (literal) => {
    const theirs = literals.map((list) => list[i]);
    i++;
    return theirs.every((other) => other === literal)
      ? literal
      : `[${literal},${theirs}][Module["variant"]]`;
  });
}

// Replaces engine.worker.js, for a port that the caller supplies (self in a browser).
const entryPoints = `
export function createEngine({ wasmModule, ...options }) {
  const [section] = WebAssembly.Module.customSections(wasmModule, 'sluice');
  if (!section) throw notOurs();
  return new Promise((resolve, reject) => {
    factory({
      ...options,
      variant: new Uint8Array(section)[0],
      instantiateWasm: (imports, receive) => {
        WebAssembly.instantiate(wasmModule, imports).then((i) => receive(i, wasmModule)).catch(reject);
        return {};
      },
    }).then(resolve, reject);
  });
}

export function serveThread(port, open) {
  let module;
  const files = [];
  const share = async (data) => {
    while (files.length) files.pop()?.close();
    files.push(...await Promise.all(data.files.map((file) => file && open(file).catch(() => null))));
    data.reply.postMessage(0);
  };
  const load = (data) => factory({
    files,
    ENVIRONMENT_IS_PTHREAD: true, variant: data.variant, port, wasmMemory: data.wasmMemory,
    instantiateWasm: (imports, receive) => {
      const instance = new WebAssembly.Instance(data.wasmModule, imports);
      receive(instance);
      return instance.exports;
    },
  }).then((m) => { module = m; });
  const run = (data) => {
    module.__performance_now_clock_drift = performance.now() - data.time;
    module.__emscripten_thread_init(data.threadInfoStruct, 0, 0, 1);
    module.establishStackSpace();
    module.PThread.threadInit();
    try {
      module.__emscripten_thread_exit(module.invokeEntryPoint(data.start_routine, data.arg));
    } catch (e) {
      if (e !== 'unwind') throw e;
    }
  };
  port.onmessage = ({ data }) => {
    if (data.cmd === 'load') return load(data);
    if (data.cmd === 'run') return run(data);
    if (data.cmd === 'files') return share(data);
    if (data.cmd === 'processThreadQueue' && module?._pthread_self()) module._emscripten_current_thread_process_queued_calls();
  };
}
`;

// Patches the glue of one binary: threads post through their port, and the engine creates threads
// with the caller's function.
function patchOne(file, relaxedNames) {
  let glue = readFileSync(file, 'utf8');
  glue = dropRelaxedStubs(glue, relaxedNames);
  glue = glue.replace(/(?<![.\w])postMessage\(/g, 'Module["port"].postMessage(');
  glue = patch(glue, /var pthreadMainJs=locateFile\("engine-\w+\.worker\.js"\);/, '');
  glue = patch(glue, 'new Worker(pthreadMainJs)', 'Module["createThread"]()');
  glue = patch(glue, '"urlOrBlob":Module["mainScriptUrlOrBlob"]', '"variant":Module["variant"]');
  glue = patch(glue, 'scriptDirectory=self.location.href', '');
  glue = glue.replaceAll('document.currentScript', 'undefined');
  // Emscripten waits until its last worker has loaded, which is forever if there are no workers.
  glue = patch(
    glue,
    'PThread.unusedWorkers.forEach(function(w)',
    'if(!numWorkersToLoad)removeRunDependency("wasm-instantiate");PThread.unusedWorkers.forEach(function(w)',
  );
  for (const [name, body] of Object.entries(shorter)) glue = withBody(glue, name, body);
  // Errors of a worker go to the page. A thread only reports that it is loaded or has ended.
  glue = patch(glue, /worker\.onerror=\(e=>\{.*?throw e\}\);/s, '');
  glue = patch(glue, /if\(d\["targetThread"\]&&.*?return\}/s, '');
  glue = patch(glue, /else if\(cmd==="spawnThread"\)\{spawnThread\(d\)\}/, '');
  glue = patch(glue, /else if\(cmd==="killThread"\).*?(?=else if\(cmd==="loaded"\))/s, '');
  glue = patch(glue, /else if\(cmd==="print"\).*?(?=PThread\.currentProxied)/s, '');
  for (const name of [
    'initWorker',
    'setExitStatus',
    'terminateAllThreads',
    'receiveObjectTransfer',
  ]) {
    const at = patch(glue, `${name}:function(`, `${name}:function(`).indexOf(`${name}:function(`);
    glue = glue.slice(0, at) + glue.slice(functionEnd(glue, at) + 1); // and its comma
  }
  glue = patch(
    glue,
    'if(ENVIRONMENT_IS_PTHREAD){PThread.initWorker()}else{PThread.initMainThread()}',
    'if(!ENVIRONMENT_IS_PTHREAD)PThread.initMainThread()',
  );
  glue = patch(glue, /PThread\.currentProxiedOperationCallerThread=undefined;?/, '');
  glue = patch(glue, /if\(worker\.pthread\)PThread\.currentProxiedOperationCallerThread=.*?;/, '');
  glue = patch(glue, /var proxiedFunctionTable=.*?;/, '');
  glue = patch(glue, /dependenciesFulfilled=function runCaller\(\)\{.*?\};/, '');
  glue = patch(glue, 'Module["run"]=run;', '');
  glue = patch(glue, 'Module["ExitStatus"]=ExitStatus;', '');
  glue = patch(glue, 'Module["keepRuntimeAlive"]=keepRuntimeAlive;', '');
  for (const name of ['out', 'err']) glue = patch(glue, new RegExp(`var ${name}=.*?;`), '');
  glue = patch(glue, 'var quit_=(status,toThrow)=>{throw toThrow};', '');
  glue = patch(glue, 'if(ENVIRONMENT_IS_PTHREAD){buffer=Module["buffer"]}', '');
  glue = patch(glue, /var moduleOverrides=.*?;/, '');
  glue = patch(glue, 'Object.assign(Module,moduleOverrides);moduleOverrides=null;', '');
  glue = patch(glue, /if\(typeof WebAssembly!="object"\)\{.*?\}/, '');
  glue = patch(glue, ',BigInt64Array,BigUint64Array]', ']');
  glue = glue.replaceAll('name=readLatin1String(name);registerType', 'registerType');
  glue = patch(glue, 'Module["preloadedImages"]={};Module["preloadedAudios"]={};', '');
  // File system calls are not used.
  glue = patch(glue, /var SYSCALLS=\{.*?(?=function _fd_close)/s, '');
  // The caller provides the memory and the instance.
  glue = patch(glue, /var read_,readAsync,readBinary,setWindowTitle;if\(.*?\}else\{\}/s, '');
  glue = patch(glue, /var wasmBinaryFile;.*?(?=function createWasm)/s, '');
  glue = patch(
    glue,
    /if\(Module\["instantiateWasm"\]\)\{try.*?return\{\}/s,
    'return Module["instantiateWasm"](info,receiveInstance)',
  );
  glue = patch(
    glue,
    /if\(ENVIRONMENT_IS_PTHREAD\)\{wasmMemory=.*?INITIAL_MEMORY=buffer\.byteLength;/s,
    'wasmMemory=Module["wasmMemory"];buffer=wasmMemory.buffer;',
  );
  glue = patch(glue, /var UTF8Decoder=.*?;/, 'var UTF8Decoder=new TextDecoder;');
  glue = patch(glue, /var UTF16Decoder=.*?;/, '');
  glue = patch(glue, /embind_init_charCodes\(\);.*?init_emval\(\);/s, '');
  glue = glue.replace(/Module\["HEAP\w+"\]=/g, '');
  glue = glue.replace(
    /Module\["(\w+)"\]=function\(\)\{return\(\1=Module\["\1"\]=Module\["asm"\]\["(\w+)"\]\)\.apply\(null,arguments\)\}/g,
    (_, name, exported) =>
      `${entryPoints.includes(`.${name}(`) ? `Module["${name}"]=` : ''}(...args)=>Module["asm"]["${exported}"](...args)`,
  );
  glue = patch(glue, 'var createEngine = ', 'const factory = ');
  return dropUnused(patch(glue, 'export default createEngine;', ''));
}

/** Makes the glue. binaries: path of engine.mjs and names of relaxed functions, by number. */
export function makeGlue(binaries) {
  const glue = mergeVariants(binaries.map(({ file, names }) => patchOne(file, names)));
  const initial = /INITIAL_MEMORY=(\d+)[,;]/.exec(readFileSync(binaries[0].file, 'utf8'));
  if (!initial) throw new Error('glue: INITIAL_MEMORY not found');
  // A page without cross-origin isolation has shared memories but no global SharedArrayBuffer. Node
  // 20 has no navigator; the number of threads is passed explicitly there.
  const header =
    'const SharedArrayBuffer = globalThis.SharedArrayBuffer ?? ' +
    'new WebAssembly.Memory({ initial: 0, maximum: 0, shared: true }).buffer.constructor;\n' +
    'const navigator = globalThis.navigator ?? { hardwareConcurrency: 1 };\n' +
    'const noRoom = () => Object.assign(Error("The memory budget is too small for this."), ' +
    '{ name: "SluiceError", code: "OUT_OF_MEMORY" });\n' +
    'const notOurs = () => Object.assign(Error("The wasm is not an engine of this package."), ' +
    '{ name: "SluiceError", code: "WASM_LOAD" });\n';
  return header + glue + entryPoints + `export const initialMemory = ${initial[1]};\n`;
}
