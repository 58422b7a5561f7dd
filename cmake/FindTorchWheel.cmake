# Finds LibTorch inside the PyPI torch wheel. Needs neither to import torch nor nvcc.
#   TorchWheel_FOUND, TorchWheel_VERSION, TorchWheel_CUDA ("13.0" or "none"), TorchWheel_DIR, target TorchWheel::cpu (libtorch_cpu + libc10).
# Compile against it with NDEBUG: RecordFunction::inputs() checks a field that only debug builds of LibTorch have.
if(NOT TARGET TorchWheel::cpu)
  set(_torch_python "${STEPSCOPE_PYTHON}")
  if(NOT _torch_python)
    find_program(_torch_python_found NAMES python3 python)
    set(_torch_python "${_torch_python_found}")
  endif()
  if(_torch_python)
    set(_torch_find "import importlib.util as u, os; s=u.find_spec('torch'); print(os.path.dirname(s.origin) if s and s.origin else '')")
    # pip builds a package in a separate environment, whose PYTHONPATH hides installed packages. -I makes Python ignore that
    # variable.
    foreach(_torch_flags IN ITEMS "" -I)
      if(NOT TorchWheel_DIR)
        execute_process(COMMAND ${_torch_python} ${_torch_flags} -c "${_torch_find}"
          OUTPUT_VARIABLE TorchWheel_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      endif()
    endforeach()
  endif()
  if(TorchWheel_DIR AND EXISTS "${TorchWheel_DIR}/lib/libtorch_cpu.so")
    file(READ "${TorchWheel_DIR}/version.py" _torch_version)
    string(REGEX MATCH "__version__ = '([^']+)'" _ "${_torch_version}")
    set(TorchWheel_VERSION "${CMAKE_MATCH_1}")
    set(TorchWheel_CUDA none)
    if(_torch_version MATCHES "\ncuda[^=\n]*= '([^']+)'")
      set(TorchWheel_CUDA "${CMAKE_MATCH_1}")
    endif()
    get_filename_component(_torch_site "${TorchWheel_DIR}" DIRECTORY)
    file(GLOB _torch_cuda_libs "${_torch_site}/nvidia/cu*/lib" "${_torch_site}/nvidia/*/lib")
    add_library(TorchWheel::c10 SHARED IMPORTED)
    set_target_properties(TorchWheel::c10 PROPERTIES IMPORTED_LOCATION "${TorchWheel_DIR}/lib/libc10.so")
    add_library(TorchWheel::cpu SHARED IMPORTED)
    set_target_properties(TorchWheel::cpu PROPERTIES
      IMPORTED_LOCATION "${TorchWheel_DIR}/lib/libtorch_cpu.so"
      INTERFACE_INCLUDE_DIRECTORIES
        "${TorchWheel_DIR}/include;${TorchWheel_DIR}/include/torch/csrc/api/include"
      INTERFACE_COMPILE_DEFINITIONS "NDEBUG"
      INTERFACE_LINK_LIBRARIES "TorchWheel::c10")
    # libtorch_cpu itself needs CUPTI and the CUDA runtime, which its own RPATH finds at run time.
    set_property(TARGET TorchWheel::cpu APPEND PROPERTY INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
    foreach(_dir IN LISTS _torch_cuda_libs)
      set_property(TARGET TorchWheel::cpu APPEND PROPERTY INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${_dir}")
    endforeach()
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel REQUIRED_VARS TorchWheel_DIR TorchWheel_VERSION)
