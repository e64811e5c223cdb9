# Compiler settings of our own code: standard, warnings, sanitizers, output folders.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A symbol is exported only where MILLRACE_EXPORT (include/millrace/export.h) or MILLRACE_PRIVATE_API
# (base/private_api.h) says so.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Puts the program in build/millrace and libraries in build/lib/*.so, where the program finds them.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(MILLRACE_MOLD mold)
if(MILLRACE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(MILLRACE_CCACHE ccache)
if(MILLRACE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MILLRACE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${MILLRACE_CCACHE})
endif()

# Compiles files of one folder in batches, because headers dominate the compile time of small files.
# MILLRACE_UNITY=OFF compiles each file by itself, for editing.
option(MILLRACE_UNITY "Compile files in batches, which shortens a whole build" ON)
set(MILLRACE_UNITY_BATCH 8 CACHE STRING "Files per batch of the program's and the libraries' sources")
function(millrace_batches target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${MILLRACE_UNITY} UNITY_BUILD_BATCH_SIZE ${MILLRACE_UNITY_BATCH})
endfunction()
# millrace_objects(NAME FILE...): object library of a folder's files, linked into a library and its
# tests.
function(millrace_objects name)
  add_library(${name} OBJECT ${ARGN})
  millrace_batches(${name})
  target_link_libraries(${name} PUBLIC millrace_options)
endfunction()

# millrace_sanitized_as_tests(TARGET): compiles code for sanitizers as their tests are compiled, in half
# the time. Not for pixels, which take long then, nor for parsers, of which fuzzers would try less.
function(millrace_sanitized_as_tests target)
  if(MILLRACE_SANITIZE)
    target_compile_options(${target} PRIVATE ${MILLRACE_FAST_BUILD})
  endif()
endfunction()

# millrace_control_code(TARGET): compiles code that no sample passes through with -O1, which takes two
# thirds of the time of -O3.
function(millrace_control_code target)
  millrace_sanitized_as_tests(${target})
  if(NOT MILLRACE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# Flags that halve the time to compile instrumented code: no optimisation, and calls in place of
# inline checks.
set(MILLRACE_FAST_BUILD -O0)
if(MILLRACE_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND MILLRACE_FAST_BUILD "SHELL:--param asan-instrumentation-with-call-threshold=0")
endif()

# Flags of all our targets. -ffp-contract=off keeps the compiler from fusing a multiplication with
# an addition: parameters must have the same bits on every machine (contract Determinism).
add_library(millrace_options INTERFACE)
target_include_directories(millrace_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_compile_options(millrace_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror -ffp-contract=off)
if(MILLRACE_SANITIZE)
  # g++ warns falsely about instrumented code; warnings are errors in the optimised build.
  target_compile_options(millrace_options INTERFACE
    -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-error)
  if(MILLRACE_SANITIZE MATCHES undefined)
    # TBB's headers call through nodes that are under construction or being destroyed.
    target_compile_options(millrace_options INTERFACE -fno-sanitize=vptr)
  endif()
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  if(MILLRACE_SANITIZE MATCHES thread)
    target_compile_options(millrace_options INTERFACE -Wno-tsan) # TBB's headers use fences
  endif()
endif()
