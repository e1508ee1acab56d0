#include "checkpoint/store.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kIncarnation = ".inc-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kAside = ".aside";
constexpr std::string_view kLeft = ".left";
constexpr std::string_view kShard = "part-", kShardEnd = ".safetensors";

std::optional<std::int64_t> number_of(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string partial_name(std::int64_t step, std::int64_t incarnation) {
  if (incarnation == 0) return fmt::format("{}{}", name_of_step(step), kPartial);
  return fmt::format("{}{}{:06}{}", name_of_step(step), kIncarnation, incarnation, kPartial);
}

// What follows the step in a name.
bool parse_ending(std::string_view ending, StoredName& name) {
  if (ending.empty()) return true;
  if (ending.starts_with(kAside)) {
    name.presence = Presence::kAside;
    ending.remove_prefix(kAside.size());
    if (ending.empty()) return true;
    const std::optional<std::int64_t> number = ending.front() == '.' ? number_of(ending.substr(1)) : std::nullopt;
    name.number = number.value_or(0);
    return number.has_value();
  }
  if (!ending.ends_with(kPartial)) return false;
  name.presence = Presence::kPartial;
  ending.remove_suffix(kPartial.size());
  if (ending.empty()) return true;
  if (!ending.starts_with(kIncarnation)) return false;
  const std::optional<std::int64_t> number = number_of(ending.substr(kIncarnation.size()));
  name.incarnation = number.value_or(0);
  return name.incarnation > 0;
}

}  // namespace

// Another number of leading zeros is another program's.
std::optional<StoredName> parse_stored_name(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  const std::optional<std::int64_t> step = step_of_name(first);
  if (!step || first != name_of_step(*step)) return std::nullopt;
  StoredName found{.step = *step};
  if (!parse_ending(name.substr(first.size()), found)) return std::nullopt;
  const bool ours = found.presence != Presence::kPartial || name == partial_name(*step, found.incarnation);
  return ours ? std::optional(found) : std::nullopt;
}

std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return number_of(name.substr(kPrefix.size()));
}

std::string name_of_step(std::int64_t step) {
  TRIREME_CHECK_GE(step, 0);
  return fmt::format("{}{:08}", kPrefix, step);
}

std::string shard_name(int index) { return fmt::format("{}{:05}{}", kShard, index, kShardEnd); }

bool is_file_of_checkpoint(std::string_view name) {
  if (name == kManifestFile) return true;
  if (!name.starts_with(kShard) || !name.ends_with(kShardEnd)) return false;
  const std::string_view digits = name.substr(kShard.size(), name.size() - kShard.size() - kShardEnd.size());
  return digits.size() >= 5 && number_of(digits);
}

bool holds_checkpoint(Env& env, const std::string& directory) {
  if (env.exists(join_path(directory, kManifestFile))) return true;
  try {
    const std::vector<std::string> inside = env.list_directory(directory);
    return std::ranges::any_of(inside, [](const std::string& name) { return is_file_of_checkpoint(name); });
  } catch (const Error&) {
    return true;  // whoever reads it says what is wrong
  }
}

Store::Store(Env& env, std::string directory, std::int64_t incarnation)
    : env_(env), directory_(std::move(directory)), incarnation_(incarnation) {
  TRIREME_CHECK_GE(incarnation, 0);
}

std::string Store::path_of(std::int64_t step) const { return join_path(directory_, name_of_step(step)); }
std::string Store::partial_path_of(std::int64_t step) const {
  return join_path(directory_, partial_name(step, incarnation_));
}

std::vector<std::string> Store::names(Presence presence) const {
  std::vector<std::string> found;
  if (!env_.is_directory(directory_)) return found;
  for (std::string& name : env_.list_directory(directory_)) {
    const std::optional<StoredName> parsed = parse_stored_name(name);
    if (!parsed || parsed->presence != presence || !env_.is_directory(join_path(directory_, name))) continue;
    found.push_back(std::move(name));
  }
  return found;
}

std::vector<std::int64_t> Store::steps() const {
  std::vector<std::int64_t> found;
  for (const std::string& name : names(Presence::kComplete)) {
    if (holds_checkpoint(env_, join_path(directory_, name))) found.push_back(*step_of_name(name));
  }
  std::sort(found.begin(), found.end());  // names with more digits come first
  return found;
}

