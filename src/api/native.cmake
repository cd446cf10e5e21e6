# The library for other programs: libsluice.a and libsluice.so, made of the modules' own objects, so
# nothing is compiled twice; the header; packages for pkg-config and CMake. `cmake --install` puts
# them and the CLI below a prefix, which may be moved. Windows has the CLI only.
file(GLOB sluice_api_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/api/*.cpp)
# No exception leaves the library: its outermost functions catch them.
set_source_files_properties(${sluice_api_sources} PROPERTIES COMPILE_OPTIONS "-fexceptions;-frtti")
target_compile_definitions(sluice_api PRIVATE SLUICE_VERSION="${PROJECT_VERSION}")

include(GNUInstallDirs)
if(TARGET sluice)
  install(TARGETS sluice)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE TYPE DOC)
if(DEFINED VCPKG_INSTALLED_DIR)  # licenses of what is linked statically
  install(DIRECTORY ${VCPKG_INSTALLED_DIR}/${VCPKG_TARGET_TRIPLET}/share/
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party FILES_MATCHING PATTERN copyright)
endif()
if(SLUICE_STATIC)
  foreach(package liblz4-dev libzstd-dev libedit-dev libbsd-dev libmd-dev libncurses-dev
          libcpp-httplib-dev nlohmann-json3-dev libcli11-dev libstdc++-12-dev)
    install(FILES /usr/share/doc/${package}/copyright OPTIONAL
            DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party/${package})
  endforeach()
endif()

if(SLUICE_SANITIZE OR SLUICE_FUZZ OR CMAKE_CROSSCOMPILING OR WIN32)
  return()  # tests link the module
endif()

# Collects what `target` links, directly or not: modules in *modules, other libraries in *externals.
function(sluice_closure target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  else()
    get_target_property(links ${target} LINK_LIBRARIES)
    list(APPEND modules ${target})
  endif()
  foreach(link IN LISTS links)
    if(link MATCHES "^sluice_" AND NOT link IN_LIST modules)
      sluice_closure(${link})
    elseif(link AND NOT link MATCHES "^sluice_")
      list(APPEND externals ${link})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES externals)
  set(modules ${modules} PARENT_SCOPE)
  set(externals ${externals} PARENT_SCOPE)
endfunction()
set(modules "")
set(externals "")
sluice_closure(sluice_api)

# How users of the static library find its dependencies: CMake packages, and linker options for
# pkg-config. With pkg-config packages, users of the shared library would need them installed too.
set(sluice_package_CURL::libcurl CURL)
set(sluice_option_CURL::libcurl -lcurl)
set(sluice_package_lz4 "")  # no CMake package: linked by name
set(sluice_option_lz4 -llz4)
set(sluice_package_zstd "")
set(sluice_option_zstd -lzstd)
set(sluice_package_lz4::lz4 lz4)
set(sluice_option_lz4::lz4 -llz4)
set(sluice_package_zstd::libzstd zstd)
set(sluice_option_zstd::libzstd -lzstd)
set(sluice_package_synchronization "")  # libraries of Windows
set(sluice_option_synchronization -lsynchronization)
set(sluice_package_ws2_32 "")
set(sluice_option_ws2_32 -lws2_32)
set(sluice_package_Threads::Threads Threads)
set(sluice_option_Threads::Threads -pthread)
set(SLUICE_PACKAGES "")
set(SLUICE_PRIVATE_LIBS "")
set(objects "")
foreach(external IN LISTS externals)
  if(NOT DEFINED sluice_package_${external})
    message(FATAL_ERROR "src/api/native.cmake lacks a package and a linker option for ${external}")
  endif()
  list(APPEND SLUICE_PACKAGES ${sluice_package_${external}})
  string(APPEND SLUICE_PRIVATE_LIBS "${sluice_option_${external}} ")
endforeach()
set(SLUICE_CXX_LIBRARY stdc++)  # for programs that a C compiler links
if(APPLE)
  set(SLUICE_CXX_LIBRARY c++)
endif()
string(APPEND SLUICE_PRIVATE_LIBS "-l${SLUICE_CXX_LIBRARY} -lm")
foreach(module IN LISTS modules)
  list(APPEND objects $<TARGET_OBJECTS:${module}>)
endforeach()

add_library(sluice_static STATIC ${objects})
add_library(sluice_shared SHARED ${objects} ${SLUICE_OLDER_GLIBC})
foreach(library sluice_static sluice_shared)
  target_link_libraries(${library} PRIVATE ${externals})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME sluice LINKER_LANGUAGE CXX)
endforeach()
set_target_properties(sluice_shared PROPERTIES EXPORT_NAME sluice VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(sluice_static PROPERTIES EXPORT_NAME static)
if(APPLE)
  target_link_options(sluice_shared PRIVATE "LINKER:-exported_symbol,_sluice_*")
else()
  set(exports ${CMAKE_SOURCE_DIR}/src/api/exports.map)
  target_link_options(sluice_shared PRIVATE "LINKER:--version-script=${exports},--no-undefined")
  set_target_properties(sluice_shared PROPERTIES LINK_DEPENDS ${exports})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
foreach(library shared static)
  install(TARGETS sluice_${library} EXPORT sluice-${library})
  install(EXPORT sluice-${library} NAMESPACE sluice:: DESTINATION ${package_dir})
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/src/api/sluice.h TYPE INCLUDE)

include(CMakePackageConfigHelpers)
configure_file(${CMAKE_SOURCE_DIR}/src/api/sluice-config.cmake.in
               ${CMAKE_BINARY_DIR}/sluice-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sluice-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sluice-config.cmake
              ${CMAKE_BINARY_DIR}/sluice-config-version.cmake DESTINATION ${package_dir})
file(RELATIVE_PATH SLUICE_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_SOURCE_DIR}/src/api/sluice.pc.in ${CMAKE_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
