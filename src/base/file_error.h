#pragma once

// What an Env throws where an operation on a file fails, with what decides on whether to wait for it.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme {

enum class FileTrouble {
  kNoRoom,  // the disk is full, or what its user may have of it
  kAbsent,  // no such file, or no directory on the way to it
  kAway,    // there, and not to be had now: no permission, read-only, a server that does not answer
  kOther,   // damage, a wrong path, a limit of this process
};

// An Error of component "files"; its code is kUsage where the path is what is wrong, kDoesNotFit where the process has
// run into a limit of its own, else kStorage.
class FileError : public Error {
 public:
  // reason: of <cerrno>. put: of a write, the bytes of it that are in the file.
  FileError(std::string_view operation, const std::string& path, int reason, std::size_t put = 0);

  FileTrouble trouble() const { return trouble_; }
  std::size_t put() const { return put_; }

 private:
  FileTrouble trouble_;
  std::size_t put_;
};

}  // namespace trireme
