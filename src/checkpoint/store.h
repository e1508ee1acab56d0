#pragma once

// The checkpoints of a run: a directory of them, one each `step-00000040`. One is complete or it does not exist: it is
// written as `step-00000040.inc-000003.partial`, made durable, and renamed. The newest is found by listing. The number
// is the incarnation of the run that writes it (checkpoint/lease.h), so that what an earlier start still writes never
// meets this one's files.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "checkpoint/manifest.h"

namespace trireme::checkpoint {

// Which checkpoints stay beside the newest.
struct Retention {
  std::int64_t keep_last = 2;   // newest ones, at least 1
  std::int64_t keep_every = 0;  // and those whose step is a multiple of it; 0: none
  friend bool operator==(const Retention&, const Retention&) = default;
};

// By name: kPartial, a save that is under way or was never completed, or a checkpoint that is being removed; kAside,
// complete, of a run that went on from an earlier step.
enum class Presence { kComplete, kPartial, kAside };
// What a Store calls a directory: "step-00000040"; "step-00000040.inc-000003.partial", without the incarnation where
// none is known; "step-00000040.aside", "step-00000040.aside.2".
struct StoredName {
  std::int64_t step = 0;
  Presence presence = Presence::kComplete;
  std::int64_t incarnation = 0;  // of a partial one; 0: not known
  std::int64_t number = 1;       // of one set aside, among those of its step
  friend bool operator==(const StoredName&, const StoredName&) = default;
};
// None for names that no Store gives.
std::optional<StoredName> parse_stored_name(std::string_view name);

// The step that a directory's name stands for, whatever its number of digits; none if it is no complete checkpoint's
// name. name_of_step writes at least eight digits; a Store takes no other names for its own.
std::optional<std::int64_t> step_of_name(std::string_view name);
std::string name_of_step(std::int64_t step);
std::string shard_name(int index);  // "part-00003.safetensors"
// Whether a save gives a file of a checkpoint's directory this name.
bool is_file_of_checkpoint(std::string_view name);
// Whether a directory of a checkpoint's name is one, whole or damaged: there is a manifest or a shard in it. An empty
// one, or an export that was put there, is somebody else's.
bool holds_checkpoint(Env& env, const std::string& directory);

// What a removal has done.
struct Removal {
  std::vector<std::int64_t> steps = {};  // removed, ascending
  // New names, "step-00000040.left" and "step-00000040.left.2", of what was in the way and is not ours: what stood
  // where a checkpoint belongs, and a removed one's directory with the files in it that no save writes.
  std::vector<std::string> left = {};
};

// Used by the one process that owns the run directory, on one thread at a time. Errors are Env's. Nothing but files
// that saves have written is removed, and no link is followed by a removal: one in a checkpoint's place is removed
// itself. That directory_ is a link is its owner's wish.
class Store {
 public:
  // incarnation: of the run that writes; 0: none, as of a command that lists, imports or removes.
  explicit Store(Env& env, std::string directory, std::int64_t incarnation = 0);

  const std::string& directory() const { return directory_; }
  // Where directory_ is a link, other runs may have their checkpoints there: of those only `ours` are removed.
  void share_with_others(std::function<bool(const Manifest&)> ours) { ours_ = std::move(ours); }
  // Steps of complete checkpoints, ascending. None where the directory does not exist.
  std::vector<std::int64_t> steps() const;
  std::string path_of(std::int64_t step) const;
  std::string partial_path_of(std::int64_t step) const;

  // Removes what killed saves left, of all incarnations.
  Removal remove_partial();
  // An empty directory for the shards of this step; one that a failed save left is emptied. Its step must not be
  // complete (CHECK): set_aside_after() comes first. What else has its name gets another.
  Removal begin(std::int64_t step);
  // The shards are durable: their directory, the manifest, the rename, the parent. When it returns the checkpoint
  // cannot be lost. Where it throws, it is not complete under its name or the disk is failing. may_commit, where there
  // is one, is called before the manifest is written and again right before the rename; what it throws ends the commit.
  // What has got its name since begin() gets another.
  Removal commit(std::int64_t step, const Manifest& manifest, const std::function<void()>& may_commit = {});
  // Removes a save that failed. Never throws.
  void abandon(std::int64_t step);

  // Renames complete checkpoints beyond `step` to `step-00000060.aside`, `.aside.2`: a run that goes on from an earlier
  // one will write those steps anew. Gives the new names. Nothing is deleted.
  std::vector<std::string> set_aside_after(std::int64_t step);
  // Removes older checkpoints; never the newest, never one that is not complete by name or whose manifest is of another
  // step or run. Each is first renamed to its partial name, durably, so that a kill leaves no checkpoint without its
  // files. Of those set aside, as many as keep_last stay of the steps that the newest has reached, and all beyond. What
  // cannot be removed keeps nothing else from it: the first Error is thrown at the end.
  Removal retain(const Retention& retention);
  // Removes all complete and partial checkpoints and those set aside: a run begins anew. Nothing else; what is complete
  // and may not be removed is set aside.
  Removal remove_all();

 private:
  void check_is_there(const std::string& path, std::int64_t bytes) const;
  std::vector<std::string> names(Presence presence) const;  // of the directories in directory_, sorted
  bool is_anothers(std::int64_t step) const;
  void make_directory();  // directory_, durable
  std::string next_name(const std::string& name, std::string_view ending) const;
  void move_aside(const std::string& name, Removal& removal);
  void clear_place(std::int64_t step, Removal& removal);              // where a checkpoint is to be
  void remove_checkpoint(const std::string& name, Removal& removal);  // the directory, or the link
  void remove_steps(const std::vector<std::int64_t>& steps, Removal& removal);

  Env& env_;
  std::string directory_;
  std::int64_t incarnation_;
  std::function<bool(const Manifest&)> ours_;
  bool durable_ = false;  // directory_, as far as this object knows
};

}  // namespace trireme::checkpoint
