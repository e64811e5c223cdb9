# Writes tools/version.h with the commit that is built. Runs at every build.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE MILLRACE_GIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(MILLRACE_GIT "unknown")
endif()
configure_file(${SOURCE}/tools/version.h.in ${TARGET} @ONLY)
