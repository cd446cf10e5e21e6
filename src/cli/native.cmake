# The terminal program. CLI11 and nlohmann/json throw, so this directory is compiled with
# exceptions.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cpp)
if(NOT CMAKE_CROSSCOMPILING AND NOT WIN32)
  find_path(SLUICE_EDIT_DIR histedit.h REQUIRED)
  find_library(SLUICE_EDIT_LIBRARY edit REQUIRED)
  if(SLUICE_ARCHIVE_edit AND SLUICE_ARCHIVE_bsd AND SLUICE_ARCHIVE_md AND SLUICE_ARCHIVE_tinfo)
    # Distributions give the shared library different names.
    set(SLUICE_EDIT_LIBRARY ${SLUICE_ARCHIVE_edit} ${SLUICE_ARCHIVE_bsd} ${SLUICE_ARCHIVE_md}
                            ${SLUICE_ARCHIVE_tinfo})
  endif()
endif()
# Picks NAME.cpp if the build has its library, else NAME_stub.cpp, which reports that it is missing.
macro(sluice_choose name)
  if(${ARGN})
    list(FILTER sources EXCLUDE REGEX "/${name}_stub\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/${name}\\.cpp$")
  endif()
endmacro()
sluice_choose(line_editor SLUICE_EDIT_LIBRARY)
sluice_choose(cache SLUICE_HTTP)
sluice_choose(serve SLUICE_SERVER)
add_executable(sluice ${sources} ${SLUICE_OLDER_GLIBC})
if(WIN32)
  enable_language(RC)
  # without C++ options
  add_library(sluice_manifest OBJECT ${CMAKE_SOURCE_DIR}/src/cli/windows.rc)
  target_sources(sluice PRIVATE $<TARGET_OBJECTS:sluice_manifest>)
endif()
target_link_libraries(sluice PRIVATE sluice_generate sluice_embed sluice_native sluice_media sluice_vision sluice_chat sluice_convert sluice_measure sluice_options sluice_headers sluice_flags)
if(TARGET sluice_serve)
  target_link_libraries(sluice PRIVATE sluice_serve)
endif()
if(SLUICE_EDIT_LIBRARY)
  target_link_libraries(sluice PRIVATE ${SLUICE_EDIT_LIBRARY})
  target_include_directories(sluice SYSTEM PRIVATE ${SLUICE_EDIT_DIR})
endif()
target_compile_definitions(sluice PRIVATE SLUICE_VERSION="${PROJECT_VERSION}")
# CLI11's templates cost seconds of compiling in each file, most of it repeated. So the sources go
# into two unity files, for two cores, with little optimization: the libraries do the heavy work.
set_target_properties(sluice PROPERTIES UNITY_BUILD_BATCH_SIZE 14)
target_compile_options(sluice PRIVATE -O1)
if(SLUICE_SANITIZE)
  # CLI11 under sanitizers takes 20 s a file to compile.
  # The modules behind it are fully instrumented.
  target_compile_options(sluice PRIVATE -O0 -fno-sanitize=undefined)
endif()
