# Flags of every target. No -march and no fast math: bits must not depend on the machine that compiled, and vector
# code picks its instruction set at run time.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")  # the program: build/<preset>/trireme

# a * b + c is two roundings unless the code asks for a fused one (law 2: one loss curve).
add_compile_options(-ffp-contract=off)

# Wsign-conversion is left out: sizes are std::int64_t here and std::size_t in the library.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(TRIREME_WERROR)
  add_compile_options(-Werror)
endif()

if(TRIREME_SANITIZE)
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  add_compile_options(-g1)  # file and line are enough for a report
  add_compile_options(-Wno-maybe-uninitialized)  # instrumented code sets off false alarms in GCC 12
endif()

if(TRIREME_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
else()
  # Messages name src/base/json.cc, wherever the clone lies; and two clones share one compiler cache.
  file(RELATIVE_PATH relative_source "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
  add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${relative_source}=")
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE}")
endif()
