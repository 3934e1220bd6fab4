# SPDX-License-Identifier: MIT
# Fails when a header includes one of a folder that stands above its own:
# core <- layout <- comm <- backend <- layers <- verify <- checkpoint, which is compiled.
# -DINCLUDE=folder that holds tpsim/
set(order core layout comm backend layers verify checkpoint)
file(GLOB_RECURSE headers ${INCLUDE}/tpsim/*.hpp)
list(LENGTH headers count)
if(count LESS 20)
  message(FATAL_ERROR "only ${count} headers below ${INCLUDE}/tpsim: nothing was checked")
endif()
set(wrong "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE ".*/tpsim/([a-z]+)/.*" "\\1" own "${header}")
  list(FIND order "${own}" own_place)
  if(own_place LESS 0)
    continue()  # version.hpp
  endif()
  file(STRINGS ${header} lines REGEX "#include <tpsim/[a-z]+/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*<tpsim/([a-z]+)/.*" "\\1" other "${line}")
    list(FIND order "${other}" other_place)
    if(other_place GREATER own_place)
      string(APPEND wrong "\n  ${header}: ${line}")
    endif()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "includes against the order of folders:${wrong}")
endif()