// Above all that there are: of those set aside the number says which was the last.
std::string Store::next_name(const std::string& name, std::string_view ending) const {
  const std::string first = fmt::format("{}{}", name, ending);
  std::int64_t highest = 0;
  for (const std::string& other : env_.list_directory(directory_)) {
    if (!other.starts_with(first)) continue;
    const std::string_view rest = std::string_view(other).substr(first.size());
    if (rest.empty()) highest = std::max<std::int64_t>(highest, 1);
    if (rest.starts_with('.')) highest = std::max(highest, number_of(rest.substr(1)).value_or(0));
  }
  return highest == 0 ? first : fmt::format("{}.{}", first, highest + 1);
}

void Store::move_aside(const std::string& name, Removal& removal) {
  const std::string to = next_name(name.substr(0, name.find('.')), kLeft);
  env_.rename(join_path(directory_, name), join_path(directory_, to));
  removal.left.push_back(to);
}

void Store::remove_checkpoint(const std::string& name, Removal& removal) {
  if (!env_.remove_owned(join_path(directory_, name), is_file_of_checkpoint).empty()) move_aside(name, removal);
}

// A zombie may still add its file to one, or remove the same ones.
Removal Store::remove_partial() {
  constexpr int kAttempts = 3;
  Removal removal;
  for (const std::string& name : names(Presence::kPartial)) {
    for (int attempt = 1; env_.kind_of(join_path(directory_, name)) != EntryKind::kNone; ++attempt) {
      try {
        remove_checkpoint(name, removal);
      } catch (const Error&) {
        if (attempt == kAttempts) throw;
      }
    }
  }
  return removal;
}

void Store::make_directory() {
  if (!durable_) env_.make_directories_durably(directory_);
  durable_ = true;
}

Removal Store::begin(std::int64_t step) {
  make_directory();
  Removal removal;
  const std::string partial = partial_path_of(step);
  clear_place(step, removal);
  const EntryKind kind = env_.kind_of(partial);
  if (kind == EntryKind::kDirectory || kind == EntryKind::kLink) remove_checkpoint(base_name(partial), removal);
  if (env_.kind_of(partial) != EntryKind::kNone) move_aside(base_name(partial), removal);  // a file
  env_.make_directories(partial);
  return removal;
}

void Store::clear_place(std::int64_t step, Removal& removal) {
  const std::string path = path_of(step);
  TRIREME_CHECK(!env_.is_directory(path) || !holds_checkpoint(env_, path), "{} is complete already", path);
  if (env_.kind_of(path) != EntryKind::kNone) move_aside(name_of_step(step), removal);
}

// Whoever wrote a shard may have written it into another host's directory of that name.
void Store::check_is_there(const std::string& path, std::int64_t bytes) const {
  const std::int64_t found = env_.exists(path) ? env_.file_size(path) : -1;
  if (found == bytes) return;
  throw Error(ExitCode::kStorage, "checkpoint", "commit " + path,
              found < 0 ? std::string("it was written, and is not there")
                        : fmt::format("expected {} bytes, found {}", bytes, found),
              "all ranks must write into one directory, on a file system that their hosts share");
}

Removal Store::commit(std::int64_t step, const Manifest& manifest, const std::function<void()>& may_commit) {
  const std::string partial = partial_path_of(step);
  Removal removal;
  clear_place(step, removal);
  for (const StoredFile& file : manifest.files) check_is_there(join_path(partial, file.name), file.bytes);
  for (const StoredModelFile& file : manifest.model_files) check_is_there(join_path(partial, file.name), file.bytes);
  env_.sync_directory(partial);
  if (may_commit) may_commit();
  const std::unique_ptr<Writer> writer = env_.create_file(join_path(partial, kManifestFile));
  writer->write_text(to_text(manifest));
  writer->sync();
  writer->close();
  env_.sync_directory(partial);  // all names are in it before it gets its own
  if (may_commit) may_commit();
  env_.rename(partial, path_of(step));
  env_.sync_directory(directory_);
  return removal;
}

void Store::abandon(std::int64_t step) {
  try {
    Removal removal;
    remove_checkpoint(base_name(partial_path_of(step)), removal);
  } catch (const std::exception&) {
    // The failure that brought us here is the one to report; the next start removes what is left.
  }
}

