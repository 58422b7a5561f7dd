# cmake -DBUILD=<build folder> -DSOURCE=<consumer> -DPYTHON=<python of torch> -P install_test.cmake
# Installs the build, then configures, builds and runs a project that only knows find_package(stepscope).
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGV}\n${output}")
  endif()
endfunction()
set(prefix ${BUILD}/install-test)
file(REMOVE_RECURSE ${prefix})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix}/root)
run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE} -B ${prefix}/build -DCMAKE_PREFIX_PATH=${prefix}/root
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEPSCOPE_PYTHON=${PYTHON})
run(${CMAKE_COMMAND} --build ${prefix}/build)
run(${prefix}/build/consumer ${prefix}/logdir)
run(${prefix}/root/bin/stepscope analyze ${prefix}/logdir)
