# Native command-line tools for tests and benchmarks. They are not part of the engine and are built
# only where something needs them.
add_library(sluice_tools STATIC EXCLUDE_FROM_ALL
  ${CMAKE_SOURCE_DIR}/src/tools/gguf_writer.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/made_vocabulary.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/model_plan.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/plan_gemma.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/plan_mixtures.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/planner.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/random_blocks.cpp)
target_link_libraries(sluice_tools PUBLIC sluice_base sluice_flags)

add_executable(sluice-make-model EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/tools/make_model.cpp)
# CLI11 throws. The engine's libraries pass -fno-exceptions on, so this must come last.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tools/make_model.cpp
                            PROPERTIES COMPILE_OPTIONS "-fexceptions;-frtti")
target_link_libraries(sluice-make-model PRIVATE sluice_tools sluice_headers)
