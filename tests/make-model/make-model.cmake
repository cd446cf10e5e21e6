# sluice-make-model: writes models with synthetic weights. Tests and benchmarks build it when they
# need it, `npm run build -- --tools` always; it is not part of the engine.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
add_library(sluice_make_model STATIC EXCLUDE_FROM_ALL ${sources})
target_link_libraries(sluice_make_model PUBLIC sluice_base sluice_flags)

add_executable(sluice-make-model EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
# CLI11 throws. The engine's libraries pass -fno-exceptions on, so this must come last. The library does
# the work, so its templates need little optimization.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/main.cpp
                            PROPERTIES COMPILE_OPTIONS "-fexceptions;-frtti;-O1")
target_link_libraries(sluice-make-model PRIVATE sluice_make_model sluice_headers)
