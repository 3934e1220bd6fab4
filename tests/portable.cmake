# SPDX-License-Identifier: MIT
# What the GPU machine is given: one folder with the programs, the script that runs them and its
# data, laid out as the source is, so that tests/gpu/check.sh finds all of it.
set(gpu_folder ${PROJECT_BINARY_DIR}/gpu)
set(gpu_targets tpsim_program tpsim_cuda_probe)
foreach(name IN LISTS gpu_programs)
  list(APPEND gpu_targets tpsim_${name})
endforeach()
set(gpu_files "")
foreach(target IN LISTS gpu_targets)
  list(APPEND gpu_files $<TARGET_FILE:${target}>)
endforeach()
file(GLOB gpu_launchers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/nccl/tpsim-*-run)
list(APPEND gpu_files ${gpu_launchers})
file(GLOB gpu_scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu/*.sh)
add_custom_target(tpsim_gpu_folder DEPENDS tpsim_gpu VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${gpu_folder}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${gpu_folder}/tests/gpu
  COMMAND ${CMAKE_COMMAND} -E copy ${gpu_files} ${gpu_folder}
  COMMAND ${CMAKE_COMMAND} -E copy ${gpu_scripts} ${gpu_folder}/tests/gpu
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_CURRENT_SOURCE_DIR}/data
    ${gpu_folder}/tests/data
  COMMENT "Everything for the GPU machine: ${gpu_folder}")

list(LENGTH gpu_targets gpu_count)
set(bare_libraries libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 ld-linux-x86-64.so.2)
function(add_portable_test name most_bytes allowed)
  add_test(NAME "portable: ${name}"
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${gpu_folder} -DPROGRAMS=${gpu_count}
      -DMOST_BYTES=${most_bytes} "-DALLOWED=${allowed}" -DREADELF=${CMAKE_READELF}
      -P ${CMAKE_CURRENT_SOURCE_DIR}/check_portable.cmake)
  set_tests_properties("portable: ${name}" PROPERTIES LABELS portable)
endfunction()
add_portable_test("libc alone is needed, and the folder is under 50 MB" 50000000
  "${bare_libraries}")
# The check itself can fail.
add_portable_test("a size is noticed" 1000000 "${bare_libraries}")
set_tests_properties("portable: a size is noticed" PROPERTIES
  PASS_REGULAR_EXPRESSION "all files have [0-9]+ bytes, over 1000000")
add_portable_test("a library is noticed" 50000000 "libm.so.6")
set_tests_properties("portable: a library is noticed" PROPERTIES
  PASS_REGULAR_EXPRESSION "tpsim needs libc.so.6")
