# How targets are made here. One target per folder; public headers in <folder>/include/stepscope.

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
  set_property(GLOBAL APPEND PROPERTY STEPSCOPE_LIBRARIES stepscope_${name})
endfunction()

# stepscope_test(<name> SOURCES ... LIBS ... [LABELS ...] [DIRS private include folders...] [SERIAL])
# makes one GoogleTest executable whose tests ctest knows one by one; SERIAL ones run with no other test beside them.
function(stepscope_test name)
  cmake_parse_arguments(ARG "SERIAL" "" "SOURCES;LIBS;LABELS;DIRS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${ARG_DIRS} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE STEPSCOPE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  stepscope_options(${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 RUN_SERIAL ${ARG_SERIAL} LABELS "${ARG_LABELS}")
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

# Warnings and sanitizers, per target: no global flags.
function(stepscope_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  if(STEPSCOPE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${STEPSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${STEPSCOPE_SANITIZE})
  endif()
  if(STEPSCOPE_FUZZ)
    target_compile_options(${target} PUBLIC -fsanitize=fuzzer-no-link,address,undefined)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()
