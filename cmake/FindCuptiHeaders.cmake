# Finds CUPTI's headers (with the cuda.h they include): in a CUDA toolkit's extras/CUPTI/include, or in NVIDIA's wheels beside torch.
# Nothing is linked: the library itself is loaded at run time.
# The headers must be CUDA 13's, because older ones lack declarations. The library may still be of CUDA 12.
#   CuptiHeaders_FOUND, CuptiHeaders_VERSION (the number of CUPTI_API_VERSION), target Cupti::headers.
# To choose the headers, set CuptiHeaders_DIR to a folder that holds cupti.h.
if(NOT TARGET Cupti::headers)
  set(_cupti_folders ${CuptiHeaders_DIR})
  set(_cupti_python "${STEPSCOPE_PYTHON}")
  if(NOT _cupti_python)
    find_program(_cupti_python_found NAMES python3 python)
    set(_cupti_python "${_cupti_python_found}")
  endif()
  if(_cupti_python)
    execute_process(
      COMMAND ${_cupti_python} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
      OUTPUT_VARIABLE _cupti_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    file(GLOB _cupti_wheels "${_cupti_site}/nvidia/cu*/include" "${_cupti_site}/nvidia/cuda_cupti/include")
    list(APPEND _cupti_folders ${_cupti_wheels})
  endif()
  foreach(_cuda IN ITEMS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
    list(APPEND _cupti_folders ${_cuda}/extras/CUPTI/include ${_cuda}/include)
  endforeach()
  find_path(CuptiHeaders_INCLUDE_DIR NAMES cupti_activity.h PATHS ${_cupti_folders} NO_DEFAULT_PATH)
  # cupti.h includes cuda.h, which is in a separate folder in older wheels.
  find_path(CuptiHeaders_CUDA_INCLUDE_DIR NAMES cuda.h NO_DEFAULT_PATH
    PATHS ${CuptiHeaders_INCLUDE_DIR} ${CuptiHeaders_INCLUDE_DIR}/../../../include
      "${_cupti_site}/nvidia/cuda_runtime/include")
  # CUDA 13's cuda.h includes crt/, which NVIDIA ships with the compiler but not with the runtime. Triton, on which the torch
  # wheel depends, contains a copy.
  set(_cupti_crt_folders ${CuptiHeaders_CUDA_INCLUDE_DIR} "${_cupti_site}/nvidia/cuda_nvcc/include")
  foreach(_cuda IN ITEMS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
    list(APPEND _cupti_crt_folders ${_cuda}/include)
  endforeach()
  find_path(CuptiHeaders_CRT_INCLUDE_DIR NAMES crt/host_defines.h NO_DEFAULT_PATH
    PATHS ${_cupti_crt_folders} "${_cupti_site}/triton/backends/nvidia/include")
  mark_as_advanced(CuptiHeaders_INCLUDE_DIR CuptiHeaders_CUDA_INCLUDE_DIR CuptiHeaders_CRT_INCLUDE_DIR)
  if(CuptiHeaders_INCLUDE_DIR AND EXISTS "${CuptiHeaders_INCLUDE_DIR}/cupti_version.h")
    file(STRINGS "${CuptiHeaders_INCLUDE_DIR}/cupti_version.h" _cupti_line REGEX "#define CUPTI_API_VERSION")
    string(REGEX MATCH "[0-9]+" CuptiHeaders_VERSION "${_cupti_line}")
    if(CuptiHeaders_VERSION LESS 130000)
      unset(CuptiHeaders_VERSION)
    endif()
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuptiHeaders
  REQUIRED_VARS CuptiHeaders_INCLUDE_DIR CuptiHeaders_CUDA_INCLUDE_DIR CuptiHeaders_CRT_INCLUDE_DIR CuptiHeaders_VERSION)
if(CuptiHeaders_FOUND AND NOT TARGET Cupti::headers)
  add_library(Cupti::headers INTERFACE IMPORTED GLOBAL)
  set_target_properties(Cupti::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${CuptiHeaders_INCLUDE_DIR};${CuptiHeaders_CUDA_INCLUDE_DIR};${CuptiHeaders_CRT_INCLUDE_DIR}")
endif()
