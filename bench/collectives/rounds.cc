#include "collectives/rounds.h"

#include <cstring>
#include <thread>

#include <fmt/core.h>

namespace trireme::bench {
namespace {

std::string size_text(std::int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

// GB/s, or microseconds where the time and not the rate is of interest.
std::string speed_text(std::int64_t bytes, double seconds) {
  if (seconds == 0) return "-";
  if (bytes < (1 << 20)) return fmt::format("{:.1f} us", 1e6 * seconds);
  return fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / seconds / 1e9);
}

// Whether a round reads and writes memory: what is smaller may stay in the caches.
bool is_large(std::int64_t bytes) { return bytes >= (64 << 20); }

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all-reduce";
    case Kind::kAllGather:
      return "all-gather";
    case Kind::kReduceScatter:
      return "reduce-scatter";
  }
  return "";
}

CopyRate measure_copies() {
  constexpr std::size_t kBytes = 256 << 20;
  constexpr int kRounds = 7;
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes, std::byte{2});
  std::vector<double> one;
  std::vector<double> two;
  for (int round = 0; round < kRounds; ++round) {
    Clock::time_point begin = Clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    one.push_back(seconds_since(begin));
    begin = Clock::now();
    std::thread other([&] { std::memcpy(to.data(), from.data(), kBytes / 2); });
    std::memcpy(to.data() + kBytes / 2, from.data() + kBytes / 2, kBytes / 2);
    other.join();
    two.push_back(seconds_since(begin));
  }
  return {kBytes / median(one), kBytes / median(two)};
}

double limit_s(Kind kind, std::int64_t bytes, int ranks, const CopyRate& copies) {
  const double traffic = 2 * copies.two_threads;
  const double buffers = kind == Kind::kAllReduce ? 2.0 * ranks : kind == Kind::kAllGather ? ranks : ranks + 1.0;
  return buffers * static_cast<double>(bytes) / traffic;
}

std::string table_of(const std::string& mode, int ranks, const CopyRate& copies, const std::vector<Row>& rows) {
  std::string text = fmt::format("{}, {} ranks; memcpy of 256 MiB: {:.1f} GB/s by one thread, {:.1f} GB/s by two\n",
                                 mode, ranks, copies.one_thread / 1e9, copies.two_threads / 1e9);
  text += fmt::format("{:>8}  {:<14} {:>12} {:>12} {:>7} {:>17}\n", "size", "operation", "ours", "library", "ratio",
                      "of memory's limit");
  for (const Row& row : rows) {
    text += fmt::format("{:>8}  {:<14} {:>12} {:>12} {:>7} {:>17}\n", size_text(row.bytes), name_of(row.kind),
                        speed_text(row.bytes, row.ours_s), speed_text(row.bytes, row.library_s),
                        row.library_s > 0 ? fmt::format("{:.2f}", row.library_s / row.ours_s) : "-",
                        is_large(row.bytes)
                            ? fmt::format("{:.0f}%", 100 * limit_s(row.kind, row.bytes, ranks, copies) / row.ours_s)
                            : "-");
  }
  return text;
}

std::string json_of(const std::string& mode, int ranks, const CopyRate& copies, const std::vector<Row>& rows) {
  std::string text = fmt::format(
      R"({{"mode": "{}", "ranks": {}, "copy_one_thread_bytes_per_s": {:.0f}, "copy_two_threads_bytes_per_s": {:.0f}, )"
      R"("results": [)",
      mode, ranks, copies.one_thread, copies.two_threads);
  for (const Row& row : rows) {
    if (&row != &rows.front()) text += ", ";
    text += fmt::format(R"({{"operation": "{}", "buffer_bytes": {}, "ours_s": {:.9f})", name_of(row.kind), row.bytes,
                        row.ours_s);
    if (row.library_s > 0) text += fmt::format(R"(, "library_s": {:.9f})", row.library_s);
    if (is_large(row.bytes)) text += fmt::format(R"(, "limit_s": {:.9f})", limit_s(row.kind, row.bytes, ranks, copies));
    text += "}";
  }
  return text + "]}\n";
}

}  // namespace trireme::bench
