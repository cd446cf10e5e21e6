# Links the engine into build/wasm/engine-*.wasm. web/scripts/wasm.mjs then merges the relaxed SIMD
# instructions in. The JavaScript that Emscripten writes beside it is not used: the binary's imports
# are in web/worker/runtime.ts.
#  - JavaScript creates the memory, with the caller's budget as its maximum. So growth is exact, and
#    malloc returns null at the limit instead of aborting.
#  - Threads are Emscripten's, created before the engine starts: a worker that is busy computing could
#    not load another one.
#  - Link with -O2, not -O3: import and export names stay readable.
file(GLOB binding_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
if(NOT binding_sources)
  return()
endif()

# Most binaries differ only in the kernel table that they run.
add_library(sluice_binding OBJECT ${binding_sources})
target_link_libraries(sluice_binding PUBLIC sluice_generate sluice_embed sluice_open)
target_compile_options(sluice_binding PRIVATE -Oz)

add_library(sluice_picture_binding OBJECT ${CMAKE_CURRENT_LIST_DIR}/pictures/pictures.cpp)
target_link_libraries(sluice_picture_binding PUBLIC sluice_binding sluice_multimodal)
target_compile_options(sluice_picture_binding PRIVATE -Oz)

function(sluice_engine name)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/kernels/dispatch.cpp ${ARGN})
  target_link_libraries(${name} PRIVATE sluice_generate sluice_embed sluice_open)
  target_compile_options(${name} PRIVATE -Oz)
  target_link_options(${name} PRIVATE
    -O2 -lembind -fno-rtti  # at link time too: it selects the matching libembind
    -sENVIRONMENT=worker -sFILESYSTEM=0 -sWASM_BIGINT=1
    -sIMPORTED_MEMORY=1 -sALLOW_MEMORY_GROWTH=1 -sABORTING_MALLOC=0
    -sINITIAL_MEMORY=${SLUICE_WASM_INITIAL_MEMORY} -sMAXIMUM_MEMORY=4GB
    -sMEMORY_GROWTH_LINEAR_STEP=65536
    -sTOTAL_STACK=131072 -sDEFAULT_PTHREAD_STACK_SIZE=65536  # the largest frame takes 9 kB, of a GIF on the first 17 kB
    # wasm.mjs checks the imports
    -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0
    # libc reads and prints floating point through software long double. The engine does neither
    # (libc.cpp).
    -Wl,--wrap=vsnprintf,--wrap=vfprintf,--wrap=strtod
    -Wno-pthreads-mem-growth)
  set_target_properties(${name} PROPERTIES SUFFIX .js)
endfunction()

# Both relaxed tables run everywhere with equal results. Which is faster depends on the CPU, so each
# has an engine of its own, and a page fetches one. The full engines also have pictures, the types of few
# files (SLUICE_DECODED_TYPE, SLUICE_QSF_TYPE) and the approximate modes, and are fetched only where these
# are needed.
foreach(table simd128 relaxed relaxed16)
  foreach(full "" -full)
    set(name engine-${table}${full})
    if(full)
      sluice_engine(${name})
      target_link_libraries(${name} PRIVATE sluice_picture_binding)
    else()
      sluice_engine(${name} ${CMAKE_SOURCE_DIR}/src/approximate/approximate_stub.cpp)
      target_compile_definitions(${name} PRIVATE SLUICE_COMMON_TYPES)
    endif()
    target_link_libraries(${name} PRIVATE sluice_binding)
    if(table MATCHES relaxed)
      target_compile_definitions(${name} PRIVATE SLUICE_WASM_TABLE=wasm${table})
      target_link_libraries(${name} PRIVATE sluice_wasm${table})
    else()
      target_link_libraries(${name} PRIVATE sluice_wasm128)
    endif()
  endforeach()
endforeach()
# simd128-full for the demo, without Emscripten's optimizer, which takes most of the time of a link.
sluice_engine(engine-demo ${CMAKE_CURRENT_LIST_DIR}/demo/clock.cpp)
target_link_libraries(engine-demo PRIVATE sluice_picture_binding sluice_binding sluice_wasm128)
target_link_options(engine-demo PRIVATE -O1)
set_target_properties(engine-demo PROPERTIES EXCLUDE_FROM_ALL ON)
# The plain table and the WebGPU executor. Only pages that ask for the GPU fetch it. Neither has the
# clustered output head, which the package refuses unless the device is wasm.
add_library(sluice_gpu_binding OBJECT ${binding_sources})
target_link_libraries(sluice_gpu_binding PUBLIC sluice_generate sluice_embed sluice_open sluice_gpu)
target_compile_definitions(sluice_gpu_binding PUBLIC SLUICE_GPU)
target_compile_options(sluice_gpu_binding PRIVATE -Oz)
sluice_engine(engine-gpu ${CMAKE_SOURCE_DIR}/src/approximate/approximate_stub.cpp)
target_compile_definitions(engine-gpu PRIVATE SLUICE_COMMON_TYPES)
sluice_engine(engine-gpu-full ${CMAKE_SOURCE_DIR}/src/approximate/clustered_head_stub.cpp)
foreach(full "" -full)
  target_link_libraries(engine-gpu${full} PRIVATE sluice_gpu_binding sluice_wasm128)
endforeach()
target_sources(engine-gpu-full PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pictures/pictures.cpp)
target_link_libraries(engine-gpu-full PRIVATE sluice_multimodal)
include(${CMAKE_CURRENT_LIST_DIR}/safetensors/wasm.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/chat/wasm.cmake)
