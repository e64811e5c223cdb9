# Toolchain for 64-bit Arm: Debian's cross compiler, and qemu's user emulation to run the results.
# cmake --toolchain cmake/aarch64-linux-gnu.cmake -DMILLRACE_AARCH64=FOLDER, where FOLDER is the
# root of an Arm file system with its libraries. tools/test-aarch64 makes one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(MILLRACE_AARCH64 "${CMAKE_CURRENT_LIST_DIR}/../.deps/aarch64" CACHE PATH "Arm's libraries")
get_filename_component(CMAKE_SYSROOT "${MILLRACE_AARCH64}" ABSOLUTE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MILLRACE_AARCH64)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(MILLRACE_MOLD OFF CACHE FILEPATH "The cross compiler's own linker") # the host's mold links for
                                                                        # the host only
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
