# SPDX-License-Identifier: MIT
# What Open MPI 4 and 5 need to start more processes than cores, as root too. MPI_STARTS: it does.
foreach(setting IN ITEMS
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_btl_vader_single_copy_mechanism=none
    PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
    OMP_NUM_THREADS=1)
  string(REGEX MATCH "^([^=]+)=(.*)$" matched "${setting}")
  set(ENV{${CMAKE_MATCH_1}} "${CMAKE_MATCH_2}")
endforeach()

set(MPI_STARTS OFF)
execute_process(COMMAND ${MPIEXEC} ${NUMPROC} ${PROCESSES} true
  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 60)
if(NOT status EQUAL 0)
  message(STATUS "tpsim-skip: ${MPIEXEC} starts no ${PROCESSES} processes here:\n${said}")
else()
  set(MPI_STARTS ON)
endif()
