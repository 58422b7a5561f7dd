# Finds the headers of NVTX 3: in NVIDIA's wheels beside torch, or in a CUDA toolkit. NVTX is header-only; nothing is linked.
#   NvtxHeaders_FOUND, NvtxHeaders_INCLUDE_DIR, target Nvtx::headers.
# To choose the headers, set NvtxHeaders_DIR to a folder that holds nvtx3/nvToolsExt.h.
if(NOT TARGET Nvtx::headers)
  set(_nvtx_folders ${NvtxHeaders_DIR})
  set(_nvtx_python "${STEPSCOPE_PYTHON}")
  if(NOT _nvtx_python)
    find_program(_nvtx_python_found NAMES python3 python)
    set(_nvtx_python "${_nvtx_python_found}")
  endif()
  if(_nvtx_python)
    execute_process(
      COMMAND ${_nvtx_python} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
      OUTPUT_VARIABLE _nvtx_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    file(GLOB _nvtx_wheels "${_nvtx_site}/nvidia/cu*/include" "${_nvtx_site}/nvidia/nvtx/include")
    list(APPEND _nvtx_folders ${_nvtx_wheels})
  endif()
  foreach(_cuda IN ITEMS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
    list(APPEND _nvtx_folders ${_cuda}/include)
  endforeach()
  # Only NVTX 3 has nvtxTypes.h; NVTX 2 does not.
  find_path(NvtxHeaders_INCLUDE_DIR NAMES nvtx3/nvtxDetail/nvtxTypes.h PATHS ${_nvtx_folders} NO_DEFAULT_PATH)
  mark_as_advanced(NvtxHeaders_INCLUDE_DIR)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NvtxHeaders REQUIRED_VARS NvtxHeaders_INCLUDE_DIR)
if(NvtxHeaders_FOUND AND NOT TARGET Nvtx::headers)
  add_library(Nvtx::headers INTERFACE IMPORTED)
  # A system folder, so that the compiler does not warn about these headers.
  set_target_properties(Nvtx::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${NvtxHeaders_INCLUDE_DIR}")
endif()