std::vector<std::string> Store::set_aside_after(std::int64_t step) {
  std::vector<std::string> given;
  std::vector<std::int64_t> complete = steps();
  // The newest first: a kill leaves those that the run had before.
  for (; !complete.empty() && complete.back() > step; complete.pop_back()) {
    const std::string from = name_of_step(complete.back());
    const std::string to = next_name(from, kAside);
    env_.rename(join_path(directory_, from), join_path(directory_, to));
    given.push_back(to);
  }
  if (!given.empty()) env_.sync_directory(directory_);
  std::reverse(given.begin(), given.end());
  return given;
}

// The new names must be durable before the first file goes: after a crash a checkpoint under its old name has all its
// files. A link goes at once: what it names stays.
void Store::remove_steps(const std::vector<std::int64_t>& steps, Removal& removal) {
  std::vector<std::int64_t> renamed;
  std::optional<Error> first;
  const auto attempt = [&first](const auto& act) {
    try {
      act();
      return true;
    } catch (const Error& error) {
      if (!first) first = error;
      return false;
    }
  };
  for (const std::int64_t step : steps) {
    const std::string partial = base_name(partial_path_of(step));
    attempt([&] {
      remove_checkpoint(partial, removal);
      if (env_.kind_of(path_of(step)) == EntryKind::kLink) {
        env_.remove_file(path_of(step));
        removal.steps.push_back(step);
      } else {
        env_.rename(path_of(step), partial_path_of(step));
        renamed.push_back(step);
      }
    });
  }
  if (!steps.empty() && !attempt([&] { env_.sync_directory(directory_); })) throw *std::move(first);
  for (const std::int64_t step : renamed) {
    if (attempt([&] { remove_checkpoint(base_name(partial_path_of(step)), removal); })) removal.steps.push_back(step);
  }
  std::sort(removal.steps.begin(), removal.steps.end());
  if (first) throw *std::move(first);
}

// Damaged ones are not: they are as old as their names say.
bool Store::is_anothers(std::int64_t step) const {
  const std::string path = join_path(path_of(step), kManifestFile);
  if (!env_.exists(path) || env_.is_directory(path)) return false;
  const Result<Manifest> manifest = parse_manifest(env_.read_file(path), path);
  if (!manifest.ok()) return false;
  if (manifest->progress.step != step) return true;
  return ours_ && env_.kind_of(directory_) == EntryKind::kLink && !ours_(*manifest);
}

Removal Store::retain(const Retention& retention) {
  TRIREME_CHECK_GE(retention.keep_last, 1);
  TRIREME_CHECK_GE(retention.keep_every, 0);
  std::vector<std::int64_t> older = steps();
  const auto last = static_cast<std::size_t>(retention.keep_last);
  std::int64_t newest = -1;
  for (std::size_t kept = 0; kept < last && !older.empty(); older.pop_back()) {  // another's keeps none of its places
    if (is_anothers(older.back())) continue;
    newest = std::max(newest, older.back());
    ++kept;
  }
  std::erase_if(older, [&](std::int64_t step) {
    return (retention.keep_every > 0 && step % retention.keep_every == 0) || is_anothers(step);
  });
  std::vector<std::pair<StoredName, std::string>> aside;
  for (const std::string& name : names(Presence::kAside)) aside.emplace_back(*parse_stored_name(name), name);
  std::erase_if(aside, [&](const auto& one) { return one.first.step > newest; });
  std::sort(aside.begin(), aside.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.step, a.first.number) < std::pair(b.first.step, b.first.number);
  });
  aside.resize(aside.size() - std::min(aside.size(), last));
  Removal removal;
  remove_steps(older, removal);
  for (const auto& [stored, name] : aside) {  // under a partial name first, as the others
    const std::string partial = base_name(partial_path_of(stored.step));
    remove_checkpoint(partial, removal);
    env_.rename(join_path(directory_, name), partial_path_of(stored.step));
    env_.sync_directory(directory_);
    remove_checkpoint(partial, removal);
  }
  return removal;
}

Removal Store::remove_all() {
  Removal removal = remove_partial();
  std::vector<std::int64_t> own = steps();
  std::erase_if(own, [this](std::int64_t step) { return is_anothers(step); });
  remove_steps(own, removal);
  if (env_.kind_of(directory_) != EntryKind::kLink) {
    for (const std::string& name : names(Presence::kAside)) remove_checkpoint(name, removal);
  }
  for (std::string& name : set_aside_after(-1)) removal.left.push_back(std::move(name));
  return removal;
}

}  // namespace trireme::checkpoint
