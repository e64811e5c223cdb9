# Public headers for find_package(millrace): include/, the same for the build folder and an
# installation, so that plugins and programs work with either.
set(MILLRACE_INCLUDE ${CMAKE_SOURCE_DIR}/include)
add_library(millrace_plugin INTERFACE)
add_library(millrace::plugin ALIAS millrace_plugin)
target_include_directories(millrace_plugin INTERFACE ${MILLRACE_INCLUDE})
target_compile_features(millrace_plugin INTERFACE cxx_std_20)
include(MillracePlugin)
