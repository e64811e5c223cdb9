# Finds what the Python package needs: Python's headers, and nanobind, which tools/test installs under
# .deps/python. Sets MILLRACE_PYTHON_BUILT.
set(MILLRACE_PYTHON_PACKAGES ${CMAKE_SOURCE_DIR}/.deps/python)
set(MILLRACE_PYTHON_BUILT OFF)
if(MILLRACE_PYTHON STREQUAL "OFF" OR MILLRACE_SANITIZE)
  return()
endif()

if(NOT Python_EXECUTABLE)
  find_program(Python_EXECUTABLE python3) # the one that is in use, not the newest
endif()
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
if(Python_FOUND AND NOT nanobind_ROOT)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${MILLRACE_PYTHON_PACKAGES}:$ENV{PYTHONPATH}
      ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT ERROR_QUIET)
endif()
if(Python_FOUND AND nanobind_ROOT)
  find_package(nanobind 3.1 CONFIG QUIET)
endif()
if(Python_FOUND AND nanobind_FOUND)
  set(MILLRACE_PYTHON_BUILT ON)
elseif(NOT MILLRACE_PYTHON STREQUAL "AUTO")
  message(FATAL_ERROR "MILLRACE_PYTHON=${MILLRACE_PYTHON}: Python 3.10 with its headers and nanobind 3.1 are "
    "needed. Install python3-dev and nanobind, or build the package with pip install ./python.")
endif()
