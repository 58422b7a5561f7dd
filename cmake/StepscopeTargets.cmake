# How targets are made here. One target per folder; public headers in <folder>/include/stepscope.

# What nearly every source includes; read once per library instead of once per source.
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
  target_compile_features(stepscope_${name} PUBLIC cxx_std_20)  # so that who links an installed one compiles as C++20, too
  stepscope_options(stepscope_${name})
  stepscope_unity(stepscope_${name})
  stepscope_precompile(stepscope_${name} ${name} ${STEPSCOPE_STANDARD_HEADERS})
  set_property(GLOBAL APPEND PROPERTY STEPSCOPE_LIBRARIES stepscope_${name})
endfunction()

# stepscope_unity(<target>)
# With CMAKE_UNITY_BUILD (all presets) the sources of a folder are compiled as one, which halves the time of a whole build: so
# the names of file-local functions, classes and constants are unique in their folder.
function(stepscope_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    # Relative: the name of what is compiled is then the same in every checkout, and so is what ccache keeps.
    if(IS_ABSOLUTE "${folder}")
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    endif()
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# stepscope_test(<name> SOURCES ... LIBS ... [LABELS ...] [DIRS private include folders...] [SERIAL] [EACH])
# makes one GoogleTest program. ctest runs it as one process, or each of its tests in a process of its own (EACH), where
# tests change what a process has only once. SERIAL ones run with no other test beside them.
# With STEPSCOPE_TESTS=TORCH only tests labelled torch or everywhere are built and run: build/asan runs the others.
function(stepscope_test name)
  cmake_parse_arguments(ARG "SERIAL;EACH" "" "SOURCES;LIBS;LABELS;DIRS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${ARG_DIRS} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE STEPSCOPE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  # A test's own code is compiled once and run once: optimising it takes longer than running it.
  target_compile_options(${name} PRIVATE -O0 -g0)
  # Several sources are compiled as one, so each is a namespace of its own, called like its file.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  stepscope_options(${name} TEST)
  # torch/torch.h takes longer to precompile than its few tests would save.
  if(NOT "torch" IN_LIST ARG_LABELS)
    stepscope_precompile(${name} test)  # the headers: tests/CMakeLists.txt
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
# precompiles headers for a target. The first target of a group makes the precompiled header, the others use it, so all
# targets of a group need the same compile options. No header of ours: ccache takes a precompiled header made before a
# comment changed for the one made now, and GCC then includes a changed "#pragma once" header a second time.
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
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # so that ccache may keep what is compiled
  endif()
endfunction()

# stepscope_constant_of(<file> <variable>)
# names the constant that a source defines: kDataLoading for rules/data_loading.cc.
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

# stepscope_options(<target> [TEST]): warnings and sanitizers; no global flags.
# Undefined behaviour is looked for in the product's own code. Of its checks those on every member access are left out
# (null, alignment, vptr, object-size): they double the time to compile, and address sanitizer stops at a null pointer, too.
function(stepscope_options target)
  set(sanitized FALSE)
  if(STEPSCOPE_SANITIZE)
    set(sanitized TRUE)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${STEPSCOPE_WERROR}>:-Werror>)
  if("TEST" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)  # a test gives the fields it is about
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's optimiser takes what inlined strings and optionals do for errors (bugs 105329, 105651, 80635): these warnings never
    # stop a build, and where there are too many of them to be read they are off.
    set(array_bounds -Wno-array-bounds)
    if(sanitized)
      set(array_bounds -Wno-error=array-bounds)  # not optimised: there are none
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
