# Functions that make targets. There is one target per folder; its public headers are in <folder>/include/stepscope.

# Headers that nearly every source includes. They are precompiled once per library.
set(STEPSCOPE_STANDARD_HEADERS <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <ranges> <set> <span>
  <string> <string_view> <unordered_map> <utility> <variant> <vector>)

# stepscope_library(<name> SOURCES ... [PUBLIC targets...] [PRIVATE targets...])
# makes the static library stepscope_<name>, with the alias stepscope::<name>.
function(stepscope_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(stepscope_${name} STATIC ${ARG_SOURCES})
  add_library(stepscope::${name} ALIAS stepscope_${name})
  set_target_properties(stepscope_${name} PROPERTIES EXPORT_NAME ${name})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/include)
    target_include_directories(stepscope_${name} PUBLIC
      $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
    set_property(GLOBAL APPEND PROPERTY STEPSCOPE_INCLUDE_FOLDERS ${CMAKE_CURRENT_SOURCE_DIR}/include)
  endif()
  target_include_directories(stepscope_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(stepscope_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  target_compile_features(stepscope_${name} PUBLIC cxx_std_20)  # so that users of an installed library also compile as C++20
  stepscope_options(stepscope_${name})
  stepscope_unity(stepscope_${name})
  stepscope_precompile(stepscope_${name} ${name} ${STEPSCOPE_STANDARD_HEADERS})
  set_property(GLOBAL APPEND PROPERTY STEPSCOPE_LIBRARIES stepscope_${name})
endfunction()

# stepscope_unity(<target>)
# With CMAKE_UNITY_BUILD (all presets), the sources of a folder are compiled as one, which halves the time of a full build.
# Therefore, the names of file-local functions, classes and constants must be unique in their folder.
function(stepscope_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    # A relative path: the compiled file then has the same name in every checkout, so ccache can share its result.
    if(IS_ABSOLUTE "${folder}")
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    endif()
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# stepscope_test(<name> SOURCES ... LIBS ... [LABELS ...] [DIRS private include folders...] [SERIAL] [EACH])
# makes one GoogleTest program. ctest runs it as one process, or with EACH one process per test, for tests that change state
# that a process has only once. SERIAL: no other test runs at the same time.
# With STEPSCOPE_TESTS=TORCH, only tests labelled torch or everywhere are built and run; build/asan runs the others.
function(stepscope_test name)
  cmake_parse_arguments(ARG "SERIAL;EACH" "" "SOURCES;LIBS;LABELS;DIRS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${ARG_DIRS} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE STEPSCOPE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  # A test's own code runs once, so optimising it would take longer than it saves.
  target_compile_options(${name} PRIVATE -O0 -g0)
  # Several sources are compiled as one, so each has its own namespace, named after its file.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  stepscope_options(${name} TEST)
  # Precompiling torch/torch.h takes longer than its few tests would save.
  if(NOT "torch" IN_LIST ARG_LABELS)
    stepscope_precompile(${name} test)  # tests/CMakeLists.txt lists the headers
  endif()
  if(STEPSCOPE_TESTS STREQUAL "TORCH" AND NOT "torch" IN_LIST ARG_LABELS AND NOT "everywhere" IN_LIST ARG_LABELS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  elseif(ARG_EACH)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT 300 RUN_SERIAL ${ARG_SERIAL} LABELS "${ARG_LABELS}")
  else()
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 900 RUN_SERIAL ${ARG_SERIAL} LABELS "${ARG_LABELS}")
  endif()
endfunction()

# stepscope_precompile(<target> <group> <header>...)
# precompiles headers for a target. The first target of a group makes the precompiled header, and the others use it, so all
# targets of a group need the same compile options. Do not list our own headers: after a comment changed, ccache may take the
# old precompiled header for the new one, and GCC then includes the changed "#pragma once" header a second time.
function(stepscope_precompile target group)
  if(NOT STEPSCOPE_PRECOMPILE)
    return()
  endif()
  get_property(_first GLOBAL PROPERTY STEPSCOPE_PRECOMPILED_${group})
  if(_first)
    target_precompile_headers(${target} REUSE_FROM ${_first})
  else()
    set_property(GLOBAL PROPERTY STEPSCOPE_PRECOMPILED_${group} ${target})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # lets ccache keep the results
  endif()
endfunction()

# stepscope_constant_of(<file> <variable>)
# sets the variable to the name of the constant that a source defines: kDataLoading for rules/data_loading.cc.
function(stepscope_constant_of file variable)
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "_" ";" words "${name}")
  set(constant "k")
  foreach(word IN LISTS words)
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND constant "${first}${rest}")
  endforeach()
  set(${variable} ${constant} PARENT_SCOPE)
endfunction()

# stepscope_options(<target> [TEST]): sets warnings and sanitizers; there are no global flags.
# The undefined-behaviour sanitizer checks only the product's own code. Checks of every member access (null, alignment, vptr,
# object-size) are off: they double the compile time, and the address sanitizer also stops at a null pointer.
function(stepscope_options target)
  set(sanitized FALSE)
  if(STEPSCOPE_SANITIZE)
    set(sanitized TRUE)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${STEPSCOPE_WERROR}>:-Werror>)
  if("TEST" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)  # tests set only the fields they need
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's optimiser reports false errors in inlined strings and optionals (bugs 105329, 105651, 80635). These warnings never
    # stop a build, and they are off where there are too many to read.
    set(array_bounds -Wno-array-bounds)
    if(sanitized)
      set(array_bounds -Wno-error=array-bounds)  # without optimisation there are none
    endif()
    target_compile_options(${target} PRIVATE -Wno-restrict ${array_bounds} -Wno-error=stringop-overflow
      -Wno-error=stringop-overread $<$<BOOL:${sanitized}>:-Wno-maybe-uninitialized> -Wno-error=maybe-uninitialized)
  endif()
  if(STEPSCOPE_SANITIZE)
    string(REPLACE "undefined" "" kinds "${STEPSCOPE_SANITIZE}")
    string(REGEX REPLACE "^,|,$" "" kinds "${kinds}")
    target_compile_options(${target} PUBLIC -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_compile_options(${target} PRIVATE -fsanitize=${kinds})
    if(STEPSCOPE_SANITIZE MATCHES "undefined" AND NOT "TEST" IN_LIST ARGN)
      target_compile_options(${target} PRIVATE -fsanitize=undefined -fno-sanitize=null,alignment,vptr,object-size)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${STEPSCOPE_SANITIZE})
  endif()
  if(STEPSCOPE_FUZZ)
    target_compile_options(${target} PUBLIC -fsanitize=fuzzer-no-link,address,undefined)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()
