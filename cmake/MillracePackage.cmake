# cpack: millrace_VERSION_amd64.deb and millrace-VERSION-Linux.tar.gz, from the build folder:
#   ninja -C build program && (cd build && cpack)
# One package holds the program, LibTorch's CPU libraries and the development files. Debian has no
# LibTorch of the version that is needed, so a second package would serve nobody else and could only
# get out of step. The CUDA module is left out: it needs LibTorch's CUDA half and NVIDIA's libraries.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "The millrace authors")
set(CPACK_PACKAGE_CONTACT "The millrace authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES TRUE) # our own; LibTorch is packed as its wheel has it
set(CPACK_THREADS 0)
set(CPACK_INSTALL_CMAKE_PROJECTS)
foreach(component program torch development)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${CMAKE_BINARY_DIR} ${PROJECT_NAME} ${component} /)
endforeach()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd) # Debian 12's dpkg reads it; xz takes minutes for LibTorch
# Dependencies are what the program's own files link. LibTorch and its neighbours come along.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# These are opened at run time: for indexes and trusted plugins, and for remote data.
set(CPACK_DEBIAN_PACKAGE_DEPENDS libssl3)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libcurl4)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib ${MILLRACE_TORCH_FOLDERS})
include(CPack)
