# stepscope::torch: the LibTorch that the installed collectors link.
#
# If the project calls find_package(Torch), before or after find_package(stepscope), it is the project's own LibTorch. The
# choice is made when the project is generated. A project without Torch gets the torch wheel of STEPSCOPE_PYTHON, or of the
# first Python on PATH.
if(TARGET stepscope::torch)
  return()
endif()
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
find_package(TorchWheel QUIET)
list(REMOVE_ITEM CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
if(TARGET TorchWheel::cpu)
  set(_stepscope_wheel TorchWheel::cpu)
else()
  # If there is no find_package(Torch) either, the linker's error shows this name.
  set(_stepscope_wheel stepscope-needs-find_package-Torch-in-this-project)
  if(NOT TARGET torch_cpu)
    message(STATUS "stepscope: no LibTorch found yet; call find_package(Torch REQUIRED) in this project, "
      "or set STEPSCOPE_PYTHON to a Python that has torch")
  endif()
endif()
add_library(stepscope::torch INTERFACE IMPORTED)
set_target_properties(stepscope::torch PROPERTIES INTERFACE_LINK_LIBRARIES
  "$<$<TARGET_EXISTS:torch_cpu>:torch_cpu>;$<$<TARGET_EXISTS:torch_cpu>:c10>;$<$<NOT:$<TARGET_EXISTS:torch_cpu>>:${_stepscope_wheel}>")
unset(_stepscope_wheel)
