# Installation, and the package for find_package(millrace): for the build folder
# (-Dmillrace_DIR=build) and for an installation.
include(CMakePackageConfigHelpers)

install(TARGETS millrace_pipeline LIBRARY DESTINATION lib)
install(TARGETS millrace_imgcodecs LIBRARY DESTINATION lib/millrace/plugins)
foreach(library millrace_torch millrace_cuda)
  if(TARGET ${library})
    install(TARGETS ${library} LIBRARY DESTINATION lib)
  endif()
endforeach()
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION bin)
  install(TARGETS millrace_sheet LIBRARY DESTINATION lib)
  install(DIRECTORY recipes DESTINATION share/millrace FILES_MATCHING PATTERN *.toml)
endif()
install(DIRECTORY plugins/examples/ DESTINATION share/millrace/examples/plugins)
install(DIRECTORY docs/examples/load_batches DESTINATION share/millrace/examples)

install(DIRECTORY include/millrace DESTINATION include)

# Configures the same file twice, with different paths.
set(MILLRACE_PACKAGE_INCLUDE ${MILLRACE_INCLUDE})
set(MILLRACE_PACKAGE_LIB ${CMAKE_BINARY_DIR}/lib)
set(MILLRACE_PACKAGE_PROGRAM ${CMAKE_BINARY_DIR}/millrace)
set(MILLRACE_PACKAGE_CMAKE ${CMAKE_SOURCE_DIR}/cmake)
configure_file(cmake/millraceConfig.cmake.in ${CMAKE_BINARY_DIR}/millraceConfig.cmake @ONLY)

set(prefix "\${CMAKE_CURRENT_LIST_DIR}/../../..")
set(MILLRACE_PACKAGE_INCLUDE ${prefix}/include)
set(MILLRACE_PACKAGE_LIB ${prefix}/lib)
set(MILLRACE_PACKAGE_PROGRAM ${prefix}/bin/millrace)
set(MILLRACE_PACKAGE_CMAKE "\${CMAKE_CURRENT_LIST_DIR}")
configure_file(cmake/millraceConfig.cmake.in ${CMAKE_BINARY_DIR}/installed/millraceConfig.cmake @ONLY)

write_basic_package_version_file(${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/installed/millraceConfig.cmake
  ${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake cmake/MillracePlugin.cmake
  DESTINATION lib/cmake/millrace)
