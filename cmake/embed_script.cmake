# cmake -DOUTPUT=x.cc -DNAMESPACE=n -DFUNCTION=f -P embed_script.cmake -- FILE...: see embed.cmake.
set(entries "")
set(after_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
  set(argument "${CMAKE_ARGV${index}}")
  if(after_dashes)
    cmake_path(GET argument STEM LAST_ONLY name)
    file(READ "${argument}" text)
    string(FIND "${text}" ")file\"" end_of_literal)
    if(NOT end_of_literal EQUAL -1)
      message(FATAL_ERROR "${argument}: holds the mark that ends its literal")
    endif()
    string(APPEND entries "    {\"${name}\", R\"file(${text})file\"},\n")
  elseif(argument STREQUAL "--")
    set(after_dashes TRUE)
  endif()
endforeach()

file(WRITE "${OUTPUT}" "#include <span>

#include \"base/embedded_file.h\"

namespace ${NAMESPACE} {
namespace {

constexpr trireme::EmbeddedFile kFiles[] = {
${entries}};

}  // namespace

std::span<const trireme::EmbeddedFile> ${FUNCTION}();
std::span<const trireme::EmbeddedFile> ${FUNCTION}() { return kFiles; }

}  // namespace ${NAMESPACE}
")
