# The terminal program. CLI11 and nlohmann/json use exceptions, so this room has them switched on.
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cpp)
add_executable(sluice ${sources})
find_path(SLUICE_EDIT_DIR histedit.h REQUIRED)
find_library(SLUICE_EDIT_LIBRARY edit REQUIRED)
target_link_libraries(sluice PRIVATE sluice_generate sluice_embed sluice_native sluice_chat sluice_serve sluice_convert sluice_flags
                      nlohmann_json::nlohmann_json CLI11::CLI11 ${SLUICE_EDIT_LIBRARY})
target_include_directories(sluice SYSTEM PRIVATE ${SLUICE_EDIT_DIR})
target_compile_definitions(sluice PRIVATE SLUICE_VERSION="${PROJECT_VERSION}")
if(SLUICE_SANITIZE)
  target_compile_options(sluice PRIVATE -O0)  # CLI11 under sanitizers takes a compiler 20 s a file
endif()
