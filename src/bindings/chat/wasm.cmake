# Links build/wasm/chat.wasm: chat without an engine (module.cpp, answers.cpp), and the requests and
# responses of servers (exchange.cpp), for the page and Node. It is compiled separately, because it
# has no threads and no kernels. web/protocol/wasm-module.ts replaces Emscripten's JavaScript glue
# and provides the memory, with a maximum.
set(chat_modules jinja chat openai anthropic ollama endpoints)
list(TRANSFORM chat_modules REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/\\1/*.cpp")
file(GLOB chat_sources CONFIGURE_DEPENDS ${chat_modules})
list(FILTER chat_sources EXCLUDE REGEX "_native\\.cpp$|/model_texts\\.cpp$")  # the latter reads GGUF
add_executable(chat ${CMAKE_CURRENT_LIST_DIR}/module.cpp ${CMAKE_CURRENT_LIST_DIR}/answers.cpp
  ${CMAKE_CURRENT_LIST_DIR}/exchange.cpp ${CMAKE_CURRENT_LIST_DIR}/library.cpp ${CMAKE_SOURCE_DIR}/src/bindings/libc.cpp ${chat_sources}
  ${CMAKE_SOURCE_DIR}/src/base/status.cpp
  ${CMAKE_SOURCE_DIR}/src/tokenizer/utf8.cpp)
target_link_libraries(chat PRIVATE sluice_headers)
target_include_directories(chat PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_definitions(chat PRIVATE SLUICE_VERSION="${PROJECT_VERSION}" SLUICE_HOST_CHAR_CLASS)
# Replaces the options of other targets, such as -pthread. Emscripten compiles with
# -fno-inline-functions, which leaves calls of functions that are shorter than the call.
set_property(TARGET chat PROPERTY COMPILE_OPTIONS
  -Oz -finline-functions -fno-c++-static-destructors -mbulk-memory -flto -fno-exceptions -fno-rtti -Wall -Wextra -Wconversion -Wno-shorten-64-to-32
  -Wno-deprecated-experimental-coroutine)
set_property(TARGET chat PROPERTY LINK_OPTIONS
  -O2 -flto -fno-rtti --no-entry -sFILESYSTEM=0 -sWASM_BIGINT=1
  -sIMPORTED_MEMORY=1 -sALLOW_MEMORY_GROWTH=1 -sABORTING_MALLOC=0 -sMALLOC=emmalloc
  -sINITIAL_MEMORY=2097152 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=1048576
  -Wl,--stack-first  # a stack overflow traps
  -sEXPORTED_FUNCTIONS=_malloc,_free
  -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0  # wasm.mjs checks the imports
  -Wl,--wrap=vsnprintf,--wrap=vfprintf,--wrap=strtod,--wrap=pow,--wrap=exp)
set_target_properties(chat PROPERTIES SUFFIX .js)
