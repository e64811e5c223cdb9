# What find_package(millrace) offers: the headers in include/, the same in the build folder as in an
# installation, so that plugins and programs are written the same way against either.
set(MILLRACE_INCLUDE ${CMAKE_SOURCE_DIR}/include)
add_library(millrace_plugin INTERFACE)
add_library(millrace::plugin ALIAS millrace_plugin)
target_include_directories(millrace_plugin INTERFACE ${MILLRACE_INCLUDE})
target_compile_features(millrace_plugin INTERFACE cxx_std_20)
include(MillracePlugin)
