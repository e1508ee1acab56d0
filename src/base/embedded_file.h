#pragma once

// A file that the build put into the program (cmake/embed.cmake).

#include <string_view>

namespace trireme {

struct EmbeddedFile {
  std::string_view name;  // without folder and suffix
  std::string_view text;
};

}  // namespace trireme
