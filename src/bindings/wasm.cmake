# Links the engine into build/wasm/engine-*.{mjs,wasm}; web/scripts/build.mjs merges the relaxed
# instructions in and turns the glue into the module that the worker imports.
#  - The memory comes from JavaScript and its maximum is the caller's budget, so growth is exact and
#    malloc answers null at the limit instead of aborting.
#  - Threads are Emscripten's, created ahead of the start (threadPoolSize) because a worker that is
#    busy computing could not load another one.
#  - Link with -O2, not -O3: names of imports and exports stay readable, so that one glue serves
#    all binaries.
file(GLOB binding_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
if(NOT binding_sources)
  return()
endif()

# Which table runs is all that most binaries differ in.
add_library(sluice_binding OBJECT ${binding_sources})
target_link_libraries(sluice_binding PUBLIC sluice_generate sluice_embed sluice_open)
target_compile_options(sluice_binding PRIVATE -Oz)

function(sluice_engine name)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/kernels/dispatch.cpp ${ARGN})
  target_link_libraries(${name} PRIVATE sluice_generate sluice_embed sluice_open)
  target_compile_options(${name} PRIVATE -Oz)
  target_link_options(${name} PRIVATE
    -O2 -lembind -fno-rtti  # at the link too: it picks the matching libembind
    --profiling-funcs       # names, by which build.mjs sorts functions before it strips them
    -sMODULARIZE=1 -sEXPORT_ES6=1 -sUSE_ES6_IMPORT_META=0 -sENVIRONMENT=worker
    -sEXPORT_NAME=createEngine -sFILESYSTEM=0 -sWASM_BIGINT=1
    -sINCOMING_MODULE_JS_API=wasmMemory,instantiateWasm,print,printErr,onAbort
    -sDYNAMIC_EXECUTION=0                   # works under a content security policy without eval
    -sIMPORTED_MEMORY=1 -sALLOW_MEMORY_GROWTH=1 -sABORTING_MALLOC=0
    -sINITIAL_MEMORY=${SLUICE_WASM_INITIAL_MEMORY} -sMAXIMUM_MEMORY=4GB
    -sMEMORY_GROWTH_LINEAR_STEP=65536
    -sTOTAL_STACK=131072 -sDEFAULT_PTHREAD_STACK_SIZE=65536  # the largest frame takes 9 kB
    "-sPTHREAD_POOL_SIZE=Module[\"threadPoolSize\"]|0"
    -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0  # build.mjs refuses any but relaxed.*
    # libc's way with floating point text computes in long double, in software: library.js reads
    # numbers instead, and nothing prints them (libc.cpp).
    -Wl,--wrap=vsnprintf,--wrap=vfprintf,--wrap=strtod
    --js-library=${CMAKE_CURRENT_LIST_DIR}/library.js
    -Wno-pthreads-mem-growth)
  set_target_properties(${name} PROPERTIES SUFFIX .mjs
    LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/library.js)
endfunction()

# Two relaxed tables run everywhere with equal results, and which is faster is a matter of the CPU
# behind WebAssembly: an engine for each, so that a page fetches one.
foreach(name simd128 relaxed relaxed16)
  sluice_engine(engine-${name})
  target_link_libraries(engine-${name} PRIVATE sluice_binding)
  if(name MATCHES relaxed)
    target_compile_definitions(engine-${name} PRIVATE SLUICE_WASM_TABLE=wasm${name})
    target_link_libraries(engine-${name} PRIVATE sluice_wasm${name})
  else()
    target_link_libraries(engine-${name} PRIVATE sluice_wasm128)
  endif()
endforeach()
# The plain one with a second executor, for pages that ask for a graphics card: no other page fetches it.
sluice_engine(engine-gpu ${binding_sources})
target_link_libraries(engine-gpu PRIVATE sluice_gpu sluice_wasm128)
target_compile_definitions(engine-gpu PRIVATE SLUICE_GPU)
include(${CMAKE_CURRENT_LIST_DIR}/safetensors/wasm.cmake)
