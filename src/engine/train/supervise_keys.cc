#include "engine/train/run_key_kinds.h"

namespace trireme::train {
namespace {

constexpr std::pair<Launcher, std::string_view> kLaunchers[] = {{Launcher::kAuto, "auto"},
                                                                {Launcher::kThreads, "threads"},
                                                                {Launcher::kMpirun, "mpirun"},
                                                                {Launcher::kSrun, "srun"},
                                                                {Launcher::kNone, "none"}};
constexpr std::pair<Stragglers, std::string_view> kStragglers[] = {{Stragglers::kReport, "report"},
                                                                   {Stragglers::kEvict, "evict"}};

constexpr TimeRange kPause{.least = {1e-3}, .most = {60}};  // doubled pauses end at the minute that is the most
constexpr TimeRange kWait{.least = {1e-3}, .most = {1e6}};
constexpr TimeRange kLong{.least = {1e-3}, .most = {1e9}};

template <class T, std::size_t N>
std::string_view word_of(const std::pair<T, std::string_view> (&words)[N], T value) {
  for (const auto& [one, word] : words) {
    if (one == value) return word;
  }
  return "";
}

template <class T, std::size_t N>
Result<T> value_of(const std::pair<T, std::string_view> (&words)[N], std::string_view text) {
  std::string known;
  for (const auto& [value, word] : words) {
    if (word == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  return wrong("", std::string(text), "must be one of its words", known);
}

}  // namespace

Result<Launcher> parse_launcher(std::string_view text) { return value_of(kLaunchers, text); }
std::string_view launcher_name(Launcher launcher) { return word_of(kLaunchers, launcher); }
Result<Stragglers> parse_stragglers(std::string_view text) { return value_of(kStragglers, text); }
std::string_view stragglers_name(Stragglers stragglers) { return word_of(kStragglers, stragglers); }

std::vector<RunKey> supervise_keys() {
  return {
      word_key<Launcher>(
          "supervise.launcher",
          "what starts the ranks: threads, mpirun, srun, none (this process, unsupervised), or auto: srun in a Slurm "
          "allocation (threads in a shell of one task and without srun), mpirun where hosts are given, else threads",
          [](RunConfig& c) -> Launcher& { return c.supervise.launcher; }, parse_launcher, launcher_name),
      text_key("supervise.hosts", "hosts and their ranks, \"a:8,b:8,c:8:spare\", or a file of them; empty: this host",
               [](RunConfig& c) -> std::string& { return c.supervise.hosts; }),
      flag_key("supervise.rehearsal", "hosts are names only, all of them this machine: to see what a loss would do",
               [](RunConfig& c) -> bool& { return c.supervise.rehearsal; }),
      text_key("supervise.mpirun", "words that start mpirun, with flags of your own",
               [](RunConfig& c) -> std::string& { return c.supervise.mpirun; }),
      text_key("supervise.srun", "words that start srun, with flags of your own",
               [](RunConfig& c) -> std::string& { return c.supervise.srun; }),
      text_key("supervise.address", "name or address of this host that the others reach it by; empty: its name",
               [](RunConfig& c) -> std::string& { return c.supervise.address; }),
      integer_key<std::int64_t>(
          "supervise.retries", "starts in a row that bring no new checkpoint, before the run ends with code 78",
          [](RunConfig& c) -> std::int64_t& { return c.supervise.retries; }, 0, 1000),
      time_key(
          "supervise.backoff", "pause before the second of them; doubles up to a minute",
          [](RunConfig& c) -> Seconds& { return c.supervise.backoff; }, kPause),
      time_key(
          "supervise.grace", "from a request to stop (SIGTERM, SIGUSR1, the stop file) until the save must be done",
          [](RunConfig& c) -> Seconds& { return c.supervise.grace; }, kWait),
      number_key(
          "supervise.hang_factor", "a hang is no advance for so many times the longest gap seen",
          [](RunConfig& c) -> double& { return c.supervise.hang_factor; }, 1.5, 1e6),
      time_key(
          "supervise.hang_floor", "and for no less than this",
          [](RunConfig& c) -> Seconds& { return c.supervise.hang_floor; }, kWait),
      word_key<Stragglers>(
          "supervise.stragglers", "a rank that is slow: report, or evict its host",
          [](RunConfig& c) -> Stragglers& { return c.supervise.stragglers; }, parse_stragglers, stragglers_name),
      number_key(
          "supervise.straggler_margin", "how much slower than its like a rank must be",
          [](RunConfig& c) -> double& { return c.supervise.straggler_margin; }, 1.01, 1e6),
      time_key(
          "supervise.straggler_span",
          "shorter steps are judged together until they take as long; it must be slow in 10 of 19 of these",
          [](RunConfig& c) -> Seconds& { return c.supervise.straggler_span; }, kWait),
      integer_key<std::int64_t>(
          "supervise.host_failures", "failures of one host within an hour that leave it out",
          [](RunConfig& c) -> std::int64_t& { return c.supervise.host_failures; }, 1, 1000),
      time_key(
          "supervise.cooldown", "before a host that was left out is tried again; doubles each time",
          [](RunConfig& c) -> Seconds& { return c.supervise.cooldown; }, kLong),
  };
}

}  // namespace trireme::train
