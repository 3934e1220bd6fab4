# SPDX-License-Identifier: MIT
# cmake -DMPIEXEC=mpirun -DNUMPROC=-np -DPROCESSES=3 -DPROGRAM=... [-DARGUMENTS=a;b] [-DDIES=TEXT]
#   -P run_mpi.cmake
# Runs the program on several processes; "tpsim-skip:" where mpirun cannot start any. With DIES, the
# job must end in failure within 10 s of "dies at SECONDS", with a text that matches.
include(${CMAKE_CURRENT_LIST_DIR}/mpi_environment.cmake)
if(NOT MPI_STARTS)
  return()
endif()
execute_process(COMMAND ${MPIEXEC} ${NUMPROC} ${PROCESSES} ${PROGRAM} ${ARGUMENTS}
  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 240)
string(TIMESTAMP now "%s" UTC)
message("${said}")
if(DIES)
  if(status EQUAL 0 OR NOT status MATCHES "^[0-9]+$" OR NOT said MATCHES "${DIES}")
    message(FATAL_ERROR "wanted a failure that says '${DIES}'; ended with ${status}")
  endif()
  if(NOT said MATCHES "dies at ([0-9]+)")
    message(FATAL_ERROR "no rank died")
  endif()
  math(EXPR took "${now} - ${CMAKE_MATCH_1}")
  if(took GREATER 10)
    message(FATAL_ERROR "the job went on for ${took} s without the rank")
  endif()
elseif(NOT status EQUAL 0)
  message(FATAL_ERROR "ended with ${status}")
endif()
