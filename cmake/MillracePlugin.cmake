# millrace_add_plugin(NAME SOURCE...): builds a plugin NAME.so. Part of the installed package;
# millrace's own plugins use it too.
function(millrace_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES
    PREFIX "" SUFFIX ".so"
    # Exports only the table, so that no function of one plugin replaces another's.
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Fused multiply-adds would make draws depend on the machine (contract Determinism).
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_link_libraries(${name} PRIVATE millrace::plugin)
  if(NOT MILLRACE_SANITIZE) # otherwise the program provides the sanitizer's functions
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
endfunction()
