#include "base/posix_remove.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "base/descriptor.h"
#include "base/env.h"
#include "base/file_error.h"

namespace trireme {
namespace {

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr const char* kOperation = "remove";

[[noreturn]] void fail(const std::string& path, int reason) { throw FileError(kOperation, path, reason); }

// A name in an open directory, and the path for what is said of it.
struct Entry {
  int directory;
  std::string name;
  std::string path;
};

struct Found {
  EntryKind kind;
  dev_t device;
};

std::optional<Found> status_of(const Entry& entry) {
  struct stat status {};
  if (::fstatat(entry.directory, entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::nullopt;
    fail(entry.path, errno);
  }
  return Found{S_ISDIR(status.st_mode) ? EntryKind::kDirectory : EntryKind::kFile, status.st_dev};
}

// The directory that the entry is itself; never through a link, nor, where the kernel can tell, into what is mounted
// there (a bound directory has the same device).
Descriptor open_directory(const Entry& entry) {
  open_how how{};
  how.flags = kOpenDirectory;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH;
  const long opened = ::syscall(SYS_openat2, entry.directory, entry.name.c_str(), &how, sizeof how);
  if (opened >= 0) return Descriptor(static_cast<int>(opened));
  if (errno != ENOSYS && errno != EPERM && errno != E2BIG && errno != EINVAL) fail(entry.path, errno);
  const int plain = ::openat(entry.directory, entry.name.c_str(), kOpenDirectory);
  if (plain < 0) fail(entry.path, errno);
  return Descriptor(plain);
}

std::vector<std::string> names_in(const Descriptor& directory, const std::string& path) {
  const int again = ::openat(directory.number(), ".", kOpenDirectory);
  if (again < 0) fail(path, errno);
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> stream(::fdopendir(again), close);
  if (stream == nullptr) {
    ::close(again);
    fail(path, ENOMEM);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) fail(path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

// Gone meanwhile is as good.
void unlink_entry(const Entry& entry, int flags) {
  if (::unlinkat(entry.directory, entry.name.c_str(), flags) != 0 && errno != ENOENT) fail(entry.path, errno);
}

void remove_whole(const Entry& entry, dev_t device) {
  const std::optional<Found> status = status_of(entry);
  if (!status) return;
  if (status->kind != EntryKind::kDirectory) return unlink_entry(entry, 0);
  if (status->device != device) fail(entry.path, EXDEV);
  const Descriptor directory = open_directory(entry);
  for (const std::string& name : names_in(directory, entry.path)) {
    remove_whole({directory.number(), name, join_path(entry.path, name)}, device);
  }
  unlink_entry(entry, AT_REMOVEDIR);
}

// The directory above; links on the way to it are the user's.
std::optional<Descriptor> open_parent(const std::string& path) {
  const int parent = ::open(directory_name(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) return Descriptor(parent);
  if (errno == ENOENT) return std::nullopt;
  fail(path, errno);
}

}  // namespace

std::vector<std::string> posix_remove_owned(const std::string& path,
                                            const std::function<bool(const std::string& name)>& ours) {
  const std::optional<Descriptor> parent = open_parent(path);
  if (!parent) return {};
  const Entry whole{parent->number(), base_name(path), path};
  const std::optional<Found> status = status_of(whole);
  if (!status) return {};
  if (status->kind != EntryKind::kDirectory) {
    unlink_entry(whole, 0);
    return {};
  }
  const Descriptor directory = open_directory(whole);
  std::vector<std::string> left;
  for (const std::string& name : names_in(directory, path)) {
    const Entry entry{directory.number(), name, join_path(path, name)};
    const std::optional<Found> inner = status_of(entry);
    if (!inner) continue;
    if (inner->kind == EntryKind::kDirectory || !ours(name)) {
      left.push_back(name);
    } else {
      unlink_entry(entry, 0);
    }
  }
  if (left.empty()) unlink_entry(whole, AT_REMOVEDIR);
  return left;
}

void posix_remove_tree(const std::string& path) {
  const std::optional<Descriptor> parent = open_parent(path);
  if (!parent) return;
  struct stat status {};
  if (::fstat(parent->number(), &status) != 0) fail(path, errno);
  remove_whole({parent->number(), base_name(path), path}, status.st_dev);
}

}  // namespace trireme
