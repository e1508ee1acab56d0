#include "supervisor/hosts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/words.h"

namespace trireme::supervisor {
namespace {

constexpr std::size_t kLongestName = 253;  // of a domain name
constexpr std::string_view kForms = "name:2, name:2:spare, or name slots=2 [spare]";

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// A first character of another kind would be an option of what starts the ranks.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && is_letter_or_digit(text.front()) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_'; });
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// An entry of any file at all, for a terminal.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string result(text.substr(0, kMost));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kMost ? result + "..." : result;
}

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots) return std::nullopt;
  return slots;
}

struct Refusal {
  std::string rule;
  std::string nearest;
};

// What an entry says of a host beside its name.
class Entry {
 public:
  // "2", "spare": behind a colon. "slots=2", "spare": a word. What is wrong with it, if anything.
  std::optional<Refusal> take(std::string_view part, bool word) {
    constexpr std::string_view kSlots = "slots=";
    if (part == "spare") {
      if (host.spare) return Refusal{"spare is said twice", ""};
      host.spare = true;
      return std::nullopt;
    }
    if (word) {
      if (!part.starts_with(kSlots))
        return Refusal{fmt::format("\"{}\" is not known", shown(part)), std::string(kForms)};
      part.remove_prefix(kSlots.size());
    }
    if (slots_known_) return Refusal{"its slots are said twice", ""};
    const std::optional<int> slots = parse_slots(part);
    if (!slots) {
      return Refusal{fmt::format("slots must be a whole number between 1 and {}", kMostSlots), std::string(kForms)};
    }
    host.slots = *slots;
    slots_known_ = true;
    return std::nullopt;
  }

  Host host;

 private:
  bool slots_known_ = false;
};

std::optional<Refusal> read_entry(const std::vector<std::string_view>& words, Host& host) {
  Entry entry;
  const std::vector<std::string_view> parts = split(words.front(), ':');
  if (!is_name(parts.front())) {
    return Refusal{"a host's name has letters, digits, '-', '.' and '_', a letter or digit first", std::string(kForms)};
  }
  entry.host.name = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (std::optional<Refusal> refusal = entry.take(parts[i], false)) return refusal;
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (std::optional<Refusal> refusal = entry.take(words[i], true)) return refusal;
  }
  host = std::move(entry.host);
  return std::nullopt;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view text, const std::string& what) {
  std::vector<Host> hosts;
  std::set<std::string> names;
  int line = 0;
  for (std::string_view rest_of_line : split(text, '\n')) {
    ++line;
    for (std::string_view part : split(rest_of_line.substr(0, rest_of_line.find('#')), ',')) {
      const std::vector<std::string_view> words = words_of(part);
      if (words.empty()) continue;
      Host host;
      std::optional<Refusal> refusal = read_entry(words, host);
      if (!refusal && !names.insert(lower(host.name)).second) refusal = Refusal{"this host is named twice", ""};
      if (!refusal && hosts.size() == kMostHosts) {
        refusal = Refusal{fmt::format("at most {} hosts are possible", kMostHosts), ""};
      }
      if (refusal) {
        const std::size_t begin = static_cast<std::size_t>(words.front().data() - part.data());
        const std::size_t end = static_cast<std::size_t>(words.back().data() - part.data()) + words.back().size();
        return Failure{.option = "supervise.hosts",
                       .value = shown(part.substr(begin, end - begin)),
                       .rule = what.empty() ? refusal->rule : fmt::format("{}, line {}: {}", what, line, refusal->rule),
                       .nearest = refusal->nearest};
      }
      hosts.push_back(std::move(host));
    }
  }
  if (std::ranges::all_of(hosts, &Host::spare)) {
    return Failure{.option = "supervise.hosts",
                   .value = what,
                   .rule = hosts.empty() ? "no host is named" : "all hosts are spares",
                   .nearest = std::string(kForms)};
  }
  return hosts;
}

std::string to_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : ",", host.name, host.slots, host.spare ? ":spare" : "");
  }
  return text;
}

bool names_a_file(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.find(':') == std::string_view::npos;
}

Result<std::vector<Host>> load_hosts(Env& env, const std::string& text) {
  if (!names_a_file(text)) return parse_hosts(text, "");
  if (!env.exists(text) || env.is_directory(text)) {
    return Failure{.option = "supervise.hosts",
                   .value = text,
                   .rule = env.exists(text) ? "is a directory" : "there is no such file",
                   .nearest = "the path of a hosts file, or a list of hosts such as a:2,b:2"};
  }
  return parse_hosts(env.read_file(text), text);
}

int Placement::ranks() const {
  int sum = 0;
  for (const Host& host : hosts) sum += host.slots;
  return sum;
}

const std::string& Placement::host_of(int rank) const {
  TRIREME_CHECK(rank >= 0, "rank {}", rank);
  int first = 0;
  for (const Host& host : hosts) {
    if (rank < first + host.slots) return host.name;
    first += host.slots;
  }
  TRIREME_CHECK(false, "rank {} of {}", rank, first);
}

std::string Placement::text() const {
  std::string result;
  for (const Host& host : hosts) result += fmt::format("{}{}:{}", result.empty() ? "" : " ", host.name, host.slots);
  return result;
}

Placement place(const std::vector<Host>& hosts, int ranks) {
  Placement placement;
  int left = ranks;
  for (const Host& host : hosts) {
    const int here = std::min(left, host.slots);
    if (here <= 0) continue;
    placement.hosts.push_back(host);
    placement.hosts.back().slots = here;
    left -= here;
  }
  TRIREME_CHECK(left == 0, "{} ranks, {} without a slot", ranks, left);
  return placement;
}

}  // namespace trireme::supervisor
