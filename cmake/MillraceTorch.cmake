# Imports LibTorch as targets of our own. The wheel's find_package(Torch) requires nvcc and a whole
# CUDA toolkit if the wheel was built with CUDA, even if only its CPU half is used.
#
# Looks in CMAKE_PREFIX_PATH (an unpacked LibTorch, a torch folder, or the output of Python's
# torch.utils.cmake_prefix_path), then where tools/quickstart puts the wheel. Defines
#   millrace_libtorch       headers, libtorch_cpu, libc10, and the libraries that these need
#   millrace_libtorch_cuda  the CUDA half, if MILLRACE_CUDA_BUILT is true
set(MILLRACE_TORCH_LEAST 2.11)
set(MILLRACE_DEPS ${CMAKE_SOURCE_DIR}/.deps)

# --- folder: include/, lib/
set(torch_candidates)
set(torch_prefixes ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" torch_environment "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND torch_prefixes ${torch_environment})
endif()
foreach(prefix IN LISTS torch_prefixes)
  list(APPEND torch_candidates ${prefix} ${prefix}/torch ${prefix}/libtorch ${prefix}/../..)
endforeach()
list(APPEND torch_candidates ${MILLRACE_DEPS}/torch/torch)

set(MILLRACE_TORCH_ROOT)
foreach(candidate IN LISTS torch_candidates)
  if(EXISTS ${candidate}/include/torch/csrc/api/include/torch/torch.h
      AND EXISTS ${candidate}/lib/libtorch_cpu.so AND EXISTS ${candidate}/lib/libc10.so)
    get_filename_component(MILLRACE_TORCH_ROOT ${candidate} REALPATH)
    break()
  endif()
endforeach()
if(NOT MILLRACE_TORCH_ROOT)
  message(FATAL_ERROR
    "LibTorch was found neither in CMAKE_PREFIX_PATH nor in .deps/torch. One of these helps:\n"
    "  bash tools/quickstart                     installs it under .deps and builds\n"
    "  cmake -DCMAKE_PREFIX_PATH=/path/libtorch  uses one that is there\n"
    "  cmake -DMILLRACE_TORCH=OFF                builds everything but training")
endif()

