# Compiles for 64-bit Arm with Debian's cross compiler, and runs what was compiled by qemu's user
# emulation: cmake --toolchain cmake/aarch64-linux-gnu.cmake -DMILLRACE_AARCH64=FOLDER, where FOLDER
# holds Arm's libraries as / of such a machine does. tools/test-aarch64 makes one.
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
set(MILLRACE_MOLD OFF CACHE FILEPATH "The cross compiler's own linker") # mold is of this machine
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
