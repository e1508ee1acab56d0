# Everything that comes from outside, in one place. tools/install.sh installs the Debian packages.

find_package(Threads REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)    # hwy::hwy
find_package(OpenMP REQUIRED COMPONENTS CXX)  # OpenMP::OpenMP_CXX
set(MPI_CXX_SKIP_MPICXX ON)          # its C interface alone
find_package(MPI COMPONENTS CXX)     # MPI::MPI_CXX; without it MpiWorld is a stub
find_package(GTest CONFIG REQUIRED)  # GTest::gtest, GTest::gtest_main, GTest::gmock

# imported_library(TARGET HEADER LIBRARY): for libraries without a usable CMake file of their own.
function(imported_library target header library)
  string(MAKE_C_IDENTIFIER "${target}" id)
  find_path(${id}_INCLUDE ${header} REQUIRED)
  find_library(${id}_LIBRARY ${library} REQUIRED)
  mark_as_advanced(${id}_INCLUDE ${id}_LIBRARY)
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${${id}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${${id}_INCLUDE}")
endfunction()

# oneDNN's own file asks for OpenCL's headers, which the CPU does not need.
imported_library(DNNL::dnnl dnnl.hpp dnnl)
imported_library(xxhash::xxhash xxhash.h xxhash)
