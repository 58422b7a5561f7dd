# Measures what an NVTX pair costs: builds two libraries from one source, so that each has its own NVTX, one with an empty
# injection.
find_package(NvtxHeaders QUIET)
if(NOT STEPSCOPE_WITH_NVTX)
  return()
endif()
foreach(name nvtx_calls_ours nvtx_calls_empty)
  add_library(${name} SHARED nvtx_calls.cc)
  target_link_libraries(${name} PRIVATE Nvtx::headers)
endforeach()
add_library(nvtx_empty_injection SHARED nvtx_empty_injection.cc)
target_link_libraries(nvtx_empty_injection PRIVATE Nvtx::headers)
add_executable(nvtx_bench nvtx_bench.cc results.cc)
target_link_libraries(nvtx_bench PRIVATE stepscope::collector_nvtx stepscope::session ${CMAKE_DL_LIBS})
target_compile_definitions(nvtx_bench PRIVATE EMPTY_INJECTION="$<TARGET_FILE:nvtx_empty_injection>"
  CALLS_OURS="$<TARGET_FILE:nvtx_calls_ours>" CALLS_EMPTY="$<TARGET_FILE:nvtx_calls_empty>")
add_dependencies(nvtx_bench nvtx_empty_injection nvtx_calls_ours nvtx_calls_empty)
stepscope_options(nvtx_bench)
