# The headers as users include them, in the build folder as in an installation:
#   include/millrace/millrace.hpp, include/millrace/{plugins,pipeline,augment}/
# so that plugins and programs are written the same way against either.
set(MILLRACE_INCLUDE ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${MILLRACE_INCLUDE}/millrace)
foreach(room plugins pipeline augment)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${room} ${MILLRACE_INCLUDE}/millrace/${room} SYMBOLIC)
endforeach()
foreach(header millrace.h millrace.hpp)
  file(CONFIGURE OUTPUT ${MILLRACE_INCLUDE}/millrace/${header}
    CONTENT "#include \"plugins/${header}\" // IWYU pragma: export\n")
endforeach()

add_library(millrace_plugin INTERFACE)
add_library(millrace::plugin ALIAS millrace_plugin)
target_include_directories(millrace_plugin INTERFACE ${MILLRACE_INCLUDE})
target_compile_features(millrace_plugin INTERFACE cxx_std_20)
include(MillracePlugin)