# --- version; the header moved between releases
set(MILLRACE_TORCH_VERSION)
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT MILLRACE_TORCH_VERSION AND EXISTS ${MILLRACE_TORCH_ROOT}/include/${header})
    file(STRINGS ${MILLRACE_TORCH_ROOT}/include/${header} torch_numbers
      REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
    list(TRANSFORM torch_numbers REPLACE "^.* " "")
    list(JOIN torch_numbers . MILLRACE_TORCH_VERSION)
  endif()
endforeach()
if(NOT MILLRACE_TORCH_VERSION OR MILLRACE_TORCH_VERSION VERSION_LESS MILLRACE_TORCH_LEAST)
  message(FATAL_ERROR
    "LibTorch ${MILLRACE_TORCH_VERSION} in ${MILLRACE_TORCH_ROOT} is too old: millrace needs "
    "${MILLRACE_TORCH_LEAST} or newer. Leave it out of CMAKE_PREFIX_PATH and run "
    "bash tools/quickstart, or configure with -DMILLRACE_TORCH=OFF.")
endif()

# --- CUDA libraries that even libtorch_cpu.so may be linked to (it needs the files, not a GPU):
# read from the library itself, found in the toolkit or beside the wheel
execute_process(
  COMMAND ${CMAKE_READELF} -d ${MILLRACE_TORCH_ROOT}/lib/libtorch_cpu.so
  OUTPUT_VARIABLE torch_dynamic RESULT_VARIABLE torch_readelf ERROR_QUIET)
if(NOT torch_readelf EQUAL 0)
  message(FATAL_ERROR "${MILLRACE_TORCH_ROOT}/lib/libtorch_cpu.so cannot be read as a library; "
    "remove .deps/torch and run bash tools/quickstart to fetch it again.")
endif()
string(REGEX MATCHALL "lib(cudart|cupti)\\.so\\.[0-9]+" torch_needs "${torch_dynamic}")
list(REMOVE_DUPLICATES torch_needs)

file(GLOB torch_wheel_folders ${MILLRACE_TORCH_ROOT}/../nvidia/*/lib)
set(torch_need_folders)
foreach(library IN LISTS torch_needs)
  string(MAKE_C_IDENTIFIER "MILLRACE_${library}" torch_place)
  find_library(${torch_place} ${library}
    HINTS ${torch_wheel_folders}
    PATHS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda
    PATH_SUFFIXES lib64 extras/CUPTI/lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib)
  mark_as_advanced(${torch_place})
  if(NOT ${torch_place})
    message(FATAL_ERROR
      "LibTorch in ${MILLRACE_TORCH_ROOT} needs ${library}, which is in no CUDA toolkit here and not "
      "beside the wheel. bash tools/quickstart installs it; -DMILLRACE_TORCH=OFF builds everything "
      "but training.")
  endif()
  get_filename_component(torch_folder ${${torch_place}} DIRECTORY)
  list(APPEND torch_need_folders ${torch_folder})
endforeach()
list(REMOVE_DUPLICATES torch_need_folders)

# --- targets. SYSTEM limits our warnings to our own code. The wheel ships headers of fmt, newer
# than the system's library, in the same folder, so nothing that uses this target may include fmt
# (tested).
add_library(millrace_libtorch INTERFACE)
target_include_directories(millrace_libtorch SYSTEM INTERFACE
  ${MILLRACE_TORCH_ROOT}/include ${MILLRACE_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(millrace_libtorch INTERFACE
  ${MILLRACE_TORCH_ROOT}/lib/libtorch_cpu.so ${MILLRACE_TORCH_ROOT}/lib/libc10.so)
# An RPATH of the old kind also serves the libraries that LibTorch itself loads. Executables
# that link LibTorch (tests, benchmarks) stay in the build folder and name its folders outright;
# libraries get MILLRACE_TORCH_FOLDERS as BUILD_RPATH, which an installation replaces.
set(MILLRACE_TORCH_FOLDERS ${MILLRACE_TORCH_ROOT}/lib ${torch_need_folders})
target_link_options(millrace_libtorch INTERFACE LINKER:--disable-new-dtags)
foreach(folder ${MILLRACE_TORCH_FOLDERS})
  target_link_options(millrace_libtorch INTERFACE LINKER:-rpath-link,${folder}
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:-rpath,${folder}>)
endforeach()
# LibTorch's macros put the names of source files into messages: short ones, the same everywhere.
target_compile_options(millrace_libtorch INTERFACE
  -fmacro-prefix-map=${MILLRACE_TORCH_ROOT}/include/= -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)

# --- the files that a package bundles: libtorch_cpu.so and what it needs beside Debian's packages
set(MILLRACE_TORCH_FILES ${MILLRACE_TORCH_ROOT}/lib/libtorch_cpu.so)
string(REGEX MATCHALL "\\[lib[^]]+\\.so[^]]*\\]" torch_libraries "${torch_dynamic}")
foreach(library IN LISTS torch_libraries)
  string(REGEX REPLACE "[][]" "" library "${library}")
  if(EXISTS ${MILLRACE_TORCH_ROOT}/lib/${library})
    list(APPEND MILLRACE_TORCH_FILES ${MILLRACE_TORCH_ROOT}/lib/${library})
  endif()
endforeach()
foreach(library IN LISTS torch_needs)
  string(MAKE_C_IDENTIFIER "MILLRACE_${library}" torch_place)
  list(APPEND MILLRACE_TORCH_FILES ${${torch_place}})
endforeach()

# --- CUDA: the module needs the runtime's headers, in the version that LibTorch was built with
set(MILLRACE_CUDA_BUILT OFF)
set(torch_cuda_lacks "it was configured with MILLRACE_CUDA=OFF")
if(NOT MILLRACE_CUDA STREQUAL "OFF")
  string(REGEX MATCH "libcudart\\.so\\.([0-9]+)" torch_cudart "${torch_dynamic}")
  set(torch_cuda_major ${CMAKE_MATCH_1})
  find_package(CUDAToolkit QUIET)
  set(torch_cuda_lacks)
  if(NOT EXISTS ${MILLRACE_TORCH_ROOT}/lib/libtorch_cuda.so
      OR NOT EXISTS ${MILLRACE_TORCH_ROOT}/include/c10/cuda/CUDACachingAllocator.h)
    set(torch_cuda_lacks "this LibTorch is for the CPU alone")
  elseif(NOT CUDAToolkit_FOUND)
    set(torch_cuda_lacks "no CUDA toolkit (nvcc) was found")
  elseif(torch_cuda_major AND NOT CUDAToolkit_VERSION_MAJOR EQUAL torch_cuda_major)
    set(torch_cuda_lacks
      "the toolkit is CUDA ${CUDAToolkit_VERSION}, LibTorch was built with CUDA ${torch_cuda_major}")
  endif()
  if(NOT torch_cuda_lacks)
    set(MILLRACE_CUDA_BUILT ON)
  elseif(NOT MILLRACE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "MILLRACE_CUDA=${MILLRACE_CUDA}: ${torch_cuda_lacks}. "
      "Set CUDAToolkit_ROOT or CMAKE_PREFIX_PATH, or configure with -DMILLRACE_CUDA=OFF.")
  endif()
endif()
if(MILLRACE_CUDA_BUILT)
  # no-as-needed: libtorch_cuda registers itself when it is loaded, without a call to any of its
  # symbols. Its own dependencies (cuDNN, NCCL, ...) are resolved at load time, not when we link.
  add_library(millrace_libtorch_cuda INTERFACE)
  target_link_libraries(millrace_libtorch_cuda INTERFACE millrace_libtorch CUDA::cudart)
  target_link_options(millrace_libtorch_cuda INTERFACE LINKER:--allow-shlib-undefined
    LINKER:--push-state,--no-as-needed
    ${MILLRACE_TORCH_ROOT}/lib/libtorch_cuda.so ${MILLRACE_TORCH_ROOT}/lib/libc10_cuda.so
    LINKER:--pop-state)
  set(torch_cuda_says "has a CUDA module, for CUDA ${CUDAToolkit_VERSION}")
else()
  # The program says the same where the module is missing.
  set(MILLRACE_WHY_NO_CUDA "has no CUDA module: ${torch_cuda_lacks}")
  set(torch_cuda_says "${MILLRACE_WHY_NO_CUDA}")
endif()
message(STATUS "LibTorch ${MILLRACE_TORCH_VERSION} in ${MILLRACE_TORCH_ROOT}; "
  "this build ${torch_cuda_says}")
