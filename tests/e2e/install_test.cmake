# cmake -DBUILD=<build folder> -DSOURCE=<tests/e2e> [-DTORCH=<folder of the torch wheel>] -P install_test.cmake
# Installs the build, checks which headers are installed, and builds and runs projects that only use find_package(stepscope).
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGV}\n${output}")
  endif()
endfunction()
set(prefix ${BUILD}/install-test)
file(REMOVE_RECURSE ${prefix})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix}/root)

# The public interface. Adding or removing a header is a decision, to be written down in docs/stability.md and here.
set(public analysis.h annotation.h batches.h capture_scopes.h collector.h collectors.h compare.h event.h export.h module_hook.h page.h
  profile.h range.h rank_digest.h rank_exchange.h ranks.h read.h report.h rules.h run_times.h schedule.h store_exchange.h summary.h top.h
  trace.h version.h what_if.h whole_run.h)
file(GLOB_RECURSE installed RELATIVE ${prefix}/root/include ${prefix}/root/include/*)
list(TRANSFORM public PREPEND stepscope/ OUTPUT_VARIABLE expected)
list(SORT installed)
list(SORT expected)
if(NOT "${installed}" STREQUAL "${expected}")
  message(FATAL_ERROR "installed headers: ${installed}\nexpected: ${expected}")
endif()
# No installed file may name a folder of this machine.
file(GLOB_RECURSE package_files ${prefix}/root/*.cmake)
foreach(file IN LISTS package_files)
  file(STRINGS ${file} lines REGEX "${BUILD}|\\.venv|site-packages")
  if(lines)
    message(FATAL_ERROR "${file} names a folder of this machine: ${lines}")
  endif()
endforeach()

# A program without LibTorch's headers, and each public header alone.
set(project ${prefix}/plain)
if(NOT TORCH)
  list(REMOVE_ITEM public store_exchange.h)  # needs LibTorch's headers
endif()
foreach(header IN LISTS public)
  file(WRITE ${project}/headers/${header}.cc "#include <stepscope/${header}>\n")
endforeach()
if(TORCH)
  set(torch_after -DTORCH_AFTER=ON)
endif()
run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/consumer_plain -B ${project} -DCMAKE_BUILD_TYPE=Release ${torch_after}
  "-DCMAKE_PREFIX_PATH=${prefix}/root\\;${TORCH}")
run(${CMAKE_COMMAND} --build ${project})
run(${project}/consumer ${prefix}/logdir)
run(${prefix}/root/bin/stepscope analyze ${prefix}/logdir)

# The example in docs/install.md, with the program's own LibTorch.
if(TORCH)
  run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/consumer -B ${prefix}/train -DCMAKE_BUILD_TYPE=Release
    "-DCMAKE_PREFIX_PATH=${prefix}/root\\;${TORCH}")
  run(${CMAKE_COMMAND} --build ${prefix}/train)
  run(${prefix}/train/train ${prefix}/train/logdir)
endif()
