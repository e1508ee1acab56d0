#include "engine/train/placement.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::train {
namespace {

// Consecutive ranks as ranges: "0-3, 6".
std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i > 1 ? fmt::format("{}-{}", ranks[i], ranks[end - 1]) : fmt::format("{}", ranks[i]);
    i = end;
  }
  return text;
}

}  // namespace

Status check_placement(const plan::Layout& layout, const std::vector<std::string>& hosts, bool allow_slow_tp) {
  if (allow_slow_tp) return ok_status();
  const auto host_of = [&](int rank) -> const std::string& { return hosts[static_cast<std::size_t>(rank)]; };
  for (const std::vector<int>& group : plan::process_groups(layout, plan::Axis::kTensor)) {
    for (int rank : group) {
      if (host_of(rank) == host_of(group.front())) continue;
      const auto here = std::count(hosts.begin(), hosts.end(), host_of(group.front()));
      return Failure{.option = "layout.tp",
                     .value = fmt::format("{}", layout.tp),
                     .rule = fmt::format("the tensor axis must not leave a host: its ranks {} and {} would talk over "
                                         "the link between {} and {} in every layer",
                                         group.front(), rank, host_of(group.front()), host_of(rank)),
                     .nearest = fmt::format("a tp that divides the {} ranks of a host, or --allow-slow-tp", here)};
    }
  }
  return ok_status();
}

std::vector<int> host_numbers(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  std::vector<int> numbers;
  for (const std::string& host : hosts) {
    const auto known = std::find(names.begin(), names.end(), host);
    numbers.push_back(static_cast<int>(known - names.begin()));
    if (known == names.end()) names.push_back(host);
  }
  return numbers;
}

std::vector<int> ranks_of_machine(const std::vector<int>& host_of, int rank, bool rehearsal) {
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(host_of.size()); ++other) {
    const bool same_host = host_of[static_cast<std::size_t>(other)] == host_of[static_cast<std::size_t>(rank)];
    if (rehearsal || same_host) ranks.push_back(other);
  }
  return ranks;
}

std::string describe_hosts(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  }
  std::string text;
  for (const std::string& name : names) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      if (hosts[rank] == name) ranks.push_back(static_cast<int>(rank));
    }
    text += fmt::format("{}{}: rank{} {}", text.empty() ? "" : "; ", name, ranks.size() == 1 ? "" : "s", ranges(ranks));
  }
  return text;
}

std::string describe_crossings(const plan::Layout& layout, const std::vector<std::string>& hosts) {
  const auto host_of = [&](int rank) -> const std::string& { return hosts[static_cast<std::size_t>(rank)]; };
  const auto same_host = [&](const std::string& host) { return host == hosts.front(); };
  if (std::all_of(hosts.begin(), hosts.end(), same_host)) return "";
  std::string text;
  for (plan::Axis axis : {plan::Axis::kTensor, plan::Axis::kPipeline, plan::Axis::kData}) {
    const std::vector<std::vector<int>> groups = plan::process_groups(layout, axis);
    if (groups.front().size() == 1) continue;
    const bool crosses = std::any_of(groups.begin(), groups.end(), [&](const std::vector<int>& group) {
      return std::any_of(group.begin(), group.end(), [&](int rank) { return host_of(rank) != host_of(group.front()); });
    });
    text += fmt::format("{}{} groups {}", text.empty() ? "" : "; ", plan::axis_name(axis),
                        crosses ? "cross hosts" : "stay on a host");
  }
  return text;
}

}  // namespace trireme::train
