# Native command-line tools for tests and benchmarks; they are not part of the engine.
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)

add_library(sluice_tools STATIC
  ${CMAKE_SOURCE_DIR}/src/tools/gguf_writer.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/made_vocabulary.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/model_plan.cpp
  ${CMAKE_SOURCE_DIR}/src/tools/random_blocks.cpp)
target_link_libraries(sluice_tools PUBLIC sluice_flags Threads::Threads)

add_executable(sluice-make-model ${CMAKE_SOURCE_DIR}/src/tools/make_model.cpp)
target_link_libraries(sluice-make-model PRIVATE sluice_tools)
target_include_directories(sluice-make-model SYSTEM PRIVATE ${CLI11_INCLUDE_DIR})
