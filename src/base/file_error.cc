#include "base/file_error.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace trireme {
namespace {

const char* hint_for(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "free space, or choose a directory on another file system";
    case ENOENT:
      return "check the path";
    case EACCES:
    case EPERM:
      return "check the permissions";
    case EROFS:
      return "mount the file system for writing, or choose a directory on another";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f), or choose a file system that takes larger ones";
    case EMFILE:
      return "raise the limit on open files (ulimit -n)";
    case ENFILE:
      return "the whole machine has as many files open as it may: close some, or raise fs.file-max";
    case ENOMEM:
      return "more memory, or a higher limit on address space (ulimit -v)";
    case ELOOP:
      return "remove the link";
    default:
      return "";
  }
}

// A path that the user got wrong cannot work the next time either; a failing disk may.
ExitCode code_for(int reason) {
  switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ENAMETOOLONG:
    case ELOOP:
      return ExitCode::kUsage;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return ExitCode::kDoesNotFit;
    default:
      return ExitCode::kStorage;
  }
}

FileTrouble trouble_of(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return FileTrouble::kNoRoom;
    case ENOENT:
    case ENOTDIR:
      return FileTrouble::kAbsent;
    case EACCES:  // not EPERM, as of a file that somebody has made immutable: that stays
    case EROFS:
    case ESTALE:
    case ENOTCONN:
    case ENODEV:
    case ENXIO:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ETIMEDOUT:
      return FileTrouble::kAway;
    default:
      return FileTrouble::kOther;
  }
}

}  // namespace

FileError::FileError(std::string_view operation, const std::string& path, int reason, std::size_t put)
    : Error(code_for(reason), "files", fmt::format("{} {}", operation, path), std::generic_category().message(reason),
            hint_for(reason)),
      trouble_(trouble_of(reason)),
      put_(put) {}

}  // namespace trireme
