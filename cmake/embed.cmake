# embed_text(OUT NAMESPACE FUNCTION file ...)
# writes OUT, a .cc that defines `std::string_view NAMESPACE::FUNCTION(std::string_view name)`: the text of the file whose
# name without folder and suffix is `name`, or "". The .cc is written again when a file changes.
function(embed_text out namespace function)
  set(cases "")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    cmake_path(GET file STEM LAST_ONLY stem)
    file(READ "${file}" text)
    string(APPEND cases "  if (name == \"${stem}\") return R\"---(${text})---\";\n")
  endforeach()
  file(CONFIGURE OUTPUT "${out}" @ONLY CONTENT
"#include <string_view>

namespace @namespace@ {

std::string_view @function@(std::string_view name);
std::string_view @function@(std::string_view name) {
@cases@  return {};
}

}  // namespace @namespace@
")
endfunction()
