#include "base/fake_disk.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/random.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(ExitCode code, std::string_view operation, const std::string& path, std::string reason) {
  throw Error(code, "files", fmt::format("{} {}", operation, path), std::move(reason));
}

[[noreturn]] void refuse_absent(std::string_view operation, const std::string& path) {
  throw FileError(operation, path, ENOENT);
}
[[noreturn]] void refuse_file(std::string_view operation, const std::string& path) {
  throw FileError(operation, path, ENOTDIR);
}
[[noreturn]] void refuse_directory(std::string_view operation, const std::string& path) {
  throw FileError(operation, path, EISDIR);
}

// The names on the way; "." is none, and ".." takes one back.
std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (name == "..") {
      if (!names.empty()) names.pop_back();
    } else if (!name.empty() && name != ".") {
      names.emplace_back(name);
    }
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return names;
}

constexpr std::size_t kSector = 512;

}  // namespace

struct FakeDisk::Write {
  std::size_t offset = 0;  // of a truncation, the new size
  std::string data;
  bool truncates = false;
};

struct FakeDisk::Node {
  bool is_directory = false;
  // Of a file.
  std::string content;
  std::string medium;
  std::vector<Write> writes;  // on their way to the medium, in their order
  std::int64_t reserved = 0;
  // Of a directory.
  std::map<std::string, NodePointer, std::less<>> names;
  std::map<std::string, NodePointer, std::less<>> medium_names;

  static void apply(std::string& target, const Write& write) {
    if (write.truncates) {
      target.resize(write.offset, '\0');
      return;
    }
    target.resize(std::max(target.size(), write.offset + write.data.size()), '\0');
    std::copy(write.data.begin(), write.data.end(), target.begin() + static_cast<std::ptrdiff_t>(write.offset));
  }
  void change(Write write) {
    apply(content, write);
    writes.push_back(std::move(write));
  }
};

FakeDisk::FakeDisk() : root_(std::make_shared<Node>()), here_(std::make_shared<Node>()) {
  root_->is_directory = here_->is_directory = true;
}
FakeDisk::~FakeDisk() = default;

