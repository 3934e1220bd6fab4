# SPDX-License-Identifier: MIT
# cmake -DBUILD=<build folder> -DSOURCE=<checkout> -DWORK=<scratch folder> -P run.cmake
# Installs tpsim, moves the installed tree, builds a stranger's program on it in three ways, and a
# stranger's project that verifies a layer of its own.
cmake_policy(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}")
  endif()
endfunction()

set(consumer ${CMAKE_CURRENT_LIST_DIR})
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/moved)

# find_package
run(${CMAKE_COMMAND} -S ${consumer} -B ${WORK}/found -DCMAKE_PREFIX_PATH=${WORK}/moved)
run(${CMAKE_COMMAND} --build ${WORK}/found)
run(${WORK}/found/consumer)

# find_package, for a layer of one's own: verified when it is right, told what is wrong when not
run(${CMAKE_COMMAND} -S ${consumer}/../downstream -B ${WORK}/downstream
  -DCMAKE_PREFIX_PATH=${WORK}/moved)
run(${CMAKE_COMMAND} --build ${WORK}/downstream)
function(check_my_layer wanted_status wanted_text)
  execute_process(COMMAND ${WORK}/downstream/check_my_layer ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE printed)
  string(FIND "${printed}" "${wanted_text}" at)
  if(NOT status EQUAL wanted_status OR at LESS 0)
    message(FATAL_ERROR
      "check_my_layer ${ARGN} ended with ${status}, wanted ${wanted_status} and the text\n"
      "${wanted_text}\nIt printed:\n${printed}")
  endif()
endfunction()
check_my_layer(0 "gated_row, tp 4")
check_my_layer(0 "verified: 10 checks passed")
check_my_layer(1
  "rank 1 gate.weight: holds gate.weight rows [0, 4), wanted gate.weight rows [4, 8)" --wrong)
check_my_layer(1 "cause: the rank was taken as 0" --wrong)

# add_subdirectory
run(${CMAKE_COMMAND} -S ${consumer} -B ${WORK}/nested -DTPSIM_SOURCE=${SOURCE})
run(${CMAKE_COMMAND} --build ${WORK}/nested --target consumer)
run(${WORK}/nested/consumer)

# pkg-config
find_program(pkg_config pkg-config)
if(NOT pkg_config)
  message(STATUS "no pkg-config here: its file was not tried")
  return()
endif()
file(GLOB_RECURSE pc_file ${WORK}/moved/*/tpsim.pc)
cmake_path(GET pc_file PARENT_PATH pc_folder)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs tpsim
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags)
run(c++ -std=c++20 ${consumer}/main.cpp -o ${WORK}/by_pkg_config ${flags})
run(${WORK}/by_pkg_config)
