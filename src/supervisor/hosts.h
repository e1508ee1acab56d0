#pragma once

// The hosts that a run may use. Pure but for reading the file.

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/error.h"

namespace trireme::supervisor {

struct Host {
  std::string name;
  int slots = 1;       // ranks that it takes
  bool spare = false;  // used only in the place of another; one that has taken it is no spare any more
  friend bool operator==(const Host&, const Host&) = default;
};

inline constexpr int kMostSlots = 1024;    // of a host
inline constexpr int kMostHosts = 65'536;  // all slots together are an int

// Entries end at a comma or a line's end, # starts a comment: "a:2, b:2, c:2:spare" or a line each, `name slots=2
// [spare]`. Slots not given are one. Refused (option "supervise.hosts") with the entry, the line of `what` ("": no line
// is named) and the rule: names that no host has, twice the same (whatever the case of their letters), slots below 1 or
// above kMostSlots, no host that is no spare, more than kMostHosts.
Result<std::vector<Host>> parse_hosts(std::string_view text, const std::string& what);
// What parse_hosts() reads as the same hosts, on one line.
std::string to_text(const std::vector<Host>& hosts);
// With a slash, or no colon at all.
bool names_a_file(std::string_view text);
Result<std::vector<Host>> load_hosts(Env& env, const std::string& text);

// Ranks of each host, in the order of their numbers: ranks fill one host after the other.
struct Placement {
  std::vector<Host> hosts;  // `slots`: the ranks that are there
  int ranks() const;
  const std::string& host_of(int rank) const;
  std::string text() const;  // "a:2 b:2"
  friend bool operator==(const Placement&, const Placement&) = default;
};
// The first `ranks` slots of these hosts, spares or not; hosts without a rank are left out. As many slots are there
// (CHECK).
Placement place(const std::vector<Host>& hosts, int ranks);

}  // namespace trireme::supervisor
