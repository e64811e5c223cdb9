# millrace_add_plugin(NAME SOURCE...): a plugin NAME.so from its sources. Part of the installed
# package; millrace's own plugins are built with it too.
function(millrace_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES
    PREFIX "" SUFFIX ".so"
    # The table alone is seen from outside, so no function of one plugin takes the place of another's.
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Fused multiply-adds would make draws depend on the machine (determinism contract).
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_link_libraries(${name} PRIVATE millrace::plugin)
  if(NOT MILLRACE_SANITIZE) # else the sanitizer's functions come from the program
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
endfunction()
