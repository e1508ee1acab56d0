#include "base/collective_bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"

namespace trireme {
namespace {

struct AlgorithmName {
  ReduceAlgorithm algorithm;
  std::string_view text;
};
constexpr std::array<AlgorithmName, 5> kAlgorithmNames{{{ReduceAlgorithm::kOrdered, "ordered"},
                                                        {ReduceAlgorithm::kRing, "ring"},
                                                        {ReduceAlgorithm::kRecursiveDoubling, "recursive-doubling"},
                                                        {ReduceAlgorithm::kHierarchical, "hierarchical"},
                                                        {ReduceAlgorithm::kLibrary, "library"}}};

std::int64_t share_elements(std::int64_t count, int index, int size) {
  return count * (index + 1) / size - count * index / size;
}

std::int64_t scattered(std::int64_t count, int index, int size) { return count - share_elements(count, index, size); }

std::int64_t gathered(std::int64_t count, int index, int size) {
  return count - share_elements(count, (index + 1) % size, size);
}

// Direct or ring: a member's sums are formed elsewhere for all shares but its own, then all shares pass it but its
// successor's.
std::int64_t ring_all_reduce(std::int64_t count, int index, int size) {
  return scattered(count, index, size) + gathered(count, index, size);
}

// Of N members, the first 2 r (r = N less the largest power of two) are folded into pairs: the odd one sends all to the
// even one, and gets all back.
std::int64_t doubling_all_reduce(std::int64_t count, int index, int size) {
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const bool folded = index < 2 * (size - power);
  if (folded && index % 2 == 1) return count;
  const int rounds = std::countr_zero(static_cast<unsigned>(power));
  return count * (rounds + (folded ? 1 : 0));
}

std::int64_t hierarchical_all_reduce(std::int64_t count, int index, std::span<const int> host_of) {
  const auto host = [&](std::size_t member) { return host_of[member]; };
  const auto own = static_cast<std::size_t>(index);
  int leaders = 0;
  int leaders_before = 0;
  std::int64_t others_here = 0;
  for (std::size_t member = 0; member < host_of.size(); ++member) {
    const bool leads = std::find(host_of.begin(), host_of.begin() + static_cast<std::ptrdiff_t>(member),
                                 host(member)) == host_of.begin() + static_cast<std::ptrdiff_t>(member);
    if (host(member) == host(own)) {
      if (member < own) return count;  // to its host's first rank
      if (member > own) ++others_here;
    }
    if (leads) ++leaders;
    if (leads && member < own) ++leaders_before;
  }
  const std::int64_t between = leaders > 1 ? ring_all_reduce(count, leaders_before, leaders) : 0;
  return between + count * others_here;
}

}  // namespace

std::string_view reduce_algorithm_name(ReduceAlgorithm algorithm) {
  for (const AlgorithmName& name : kAlgorithmNames) {
    if (name.algorithm == algorithm) return name.text;
  }
  TRIREME_CHECK(false, "no algorithm {}", static_cast<int>(algorithm));
}

Result<ReduceAlgorithm> parse_reduce_algorithm(std::string_view text) {
  std::vector<std::string> known;
  std::string list;
  for (const AlgorithmName& name : kAlgorithmNames) {
    if (name.text == text) return name.algorithm;
    known.emplace_back(name.text);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  return Failure{.option = "layout.all_reduce",
                 .value = std::string(text),
                 .rule = "an algorithm for sums over ranks is one of " + list,
                 .nearest = nearest_word(text, known)};
}

std::string_view collective_name(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"send", "all-reduce", "reduce-scatter", "all-gather"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_own_of(ReduceAlgorithm algorithm, CollectiveKind kind) {
  switch (algorithm) {
    case ReduceAlgorithm::kOrdered:
    case ReduceAlgorithm::kLibrary:
      return false;
    case ReduceAlgorithm::kRing:
      return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
    case ReduceAlgorithm::kRecursiveDoubling:
    case ReduceAlgorithm::kHierarchical:
      return kind == CollectiveKind::kAllReduce;
  }
  TRIREME_CHECK(false, "no algorithm {}", static_cast<int>(algorithm));
}

std::int64_t sent_elements(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, int index, int size,
                           std::span<const int> host_of) {
  TRIREME_CHECK_GE(count, 0);
  TRIREME_CHECK(index >= 0 && index < size, "member {} of {}", index, size);
  if (size == 1) return 0;
  switch (kind) {
    case CollectiveKind::kSend:
      return count;
    case CollectiveKind::kReduceScatter:
      return scattered(count, index, size);
    case CollectiveKind::kAllGather:
      return gathered(count, index, size);
    case CollectiveKind::kAllReduce:
      break;
  }
  if (algorithm == ReduceAlgorithm::kRecursiveDoubling) return doubling_all_reduce(count, index, size);
  if (algorithm == ReduceAlgorithm::kHierarchical) {
    TRIREME_CHECK_EQ(std::ssize(host_of), size);
    return hierarchical_all_reduce(count, index, host_of);
  }
  return ring_all_reduce(count, index, size);
}

Bytes message_staging_bytes(std::int64_t count, std::int64_t element_bytes, int size, const SegmentOptions& options,
                            int staged_operations) {
  if (size == 1) return {};
  const std::int64_t share = divide_up(count, size);  // the longest
  const std::int64_t slots =
      std::min<std::int64_t>(options.window, divide_up(share, options.segment.count / element_bytes));
  const Bytes slot{std::min(options.segment.count, share * element_bytes)};
  return allocation_size(slot * slots * (size - 1)) * staged_operations;
}

Bytes staging_bytes(ReduceAlgorithm algorithm, CollectiveKind kind, std::int64_t count, std::int64_t element_bytes,
                    int size, const SegmentOptions& options) {
  if (size == 1 || !is_own_of(algorithm, kind)) return {};
  const int slots = algorithm == ReduceAlgorithm::kRecursiveDoubling ? options.window : 2 * options.window;
  const std::int64_t longest = algorithm == ReduceAlgorithm::kRing ? divide_up(count, size) : count;
  return Bytes{std::min(options.segment.count / element_bytes, longest) * element_bytes} * slots;
}

}  // namespace trireme
