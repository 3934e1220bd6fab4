# SPDX-License-Identifier: MIT
# cmake -DMPIEXEC=mpirun -DNUMPROC=-np -DPROCESSES=3 -DPROGRAM=tpsim -DDATA=tests/data
#   -P same_report.cmake
# The JSON of each command over MPI is that on virtual ranks, but for where its ranks live and how
# long it took; so is the exit status.
include(${CMAKE_CURRENT_LIST_DIR}/mpi_environment.cmake)
if(NOT MPI_STARTS)
  return()
endif()

# The JSON without what may differ; `comm` gets where the ranks lived.
function(told text result)
  string(JSON request ERROR_VARIABLE none GET "${text}" request comm)
  if(none)
    set(request "")
  endif()
  string(REGEX REPLACE "\"elapsed_s\": [-+0-9.e]+" "" text "${text}")
  string(REPLACE "\"comm\": \"mpi\"" "\"comm\": \"virtual\"" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
  set(comm "${request}" PARENT_SCOPE)
endfunction()

function(same wanted_status)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --tp ${PROCESSES} --json
    RESULT_VARIABLE alone_status OUTPUT_VARIABLE alone ERROR_VARIABLE complaint)
  execute_process(COMMAND ${MPIEXEC} ${NUMPROC} ${PROCESSES} ${PROGRAM} ${ARGN} --comm mpi --json
    RESULT_VARIABLE mpi_status OUTPUT_VARIABLE over_mpi ERROR_VARIABLE mpi_complaint TIMEOUT 120)
  told("${alone}" alone)
  set(alone_comm "${comm}")
  told("${over_mpi}" over_mpi)
  list(JOIN ARGN " " command)
  if(NOT alone_status STREQUAL wanted_status OR NOT mpi_status STREQUAL wanted_status)
    message(FATAL_ERROR "${command}: ended with ${alone_status} on virtual ranks and with "
      "${mpi_status} over MPI, wanted ${wanted_status}\n${alone}\n${over_mpi}\n${mpi_complaint}")
  endif()
  if(NOT alone STREQUAL over_mpi OR NOT "${alone_comm} ${comm}" STREQUAL "virtual mpi")
    message(FATAL_ERROR "${command}: other reports on virtual ranks (${alone_comm}) and over MPI "
      "(${comm}):\n${alone}\n--- over MPI\n${over_mpi}")
  endif()
  message(STATUS "same report: ${command}")
endfunction()

# Does the command say this and end so?
function(says wanted_status wanted_text)
  execute_process(COMMAND ${MPIEXEC} ${NUMPROC} ${PROCESSES} ${PROGRAM} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT 120)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  string(FIND "${text}" "${wanted_text}" at)
  if(NOT status STREQUAL wanted_status OR at LESS 0)
    message(FATAL_ERROR "${ARGN}: ended with ${status}, wanted ${wanted_status} and the text\n"
      "${wanted_text}\nIt said:\n${text}")
  endif()
  string(SUBSTRING "${text}" ${at} -1 rest)
  string(LENGTH "${wanted_text}" length)
  string(SUBSTRING "${rest}" ${length} -1 rest)
  string(FIND "${rest}" "${wanted_text}" again)
  if(NOT again LESS 0)
    message(FATAL_ERROR "${ARGN}: several processes say\n${wanted_text}")
  endif()
endfunction()

set(sizes --hidden 48 --heads 12 --kv-heads 12 --head-dim 4 --intermediate 24 --tokens 5)
foreach(layer IN ITEMS decoder qkv mlp)
  same(0 --layer ${layer} ${sizes})
endforeach()
same(0 --layer decoder ${sizes} --dtype bf16 --all-reduce ring --chunk 1)
same(0 --layer lm_head --hidden 8 --vocab 24 --argmax)
# Wrong sums, another group, a rank that leaves its collective out or has one too many, an early
# return of all but one, tensors that are refused, a layer that cannot be built.
set(faults missing-all-reduce skipped-collective)
if(PROCESSES EQUAL 4)
  list(APPEND faults sub-group-all-reduce added-collective reordered-collectives bf16-sum)
endif()
foreach(fault IN LISTS faults)
  same(1 --layer mlp ${sizes} --fault ${fault})
endforeach()
same(1 --layer column --in 8 --out 24 --fault skipped-collective)
same(1 --layer column --in 8 --out 24 --fault rank-zero)
if(PROCESSES EQUAL 2)
  set(model ${DATA}/tiny-llama)
elseif(PROCESSES EQUAL 4)
  set(model ${DATA}/tiny-qwen3)
endif()
if(model)
  same(0 check ${model})
  same(1 check ${model} --fault missing-all-reduce)
  same(0 run ${model} --tokens 1,2,3 --generate 3)
  same(0 run ${model} --tokens 1,2,3 --dtype bf16)
  same(0 run ${model} --tokens 4 --generate 2 --dtype f64)
  says(2 "there is no token 999999999" run ${model} --comm mpi --tokens 999999999)
  says(2 "with --comm mpi the tp is the number of processes, one at a time"
    check ${model} --comm mpi --tp 1,2)
endif()
says(0 "comm mpi" --layer mlp ${sizes} --comm mpi --color never)
math(EXPR other "${PROCESSES} + 1")
says(2 "--tp ${other} with --comm mpi needs ${other} processes, and this job has ${PROCESSES}"
  --layer mlp ${sizes} --comm mpi --tp ${other})
says(2 "unknown model '/nowhere'" check /nowhere --comm mpi)
