#include "base/env.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme {
namespace {

// Without slashes at the end, but "/" stays.
std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

// By paths: for a disk whose names nobody else changes. The real one goes by descriptors.
std::vector<std::string> Env::remove_owned(const std::string& path,
                                           const std::function<bool(const std::string& name)>& ours) {
  const EntryKind kind = kind_of(path);
  if (kind == EntryKind::kNone) return {};
  if (kind != EntryKind::kDirectory) {
    remove_file(path);
    return {};
  }
  std::vector<std::string> left;
  for (const std::string& name : list_directory(path)) {
    const std::string inner = join_path(path, name);
    if (!ours(name) || kind_of(inner) == EntryKind::kDirectory) {
      left.push_back(name);
    } else {
      remove_file(inner);
    }
  }
  if (left.empty()) remove_directory(path);
  return left;
}

void Env::remove_tree(const std::string& path) {
  const EntryKind kind = kind_of(path);
  if (kind == EntryKind::kNone) return;
  if (kind != EntryKind::kDirectory) return remove_file(path);
  for (const std::string& name : list_directory(path)) remove_tree(join_path(path, name));
  remove_directory(path);
}

void Env::write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(*this, path);
  file.writer().write_text(content);
  file.commit();
}

void Env::replace_file(const std::string& path, std::string_view content) {
  AtomicFile file(*this, path);
  file.writer().write_text(content);
  file.commit_unsynced();
}

void Env::make_directories_durably(const std::string& path) {
  std::vector<std::string> parents = {directory_name(path)};
  while (!exists(parents.back())) parents.push_back(directory_name(parents.back()));
  make_directories(path);
  for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent) sync_directory(*parent);
}

AtomicFile::AtomicFile(Env& env, std::string path)
    : env_(env), path_(std::move(path)), temporary_(fmt::format("{}.partial.{}", path_, env_.process_id())) {
  // A link of that name would be written through.
  if (env_.kind_of(temporary_) == EntryKind::kLink) env_.remove_file(temporary_);
  writer_ = env_.create_file(temporary_);
}

AtomicFile::~AtomicFile() {
  if (renamed_) return;
  try {
    env_.remove_file(temporary_);
  } catch (const std::exception&) {
    // What brought us here is the failure to report; what is left has a name that no reader takes for the
    // file.
  }
}

void AtomicFile::commit() {
  TRIREME_CHECK(!renamed_, "{} was committed before", path_);
  writer_->sync();
  put_in_place();
  env_.sync_directory(directory_name(path_));
}

void AtomicFile::commit_unsynced() {
  TRIREME_CHECK(!renamed_, "{} was committed before", path_);
  put_in_place();
}

void AtomicFile::put_in_place() {
  writer_->close();
  env_.rename(temporary_, path_);
  renamed_ = true;
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  if (directory.back() == '/') return fmt::format("{}{}", directory, name);
  return fmt::format("{}/{}", directory, name);
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  if (path == "/") return "/";
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string directory_name(std::string_view path) {
  path = without_trailing_slashes(path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(without_trailing_slashes(path.substr(0, slash)));
}

}  // namespace trireme
