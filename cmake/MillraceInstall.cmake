# cmake --install, and the package for find_package(millrace): of the build folder
# (-Dmillrace_DIR=build) and of an installation. Components: program, torch (LibTorch's libraries),
# cuda, development; cmake/MillracePackage.cmake packs all but cuda.
include(CMakePackageConfigHelpers)

# --- program
install(TARGETS millrace_pipeline LIBRARY DESTINATION lib COMPONENT program)
install(TARGETS millrace_imgcodecs LIBRARY DESTINATION lib/millrace/plugins COMPONENT program)
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION bin COMPONENT program)
  install(TARGETS millrace_trainer LIBRARY DESTINATION lib COMPONENT program)
  install(DIRECTORY recipes DESTINATION share/millrace COMPONENT program FILES_MATCHING PATTERN *.toml)
  set(generated ${CMAKE_BINARY_DIR}/generated/install) # by the target `manual`
  install(FILES ${generated}/millrace.1 DESTINATION share/man/man1 COMPONENT program)
  install(FILES ${generated}/millrace COMPONENT program
    DESTINATION share/bash-completion/completions)
  install(FILES ${generated}/_millrace COMPONENT program
    DESTINATION share/zsh/vendor-completions)
  install(FILES ${generated}/millrace.fish COMPONENT program
    DESTINATION share/fish/vendor_completions.d)
endif()
install(FILES LICENSE RENAME copyright DESTINATION share/doc/millrace COMPONENT program)
install(FILES NOTICE.md CHANGELOG.md docs/reference/summary.schema.json docs/reference/watch.schema.json DESTINATION share/doc/millrace COMPONENT program)

# --- torch: libmillrace_torch.so, the benchmark on it, and the LibTorch that it was built with
if(TARGET millrace_torch)
  install(TARGETS millrace_torch millrace_bench LIBRARY DESTINATION lib COMPONENT torch)
  foreach(file IN LISTS MILLRACE_TORCH_FILES)
    get_filename_component(name ${file} NAME)
    get_filename_component(file ${file} REALPATH)
    install(FILES ${file} RENAME ${name} DESTINATION lib/millrace/torch COMPONENT torch)
  endforeach()
  file(GLOB licenses ${MILLRACE_TORCH_ROOT}/../torch-*.dist-info/licenses/LICENSE
    ${MILLRACE_TORCH_ROOT}/../torch-*.dist-info/licenses/NOTICE ${MILLRACE_TORCH_ROOT}/LICENSE)
  install(FILES ${licenses} DESTINATION share/doc/millrace/libtorch COMPONENT torch)
endif()

# --- cuda: LibTorch's CUDA half stays where it is, so this works on the machine that built it
if(TARGET millrace_cuda)
  set_property(TARGET millrace_cuda APPEND PROPERTY INSTALL_RPATH ${MILLRACE_TORCH_FOLDERS})
  install(TARGETS millrace_cuda LIBRARY DESTINATION lib COMPONENT cuda OPTIONAL) # if it was built
endif()

# --- development
install(DIRECTORY include/millrace DESTINATION include COMPONENT development)
install(DIRECTORY plugins/examples/ DESTINATION share/millrace/examples/plugins COMPONENT development)
install(DIRECTORY docs/examples/load_batches DESTINATION share/millrace/examples
  COMPONENT development)

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
  DESTINATION lib/cmake/millrace COMPONENT development)

include(MillracePackage)
