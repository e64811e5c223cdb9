# Writes FILE, which makes each suite of a GoogleTest executable one test of ctest, PREFIXsuite.*:
#   cmake -D EXECUTABLE= -D PREFIX= -D EXCEPT= -D PROPERTIES= -D FILE= -P DiscoverSuites.cmake
# EXCEPT: cases to leave out, as a filter of GoogleTest. PROPERTIES: name and value, in turn, separated by |.
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests --gtest_filter=-${EXCEPT}
  OUTPUT_VARIABLE listed RESULT_VARIABLE status TIMEOUT 120)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} --gtest_list_tests: ${status}\n${listed}")
endif()
get_filename_component(folder ${FILE} DIRECTORY)
string(REPLACE "|" "]==] [==[" properties "${PROPERTIES}")
# A suite's name begins a line and ends in a dot; names of cases are indented.
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\." suites "\n${listed}")
if(NOT suites)
  message(FATAL_ERROR "${EXECUTABLE} lists no suite")
endif()
set(text "")
foreach(suite ${suites})
  string(STRIP "${suite}" suite)
  set(filter "${suite}*")
  if(EXCEPT)
    string(APPEND filter "-${EXCEPT}")
  endif()
  string(APPEND text
    "add_test([==[${PREFIX}${suite}*]==] [==[${EXECUTABLE}]==] [==[--gtest_filter=${filter}]==])\n"
    "set_tests_properties([==[${PREFIX}${suite}*]==] PROPERTIES\n"
    "  WORKING_DIRECTORY [==[${folder}]==] [==[${properties}]==])\n")
endforeach()
file(WRITE ${FILE} "${text}")
