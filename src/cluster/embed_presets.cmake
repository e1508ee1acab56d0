# cmake -DOUTPUT=presets.cc -P embed_presets.cmake -- FILE...
# writes the definition of presets() (presets.h) with the text of each file; a preset is called as its file.

set(entries "")
set(after_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
  set(argument "${CMAKE_ARGV${index}}")
  if(after_dashes)
    cmake_path(GET argument STEM LAST_ONLY name)
    file(READ "${argument}" text)
    string(FIND "${text}" ")preset\"" end_of_literal)
    if(NOT end_of_literal EQUAL -1)
      message(FATAL_ERROR "${argument}: holds the mark that ends its literal")
    endif()
    string(APPEND entries "    {\"${name}\", R\"preset(${text})preset\"},\n")
  elseif(argument STREQUAL "--")
    set(after_dashes TRUE)
  endif()
endforeach()

file(WRITE "${OUTPUT}" "#include \"cluster/presets.h\"

namespace trireme::cluster {
namespace {

constexpr Preset kPresets[] = {
${entries}};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

}  // namespace trireme::cluster
")
