# Links build/wasm/chat.wasm: chat without an engine (module.cpp, answers.cpp), and OpenAI's requests
# and responses (exchange.cpp), for the page and Node. build/wasm/chat-server.wasm has the endpoints of
# every API instead of templates, for Node's server. They are compiled separately, because they
# have no threads and no kernels. web/protocol/wasm-module.ts replaces Emscripten's JavaScript glue
# and provides the memory, with a maximum.
set(chat_modules jinja chat openai)
list(TRANSFORM chat_modules REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/\\1/*.cpp")
file(GLOB chat_sources CONFIGURE_DEPENDS ${chat_modules})
list(FILTER chat_sources EXCLUDE REGEX "_native\\.cpp$|/model_texts\\.cpp$")  # the latter reads GGUF
set(server_modules anthropic ollama endpoints)
list(TRANSFORM server_modules REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/\\1/*.cpp")
file(GLOB server_sources CONFIGURE_DEPENDS ${server_modules})
add_library(chat_parts OBJECT ${CMAKE_CURRENT_LIST_DIR}/answers.cpp
  ${CMAKE_CURRENT_LIST_DIR}/calls.cpp ${CMAKE_CURRENT_LIST_DIR}/exchange.cpp
  ${CMAKE_CURRENT_LIST_DIR}/library.cpp ${CMAKE_SOURCE_DIR}/src/bindings/libc.cpp ${chat_sources}
  ${CMAKE_SOURCE_DIR}/src/base/status.cpp ${CMAKE_SOURCE_DIR}/src/tokenizer/utf8.cpp)
add_executable(chat ${CMAKE_CURRENT_LIST_DIR}/module.cpp
  ${CMAKE_CURRENT_LIST_DIR}/page_endpoints.cpp $<TARGET_OBJECTS:chat_parts>)
add_executable(chat-server ${CMAKE_CURRENT_LIST_DIR}/server_endpoints.cpp ${server_sources}
  $<TARGET_OBJECTS:chat_parts>)
foreach(target chat_parts chat chat-server)
  target_link_libraries(${target} PRIVATE sluice_headers)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE SLUICE_VERSION="${PROJECT_VERSION}"
    SLUICE_HOST_CHAR_CLASS)
  # Replaces the options of other targets, such as -pthread. Emscripten compiles with
  # -fno-inline-functions, which leaves calls of functions that are shorter than the call.
  set_property(TARGET ${target} PROPERTY COMPILE_OPTIONS
    -Oz -finline-functions -fno-c++-static-destructors -mbulk-memory -flto -fno-exceptions -fno-rtti
    -Wall -Wextra -Wconversion -Wno-shorten-64-to-32 -Wno-deprecated-experimental-coroutine)
endforeach()
foreach(target chat chat-server)
  set_property(TARGET ${target} PROPERTY LINK_OPTIONS
    -O2 -flto -fno-rtti --no-entry -sFILESYSTEM=0 -sWASM_BIGINT=1
    -sIMPORTED_MEMORY=1 -sALLOW_MEMORY_GROWTH=1 -sABORTING_MALLOC=0 -sMALLOC=emmalloc
    -sINITIAL_MEMORY=2097152 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=1048576
    -Wl,--stack-first  # a stack overflow traps
    -sEXPORTED_FUNCTIONS=_malloc,_free
    -sERROR_ON_UNDEFINED_SYMBOLS=0 -sWARN_ON_UNDEFINED_SYMBOLS=0  # wasm.mjs checks the imports
    -Wl,--wrap=vsnprintf,--wrap=vfprintf,--wrap=strtod,--wrap=pow,--wrap=exp)
  set_target_properties(${target} PROPERTIES SUFFIX .js)
endforeach()
