# Links build/wasm/safetensors.wasm, which reads Hugging Face directories (module.cpp). It is compiled
# separately, because it has no threads and no kernels. JavaScript provides its memory, as for the
# engine. web/io/safetensors.ts replaces Emscripten's JavaScript glue.
file(GLOB safetensors_sources CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/src/gguf/*.cpp ${CMAKE_SOURCE_DIR}/src/hf/*.cpp
  ${CMAKE_SOURCE_DIR}/src/open/*.cpp ${CMAKE_SOURCE_DIR}/src/qsf/*.cpp)
list(FILTER safetensors_sources EXCLUDE REGEX "_native\\.cpp$")
add_executable(safetensors ${CMAKE_CURRENT_LIST_DIR}/module.cpp ${safetensors_sources}
  ${CMAKE_SOURCE_DIR}/src/base/status.cpp ${CMAKE_SOURCE_DIR}/src/platform/memory.cpp
  ${CMAKE_SOURCE_DIR}/src/bindings/libc.cpp)
target_link_libraries(safetensors PRIVATE sluice_headers)
target_include_directories(safetensors PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
# Replaces the options of other targets, such as -pthread.
set_property(TARGET safetensors PROPERTY COMPILE_OPTIONS
  -Oz -fno-exceptions -fno-rtti -Wall -Wextra -Wconversion -Wno-shorten-64-to-32)
set_property(TARGET safetensors PROPERTY LINK_OPTIONS
  -O2 -fno-rtti --no-entry -sFILESYSTEM=0 -sWASM_BIGINT=1
  -sIMPORTED_MEMORY=1 -sALLOW_MEMORY_GROWTH=1 -sABORTING_MALLOC=0
  -sINITIAL_MEMORY=262144 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=131072
  -sEXPORTED_FUNCTIONS=_malloc,_free
  -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0  # the caller imports sluice_number
  -Wl,--wrap=vsnprintf,--wrap=vfprintf,--wrap=strtod)
# Larger groups inline more.
set_target_properties(safetensors PROPERTIES SUFFIX .js UNITY_BUILD_BATCH_SIZE 6)
