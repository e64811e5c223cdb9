# Finds the libraries by name: Debian's packages, and LibTorch in a wheel or a folder.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(TBB REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(JPEG REQUIRED) # libjpeg-turbo
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto) # headers, for SHA-256; the library itself is opened at run time
find_package(CURL REQUIRED) # for remote data; the library itself is opened at run time
find_package(Boost REQUIRED) # for Boost.Math, headers only
pkg_check_modules(TIFF REQUIRED IMPORTED_TARGET libtiff-4>=4.5)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(YAML_CPP REQUIRED IMPORTED_TARGET yaml-cpp)

if(MILLRACE_OPENCV)
  # Finds OpenCV's modules one by one, because Debian's full development package depends on a desktop.
  find_path(OPENCV_INCLUDE opencv2/core.hpp PATH_SUFFIXES opencv4 REQUIRED)
  foreach(part core imgproc imgcodecs)
    find_library(OPENCV_${part} opencv_${part} REQUIRED)
    add_library(millrace_opencv_${part} INTERFACE)
    target_include_directories(millrace_opencv_${part} SYSTEM INTERFACE ${OPENCV_INCLUDE})
    target_link_libraries(millrace_opencv_${part} INTERFACE ${OPENCV_${part}})
  endforeach()
endif()

if(MILLRACE_TORCH)
  include(MillraceTorch)
endif()
if(MILLRACE_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MILLRACE_TESTS OR MILLRACE_BENCH)
  pkg_check_modules(TURBOJPEG REQUIRED IMPORTED_TARGET libturbojpeg)
endif()
if(MILLRACE_BENCH)
  find_package(benchmark REQUIRED)
endif()
