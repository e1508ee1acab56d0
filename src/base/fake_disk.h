#pragma once

// The disk of FakeEnv: a tree of files and directories in memory, with what programs see of it and what the medium
// holds of it kept apart. A file's writes reach the medium when it is synced, a directory's names when that directory
// is. A power loss leaves the medium, and any part of what was on its way to it. Refuses what Linux refuses (Error,
// component "files"). Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

// What a power loss did to that which was not synced.
struct CrashEffects {
  std::int64_t kept_writes = 0;     // truncations are counted as writes
  std::int64_t dropped_writes = 0;  // none of its bytes
  std::int64_t torn_writes = 0;     // some of its bytes
  std::int64_t kept_names = 0;      // creations, removals, renames
  std::int64_t dropped_names = 0;
  std::int64_t reordered_names = 0;  // kept ones that came after a dropped one of the same directory
  std::int64_t doubled_names = 0;    // kept renames that left the old name too
  bool lost_anything() const { return dropped_writes + torn_writes + dropped_names > 0; }
};

class FakeDisk {
 public:
  struct Node;  // a file or a directory, whatever its name
  using NodePointer = std::shared_ptr<Node>;

  FakeDisk();
  ~FakeDisk();
  FakeDisk(const FakeDisk&) = delete;
  FakeDisk& operator=(const FakeDisk&) = delete;

  // `operation` is what a refusal says was being done.
  NodePointer find(const std::string& path) const;  // null if there is none
  NodePointer file(std::string_view operation, const std::string& path) const;
  NodePointer directory(std::string_view operation, const std::string& path) const;
  static bool is_directory(const Node& node);
  static const std::string& content(const Node& file);
  static std::vector<std::string> names(const Node& directory);

  // Files that are there stay; a truncation is a change of its own.
  NodePointer open_to_write(std::string_view operation, const std::string& path, bool truncate);
  void put_file(const std::string& path, std::string_view content);  // durable at once, with its directories
  void make_directories(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void remove_file(const std::string& path);
  void remove_directory(const std::string& path);
  void sync_directory(const std::string& path);

  static void write(Node& file, std::size_t offset, std::span<const std::byte> data);
  static void sync(Node& file);
  // A sync that failed: what was written since the last one is read back as long as the machine runs, but no later sync
  // brings it to the medium (so it is on ext4, XFS and Btrfs).
  static void fail_sync(Node& file);
  // Room held for the file's first `bytes`.
  static void reserve(Node& file, std::int64_t bytes);
  static std::int64_t room(const Node& file);  // that it takes: of its content, or held for it
  std::int64_t used_bytes() const;             // of all files that have a name

  // The medium alone: nothing that was not synced.
  void lose_power();
  // One of the states that a disk may be in: of each file every write since its last sync kept, dropped, or torn (a
  // first part of it, or some of its sectors; of a write that is not whole the file's new size may be there, read as
  // zeros); of each directory every change of its names since its last sync kept or dropped, also a later one without
  // an earlier one. Changes of the same name keep their order, and a rename is there or not; of a file's the old name
  // may stay too. The same seed after the same calls gives the same state.
  CrashEffects lose_power(std::uint64_t seed);

 private:
  class Draws;
  struct Write;   // to a file, or its truncation
  struct Place {  // a name in a directory
    NodePointer directory;
    std::string name;
  };
  struct NameChange {
    NodePointer node;
    std::optional<Place> taken;  // the name that goes: of a removal, a rename
    std::optional<Place> given;  // the name that comes: of a creation, a rename
    // Only after all changes before it: of a directory that gets another parent, so that no crash leaves a circle.
    bool last = false;
  };

  const NodePointer& start_of(std::string_view path) const;
  // The directory that holds the path's last name; it need not hold that name yet.
  Place place(std::string_view operation, const std::string& path) const;
  void add_change(NameChange change);  // as seen now, on the medium after a sync
  // Brings the chosen changes, and those that they need, to the medium.
  void settle(std::vector<bool> chosen, const Node* synced_directory);
  void settle_name(const Place& place);
  static bool same_place(const Place& a, const Place& b);
  static bool same_name(const NameChange& a, const NameChange& b);  // that both change
  static bool touches(const NameChange& change, const Node* directory);
  static void apply_to_medium(const NameChange& change, bool keep_taken);
  void choose_names(Draws& draws, CrashEffects& effects);
  static void choose_writes(Node& node, Draws& draws, std::uint64_t kept_of_eight, CrashEffects& effects);
  static void tear(std::string& medium, const Write& write, Draws& draws);
  void reread_medium();

  NodePointer root_;  // "/"
  NodePointer here_;  // ".": paths that do not begin with a slash
  std::vector<NameChange> pending_;
};

}  // namespace trireme
