# `cmake --install` and the package that find_package(stepscope) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(_libraries GLOBAL PROPERTY STEPSCOPE_LIBRARIES)
install(TARGETS ${_libraries} EXPORT stepscopeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(_folder profiler/trace profiler/session profiler/profile collectors analysis exporters)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${_folder}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
if(TARGET stepscope_cli)
  install(TARGETS stepscope_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# All that is installed, and none of the tests and samples.
add_custom_target(stepscope_package)
foreach(_target ${_libraries} stepscope_cli stepscope_inject stepscope_inject_torch)
  if(TARGET ${_target})
    add_dependencies(stepscope_package ${_target})
  endif()
endforeach()

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stepscope)
install(EXPORT stepscopeTargets NAMESPACE stepscope:: DESTINATION ${_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stepscopeConfig.cmake.in
  ${CMAKE_BINARY_DIR}/stepscopeConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/stepscopeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/stepscopeConfig.cmake ${CMAKE_BINARY_DIR}/stepscopeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindTorchWheel.cmake DESTINATION ${_package_dir})
