# Rules for `cmake --install`, and the package for find_package(stepscope).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(_libraries GLOBAL PROPERTY STEPSCOPE_LIBRARIES)
install(TARGETS ${_libraries} EXPORT stepscopeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The public headers and no others; docs/stability.md says what they promise. Other headers in the include folders are only for
# our own targets.
set(_public_headers
  # recording
  batches.h capture_scopes.h collector.h collectors.h module_hook.h profile.h range.h rank_exchange.h schedule.h store_exchange.h version.h
  # what was recorded
  annotation.h event.h run_times.h trace.h
  # files
  export.h read.h
  # analysis
  analysis.h compare.h page.h rank_digest.h ranks.h report.h rules.h summary.h top.h what_if.h whole_run.h)
get_property(_include_folders GLOBAL PROPERTY STEPSCOPE_INCLUDE_FOLDERS)
foreach(_header IN LISTS _public_headers)
  unset(_found)
  foreach(_folder IN LISTS _include_folders)
    if(EXISTS ${_folder}/stepscope/${_header})
      set(_found ${_folder}/stepscope/${_header})
    endif()
  endforeach()
  if(NOT _found)
    message(FATAL_ERROR "the public header stepscope/${_header} (cmake/StepscopeInstall.cmake) is in none of our include folders")
  endif()
  install(FILES ${_found} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stepscope)
endforeach()
if(TARGET stepscope_cli)
  install(TARGETS stepscope_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET stepscope_manual)
  get_property(_manual GLOBAL PROPERTY STEPSCOPE_MANUAL)
  # In the places where man and the shells look. The files are missing if only the program was built.
  install(FILES ${_manual}/stepscope.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${_manual}/stepscope.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME stepscope OPTIONAL)
  install(FILES ${_manual}/_stepscope DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
  install(FILES ${_manual}/stepscope.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
endif()
# Everything that is installed, without tests and samples.
add_custom_target(stepscope_package)
foreach(_target ${_libraries} stepscope_cli stepscope_manual stepscope_inject stepscope_inject_torch)
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
  ${PROJECT_SOURCE_DIR}/cmake/FindTorchWheel.cmake ${PROJECT_SOURCE_DIR}/cmake/stepscopeTorch.cmake DESTINATION ${_package_dir})
