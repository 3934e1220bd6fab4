# SPDX-License-Identifier: MIT
# cmake -DPROGRAM=... -DEXPECTED=... -P compare_output.cmake: runs a program, compares its stdout.
cmake_policy(VERSION 3.22)

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE status)
file(READ ${EXPECTED} expected)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${status} after printing:\n${printed}")
endif()
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed:\n${printed}\nbut ${EXPECTED} says:\n${expected}")
endif()
