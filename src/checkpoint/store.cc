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
    return ending.empty() || (ending.front() == '.' && number_of(ending.substr(1)));
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

std::string shard_name(int index) { return fmt::format("part-{:05}.safetensors", index); }

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
  for (const std::string& name : names(Presence::kComplete)) found.push_back(*step_of_name(name));
  std::sort(found.begin(), found.end());  // names with more digits come first
  return found;
}

void Store::remove_tree(const std::string& path) {
  for (const std::string& name : env_.list_directory(path)) env_.remove_file(join_path(path, name));
  env_.remove_directory(path);
}

// A zombie may still add its file to one, or remove the same ones.
void Store::remove_partial() {
  constexpr int kAttempts = 3;
  for (const std::string& name : names(Presence::kPartial)) {
    const std::string path = join_path(directory_, name);
    for (int attempt = 1; env_.exists(path); ++attempt) {
      try {
        remove_tree(path);
      } catch (const Error&) {
        if (attempt == kAttempts) throw;
      }
    }
  }
}

void Store::make_directory() {
  if (!durable_) env_.make_directories_durably(directory_);
  durable_ = true;
}

void Store::begin(std::int64_t step) {
  make_directory();
  for (const std::string& path : {path_of(step), partial_path_of(step)}) {
    if (!env_.exists(path) || env_.is_directory(path)) continue;
    throw Error(ExitCode::kStorage, "checkpoint", fmt::format("save step {}", step),
                path + " is a file, where the checkpoint's directory belongs", "move it away");
  }
  TRIREME_CHECK(!env_.exists(path_of(step)), "{} is complete already", path_of(step));
  const std::string partial = partial_path_of(step);
  if (env_.exists(partial)) remove_tree(partial);
  env_.make_directories(partial);
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

void Store::commit(std::int64_t step, const Manifest& manifest, const std::function<void()>& may_commit) {
  const std::string partial = partial_path_of(step);
  TRIREME_CHECK(!env_.exists(path_of(step)), "{} is complete already", path_of(step));
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
}

void Store::abandon(std::int64_t step) {
  try {
    const std::string partial = partial_path_of(step);
    if (env_.exists(partial)) remove_tree(partial);
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
    std::string to = fmt::format("{}{}", from, kAside);
    for (int i = 2; env_.exists(join_path(directory_, to)); ++i) to = fmt::format("{}{}.{}", from, kAside, i);
    env_.rename(join_path(directory_, from), join_path(directory_, to));
    given.push_back(to);
  }
  if (!given.empty()) env_.sync_directory(directory_);
  std::reverse(given.begin(), given.end());
  return given;
}

// The new names must be durable before the first file goes: after a crash a checkpoint under its old name has all its
// files.
void Store::remove_steps(const std::vector<std::int64_t>& removed) {
  for (const std::int64_t step : removed) {
    const std::string partial = partial_path_of(step);
    if (env_.exists(partial)) remove_tree(partial);
    env_.rename(path_of(step), partial);
  }
  if (!removed.empty()) env_.sync_directory(directory_);
  for (const std::int64_t step : removed) remove_tree(partial_path_of(step));
}

std::vector<std::int64_t> Store::retain(const Retention& retention) {
  TRIREME_CHECK_GE(retention.keep_last, 1);
  TRIREME_CHECK_GE(retention.keep_every, 0);
  std::vector<std::int64_t> removed = steps();
  const auto last = std::min(removed.size(), static_cast<std::size_t>(retention.keep_last));
  removed.resize(removed.size() - last);
  std::erase_if(removed,
                [&](std::int64_t step) { return retention.keep_every > 0 && step % retention.keep_every == 0; });
  remove_steps(removed);
  return removed;
}

void Store::remove_all() {
  remove_partial();
  remove_steps(steps());
  for (const std::string& name : names(Presence::kAside)) remove_tree(join_path(directory_, name));
}

}  // namespace trireme::checkpoint
