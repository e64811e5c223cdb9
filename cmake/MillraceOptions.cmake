# How our own code is compiled: standard, warnings, sanitizers, where things are put.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET default)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# build/millrace, build/lib/*.so: the program finds its libraries beside it.
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

# Most of a small file's compile time goes into headers, so files of one folder are compiled in
# batches. MILLRACE_UNITY=OFF is for editing: each file then is compiled by itself.
option(MILLRACE_UNITY "Compile files in batches, which halves the time of a whole build" ON)
function(millrace_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MILLRACE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()
# millrace_objects(NAME FILE...): a folder's files, to be linked into a library and into its tests.
function(millrace_objects name)
  add_library(${name} OBJECT ${ARGN})
  millrace_batches(${name})
  target_link_libraries(${name} PUBLIC millrace_options)
endfunction()

# Flags of every target of ours. -ffp-contract=off: parameters must have the same bits on every
# machine (determinism contract), so the compiler may not fuse a multiplication with an addition.
add_library(millrace_options INTERFACE)
target_include_directories(millrace_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_compile_options(millrace_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror -ffp-contract=off)
if(MILLRACE_SANITIZE)
  # Instrumented code draws false warnings from g++; the optimised build is where they are errors.
  target_compile_options(millrace_options INTERFACE
    -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-error)
  if(MILLRACE_SANITIZE MATCHES undefined)
    # TBB's headers call through nodes that are still being built or already taken apart.
    target_compile_options(millrace_options INTERFACE -fno-sanitize=vptr)
  endif()
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  if(MILLRACE_SANITIZE MATCHES thread)
    target_compile_options(millrace_options INTERFACE -Wno-tsan) # fences in TBB's headers
  endif()
endif()
