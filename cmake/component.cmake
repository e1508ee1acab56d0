# add_component(NAME ...): a folder of src/ as a library and its tests as one program.
# add_test_program(NAME ...): any other program of GoogleTest tests.
# Targets to build: unit_tests (all but the long ones), thread_tests (those labelled threads).

include(GoogleTest)

add_custom_target(unit_tests)
add_custom_target(thread_tests)

# add_component(NAME
#   [SOURCES a.cc ...]         none: the library is headers only
#   [TESTS a_test.cc ...]      program NAME_test; its tests are called NAME.Suite.Test
#   [DEPENDS target ...]       ours (trireme::base) and others' (fmt::fmt); public
#   [TEST_DEPENDS target ...]  for the tests alone
#   [LABEL label])             of the tests; see add_test_program
# makes trireme_NAME, used as trireme::NAME. Includes are written from src/.
function(add_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;TESTS;DEPENDS;TEST_DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_component(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(dependency IN LISTS arg_DEPENDS arg_TEST_DEPENDS)
    if(dependency MATCHES "^trireme::" AND NOT TARGET ${dependency})
      message(FATAL_ERROR
      "add_component(${name}): ${dependency} is none of the components that src/CMakeLists.txt adds before it")
    endif()
  endforeach()

  if(arg_SOURCES)
    set(scope PUBLIC)
    add_library(trireme_${name} STATIC ${arg_SOURCES})
  else()
    set(scope INTERFACE)
    add_library(trireme_${name} INTERFACE)
  endif()
  add_library(trireme::${name} ALIAS trireme_${name})
  target_include_directories(trireme_${name} ${scope} "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(trireme_${name} ${scope} ${arg_DEPENDS})
  verify_headers(trireme_${name} ${scope})

  if(arg_TESTS)
    add_test_program(${name}
      SOURCES ${arg_TESTS}
      DEPENDS trireme_${name} ${arg_TEST_DEPENDS}
      LABEL ${arg_LABEL})
  endif()
endfunction()

# add_test_program(NAME SOURCES a_test.cc ... [DEPENDS target ...] [LABEL label] [TIMEOUT seconds] [SERIAL])
# makes the program NAME_test in build/<preset>/tests, and one ctest entry for each of its tests.
# LABEL is one of: threads (runs under the thread sanitizer too), long (not under the sanitizers), outside (not in CI
# either, only when asked for: ctest -L outside). Each test has a deadline: 60 s, or 600 s where long or outside.
# SERIAL: never beside another test, since it measures time.
# Tests run in the source folder, with the program's path in the variable TRIREME_PROGRAM.
function(add_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT;LABEL" "SOURCES;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_test_program(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_LABEL AND NOT arg_LABEL MATCHES "^(threads|long|outside)$")
    message(FATAL_ERROR "add_test_program(${name}): label ${arg_LABEL} is none of: threads, long, outside")
  endif()

  add_executable(${name}_test ${arg_SOURCES})
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(${name}_test PRIVATE ${arg_DEPENDS} GTest::gmock GTest::gtest_main)

  set(beyond_unit FALSE)
  set(seconds 60)
  if(arg_LABEL MATCHES "^(long|outside)$")
    set(beyond_unit TRUE)
    set(seconds 600)
  endif()
  if(arg_TIMEOUT)
    set(seconds ${arg_TIMEOUT})
  endif()
  math(EXPR seconds "${seconds} * ${TRIREME_TEST_TIMEOUT_FACTOR}")
  gtest_discover_tests(${name}_test
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    NO_PRETTY_VALUES
    TEST_PREFIX "${name}."
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES
      TIMEOUT ${seconds}
      RUN_SERIAL ${arg_SERIAL}
      ENVIRONMENT "TRIREME_PROGRAM=${PROJECT_BINARY_DIR}/trireme"
      LABELS "${arg_LABEL}")

  if(NOT beyond_unit)
    add_dependencies(unit_tests ${name}_test)
  endif()
  if(arg_LABEL STREQUAL "threads")
    add_dependencies(thread_tests ${name}_test)
  endif()
endfunction()

# Every header of this folder must compile by itself: target all_verify_interface_header_sets (make tidy).
# Subfolders belong to the component unless they have a CMakeLists.txt of their own. Headers named *-inl.h are
# compiled once for each instruction set by the .cc file that includes them, and never alone.
function(verify_headers target scope)
  file(GLOB headers CONFIGURE_DEPENDS *.h)
  file(GLOB below CONFIGURE_DEPENDS */*.h)
  foreach(header IN LISTS below)
    cmake_path(GET header PARENT_PATH folder)
    if(NOT EXISTS "${folder}/CMakeLists.txt")
      list(APPEND headers "${header}")
    endif()
  endforeach()
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")
  if(headers)
    target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/src" FILES ${headers})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()
