# SPDX-License-Identifier: MIT
# The dependency list of SOURCE must hold every header of LAYERS and no file of a backend's library.
cmake_policy(VERSION 3.22)

set(flags "")
list(REMOVE_ITEM INCLUDES "")  # what $<INSTALL_INTERFACE> leaves before CMake 3.23
foreach(folder IN LISTS INCLUDES)
  list(APPEND flags -I${folder})
endforeach()
if(EXTRA)
  list(APPEND flags -include ${EXTRA})
endif()
execute_process(
  COMMAND ${COMPILER} -std=c++20 -M -I${ROOT} ${flags} ${SOURCE}
  OUTPUT_VARIABLE rule RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "cannot list the dependencies of ${SOURCE}")
endif()
string(REGEX REPLACE "^[^:]*:" "" rule "${rule}")
string(REGEX REPLACE "[ \\\n]+" ";" paths "${rule}")

set(seen "")
foreach(path IN LISTS paths)
  if(path STREQUAL "")
    continue()
  endif()
  cmake_path(NORMAL_PATH path)
  list(APPEND seen ${path})
  # The checkout's own place may be called anything.
  string(REPLACE "${ROOT}/" "" shown "${path}")
  if(shown MATCHES "(^|/)([Ee]igen3?|cuda[a-z_0-9.]*|[a-z]*mpi|nccl|boost)(/|\\.|$)")
    message(SEND_ERROR "layers reach ${shown}")
  endif()
endforeach()
foreach(layer IN LISTS LAYERS)
  if(NOT layer IN_LIST seen)
    message(SEND_ERROR "${SOURCE} does not include ${layer}")
  endif()
endforeach()