// Random numbers of one power loss. How much of a kind survives is drawn too, so that states with little lost and
// states with little kept are as frequent as those between.
class FakeDisk::Draws {
 public:
  explicit Draws(std::uint64_t seed) : key_{seed, stream_of("power loss", "")} {}
  std::uint64_t below(std::uint64_t count) { return random_bits(key_, next_++) % count; }
  bool chance(std::uint64_t of_eight) { return below(8) < of_eight; }
  std::uint64_t kept_of_eight() {
    constexpr std::uint64_t kShares[] = {1, 4, 7};
    return kShares[below(std::size(kShares))];
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

bool FakeDisk::is_directory(const Node& node) { return node.is_directory; }
const std::string& FakeDisk::content(const Node& file) { return file.content; }

std::vector<std::string> FakeDisk::names(const Node& directory) {
  std::vector<std::string> all;
  for (const auto& [name, node] : directory.names) all.push_back(name);
  return all;
}

const FakeDisk::NodePointer& FakeDisk::start_of(std::string_view path) const {
  return path.starts_with('/') ? root_ : here_;
}

FakeDisk::NodePointer FakeDisk::find(const std::string& path) const {
  if (path.empty()) return nullptr;
  NodePointer node = start_of(path);
  for (const std::string& name : components(path)) {
    const auto found = node->names.find(name);
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

FakeDisk::Place FakeDisk::place(std::string_view operation, const std::string& path) const {
  std::vector<std::string> names = components(path);
  if (path.empty()) refuse_absent(operation, path);
  if (names.empty()) refuse(ExitCode::kStorage, operation, path, "Device or resource busy");
  const std::string last = names.back();
  names.pop_back();
  NodePointer node = start_of(path);
  for (const std::string& name : names) {
    const auto found = node->names.find(name);
    if (found == node->names.end()) refuse_absent(operation, path);
    node = found->second;
    if (!node->is_directory) refuse_file(operation, path);
  }
  return {node, last};
}

FakeDisk::NodePointer FakeDisk::file(std::string_view operation, const std::string& path) const {
  const NodePointer node = find(path);
  if (node == nullptr) {
    if (!components(path).empty()) place(operation, path);  // a file on the way is another refusal
    refuse_absent(operation, path);
  }
  if (node->is_directory) refuse_directory(operation, path);
  return node;
}

FakeDisk::NodePointer FakeDisk::directory(std::string_view operation, const std::string& path) const {
  const NodePointer node = find(path);
  if (node == nullptr) refuse_absent(operation, path);
  if (!node->is_directory) refuse_file(operation, path);
  return node;
}

FakeDisk::NodePointer FakeDisk::open_to_write(std::string_view operation, const std::string& path, bool truncate) {
  NodePointer node = find(path);
  if (node != nullptr && node->is_directory) refuse_directory(operation, path);
  if (node == nullptr) {
    node = std::make_shared<Node>();
    add_change({node, std::nullopt, place(operation, path)});
  } else if (truncate) {
    if (!node->content.empty()) node->change({0, {}, true});
    node->reserved = 0;
  }
  return node;
}

void FakeDisk::put_file(const std::string& path, std::string_view content) {
  constexpr std::string_view kOperation = "put";
  if (const NodePointer old = find(path); old != nullptr && old->is_directory) refuse_directory(kOperation, path);
  const auto file = std::make_shared<Node>();
  file->content = file->medium = content;
  const std::vector<std::string> names = components(path);
  std::string prefix = path.starts_with('/') ? "/" : "";
  for (std::size_t i = 0; i < names.size(); ++i) {
    prefix = join_path(prefix, names[i]);
    const Place at = place(kOperation, prefix);
    settle_name(at);
    NodePointer& node = at.directory->names[at.name];
    if (i + 1 == names.size()) {
      node = file;
    } else if (node == nullptr) {
      node = std::make_shared<Node>();
      node->is_directory = true;
    }
    at.directory->medium_names[at.name] = node;
  }
}

void FakeDisk::make_directories(const std::string& path) {
  constexpr std::string_view kOperation = "create the directory";
  NodePointer node = start_of(path);
  for (const std::string& name : components(path)) {
    if (const auto found = node->names.find(name); found != node->names.end()) {
      node = found->second;
      if (!node->is_directory) refuse_file(kOperation, path);
      continue;
    }
    const auto made = std::make_shared<Node>();
    made->is_directory = true;
    add_change({made, std::nullopt, Place{node, name}});
    node = made;
  }
}

void FakeDisk::rename(const std::string& from, const std::string& to) {
  const std::string operation = fmt::format("rename {} to", from);
  const Place taken = place(operation, from);
  const Place given = place(operation, to);
  const auto found = taken.directory->names.find(taken.name);
  if (found == taken.directory->names.end()) refuse_absent(operation, to);
  const NodePointer node = found->second;
  if (const NodePointer replaced = find(to); replaced != nullptr) {
    if (replaced == node) return;
    if (replaced->is_directory && !node->is_directory) refuse_directory(operation, to);
    if (!replaced->is_directory && node->is_directory) refuse_file(operation, to);
    if (!replaced->names.empty()) refuse(ExitCode::kStorage, operation, to, "Directory not empty");
  }
  const std::vector<std::string> outer = components(from);
  const std::vector<std::string> inner = components(to);
  if (start_of(from) == start_of(to) && inner.size() > outer.size() &&
      std::equal(outer.begin(), outer.end(), inner.begin())) {
    refuse(ExitCode::kStorage, operation, to, "Invalid argument");
  }
  add_change({node, taken, given, node->is_directory && taken.directory != given.directory});
}

void FakeDisk::remove_file(const std::string& path) {
  const NodePointer node = file("remove", path);
  add_change({node, place("remove", path), std::nullopt});
}

void FakeDisk::remove_directory(const std::string& path) {
  const NodePointer node = directory("remove", path);
  if (!node->names.empty()) refuse(ExitCode::kStorage, "remove", path, "Directory not empty");
  add_change({node, place("remove", path), std::nullopt});
}

void FakeDisk::add_change(NameChange change) {
  if (change.given) change.given->directory->names[change.given->name] = change.node;
  if (change.taken) change.taken->directory->names.erase(change.taken->name);
  pending_.push_back(std::move(change));
}

bool FakeDisk::same_place(const Place& a, const Place& b) { return a.directory == b.directory && a.name == b.name; }

bool FakeDisk::same_name(const NameChange& a, const NameChange& b) {
  const auto same = [](const std::optional<Place>& x, const std::optional<Place>& y) {
    return x && y && same_place(*x, *y);
  };
  return same(a.taken, b.taken) || same(a.taken, b.given) || same(a.given, b.taken) || same(a.given, b.given);
}

bool FakeDisk::touches(const NameChange& change, const Node* directory) {
  return (change.taken && change.taken->directory.get() == directory) ||
         (change.given && change.given->directory.get() == directory);
}

void FakeDisk::apply_to_medium(const NameChange& change, bool keep_taken) {
  if (change.given) change.given->directory->medium_names[change.given->name] = change.node;
  if (!change.taken || keep_taken) return;
  auto& names = change.taken->directory->medium_names;
  if (const auto found = names.find(change.taken->name); found != names.end() && found->second == change.node) {
    names.erase(found);
  }
}

// A file that was moved here from another directory is durable here; that its old name is gone is for the other
// directory's sync.
void FakeDisk::settle(std::vector<bool> chosen, const Node* synced_directory) {
  for (std::size_t i = pending_.size(); i-- > 0;) {
    if (!chosen[i]) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (pending_[i].last || same_name(pending_[i], pending_[j])) chosen[j] = true;
    }
  }
  std::vector<NameChange> left;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    NameChange& change = pending_[i];
    if (!chosen[i]) {
      left.push_back(std::move(change));
      continue;
    }
    const bool keeps_old_name = synced_directory != nullptr && !change.node->is_directory && change.taken &&
                                change.given && change.given->directory.get() == synced_directory &&
                                change.taken->directory.get() != synced_directory;
    apply_to_medium(change, keeps_old_name);
    if (keeps_old_name) left.push_back({change.node, change.taken, std::nullopt});
  }
  pending_ = std::move(left);
}

void FakeDisk::settle_name(const Place& place) {
  std::vector<bool> chosen;
  for (const NameChange& change : pending_) {
    chosen.push_back((change.taken && same_place(*change.taken, place)) ||
                     (change.given && same_place(*change.given, place)));
  }
  settle(std::move(chosen), nullptr);
}

void FakeDisk::sync_directory(const std::string& path) {
  const NodePointer node = directory("sync", path);
  std::vector<bool> chosen;
  for (const NameChange& change : pending_) chosen.push_back(touches(change, node.get()));
  settle(std::move(chosen), node.get());
}

void FakeDisk::write(Node& file, std::size_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  file.change({offset, std::string(reinterpret_cast<const char*>(data.data()), data.size())});
}

void FakeDisk::sync(Node& file) {
  for (const Write& write : file.writes) Node::apply(file.medium, write);
  file.writes.clear();
}

void FakeDisk::fail_sync(Node& file) { file.writes.clear(); }

void FakeDisk::reserve(Node& file, std::int64_t bytes) { file.reserved = std::max(file.reserved, bytes); }

std::int64_t FakeDisk::room(const Node& file) {
  return std::max(file.reserved, static_cast<std::int64_t>(file.content.size()));
}

std::int64_t FakeDisk::used_bytes() const {
  std::int64_t total = 0;
  std::vector<const Node*> left = {root_.get(), here_.get()};
  while (!left.empty()) {
    const Node* node = left.back();
    left.pop_back();
    if (!node->is_directory) total += room(*node);
    for (const auto& [name, inside] : node->names) left.push_back(inside.get());
  }
  return total;
}

void FakeDisk::lose_power() {
  pending_.clear();
  reread_medium();
}

CrashEffects FakeDisk::lose_power(std::uint64_t seed) {
  Draws draws(seed);
  CrashEffects effects;
  choose_names(draws, effects);
  const std::uint64_t kept_of_eight = draws.kept_of_eight();
  choose_writes(*root_, draws, kept_of_eight, effects);
  choose_writes(*here_, draws, kept_of_eight, effects);
  reread_medium();
  return effects;
}

void FakeDisk::choose_names(Draws& draws, CrashEffects& effects) {
  const std::uint64_t kept_of_eight = draws.kept_of_eight();
  std::vector<const NameChange*> dropped;
  for (const NameChange& change : pending_) {
    bool needs_dropped = change.last && !dropped.empty();
    bool overtakes = false;
    for (const NameChange* earlier : dropped) {
      needs_dropped = needs_dropped || same_name(change, *earlier);
      overtakes = overtakes || (earlier->taken && touches(change, earlier->taken->directory.get())) ||
                  (earlier->given && touches(change, earlier->given->directory.get()));
    }
    if (needs_dropped || !draws.chance(kept_of_eight)) {
      dropped.push_back(&change);
      ++effects.dropped_names;
      continue;
    }
    const bool doubles = change.taken && change.given && !change.node->is_directory && draws.chance(1);
    apply_to_medium(change, doubles);
    ++effects.kept_names;
    effects.reordered_names += overtakes ? 1 : 0;
    effects.doubled_names += doubles ? 1 : 0;
  }
  pending_.clear();
}

void FakeDisk::choose_writes(Node& node, Draws& draws, std::uint64_t kept_of_eight, CrashEffects& effects) {
  for (const auto& [name, inside] : node.medium_names) choose_writes(*inside, draws, kept_of_eight, effects);
  for (const Write& write : node.writes) {
    if (draws.chance(kept_of_eight)) {
      Node::apply(node.medium, write);
      ++effects.kept_writes;
      continue;
    }
    const bool torn = !write.truncates && write.data.size() > 1 && draws.chance(4);
    ++(torn ? effects.torn_writes : effects.dropped_writes);
    if (torn) tear(node.medium, write, draws);
    // The size may have come without the data.
    const std::size_t end = write.offset + write.data.size();
    if (!write.truncates && node.medium.size() < end && draws.chance(2)) node.medium.resize(end, '\0');
  }
  node.writes.clear();
}

void FakeDisk::tear(std::string& medium, const Write& write, Draws& draws) {
  const std::size_t size = write.data.size();
  if (draws.chance(4) || size <= kSector) {
    Node::apply(medium, {write.offset, write.data.substr(0, 1 + draws.below(size - 1))});
    return;
  }
  const std::uint64_t kept_of_eight = draws.kept_of_eight();
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min(kSector - (write.offset + at) % kSector, size - at);
    if (draws.chance(kept_of_eight)) Node::apply(medium, {write.offset + at, write.data.substr(at, length)});
    at += length;
  }
}

void FakeDisk::reread_medium() {
  std::vector<Node*> left = {root_.get(), here_.get()};
  while (!left.empty()) {
    Node& node = *left.back();
    left.pop_back();
    node.content = node.medium;
    node.writes.clear();
    node.reserved = 0;
    node.names = node.medium_names;
    for (const auto& [name, inside] : node.names) left.push_back(inside.get());
  }
}

}  // namespace trireme
