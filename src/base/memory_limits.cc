#include "base/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/words.h"

namespace trireme {
namespace {

constexpr Bytes kUnlimited{std::numeric_limits<std::int64_t>::max()};

// Of a version of control groups: where its directories are, and what the files in them are called.
struct Hierarchy {
  std::string_view root, limit, used, cache;
};
constexpr Hierarchy kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr Hierarchy kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file"};

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data() ? std::optional(number) : std::nullopt;
}

std::string text_at(Env& env, const std::string& path) { return env.exists(path) ? env.read_file(path) : ""; }

// The number after a name at the start of a line; blanks are between them.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() >= 2 && words[0] == name) return number_of(words[1]);
  }
  return std::nullopt;
}

Bytes left_by_group(Env& env, const Hierarchy& hierarchy, const std::string& directory) {
  const std::optional<std::int64_t> limit = number_of(text_at(env, join_path(directory, hierarchy.limit)));
  const std::optional<std::int64_t> used = number_of(text_at(env, join_path(directory, hierarchy.used)));
  if (!limit || !used) return kUnlimited;
  const std::int64_t cache =
      number_after(text_at(env, join_path(directory, "memory.stat")), hierarchy.cache).value_or(0);
  return {std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - cache))};
}

// Of the group and of all around it. A container may see its own group as the root.
Bytes left_by_groups(Env& env, const Hierarchy& hierarchy, std::string_view path) {
  Bytes left = left_by_group(env, hierarchy, std::string(hierarchy.root));
  for (; path.size() > 1; path = path.substr(0, path.rfind('/'))) {
    left = std::min(left, left_by_group(env, hierarchy, fmt::format("{}{}", hierarchy.root, path)));
  }
  return left;
}

bool has_memory(std::string_view controllers) {
  const std::vector<std::string_view> all = split(controllers, ',');
  return std::ranges::find(all, "memory") != all.end();
}

}  // namespace

Bytes left_by_control_groups(Env& env) {
  Bytes left = kUnlimited;
  const std::string groups = text_at(env, "/proc/self/cgroup");
  for (const std::string_view line : split(groups, '\n')) {  // number:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) left = std::min(left, left_by_groups(env, kVersion2, path));
    if (has_memory(controllers)) left = std::min(left, left_by_groups(env, kVersion1, path));
  }
  return left;
}

Bytes left_by_process_limits(Env& env) {
  Bytes left = kUnlimited;
  const std::string status = text_at(env, "/proc/self/status");
  const auto look = [&](auto resource, std::string_view taken) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const std::int64_t bytes = 1024 * number_after(status, taken).value_or(0);
    left = std::min(left, Bytes{std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - bytes)});
  };
  look(RLIMIT_AS, "VmSize:");
  look(RLIMIT_DATA, "VmData:");
  return left;
}

Bytes thread_stack() {
  constexpr std::int64_t kWithoutLimit = std::int64_t{2} << 20;  // of glibc, where the stack has no limit
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return Bytes{kWithoutLimit};
  return Bytes{static_cast<std::int64_t>(limit.rlim_cur)};
}

}  // namespace trireme
