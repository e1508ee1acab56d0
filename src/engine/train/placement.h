#pragma once

// Which rank runs on which host, and what may not cross between them.

#include <string>
#include <vector>

#include "base/error.h"
#include "plan/layout.h"

namespace trireme::train {

// Law 3: a tensor-parallel group exchanges activations several times a layer, so it stays on one host unless the user
// has said that a slow link is meant. hosts: by rank. Names the axis, the ranks and the link.
Status check_placement(const plan::Layout& layout, const std::vector<std::string>& hosts, bool allow_slow_tp);

// Numbers of the hosts, by rank: 0 for the first one named, 1 for the next.
std::vector<int> host_numbers(const std::vector<std::string>& hosts);

// "host-a: ranks 0-3; host-b: ranks 4-7": for people.
std::string describe_hosts(const std::vector<std::string>& hosts);

}  // namespace trireme::train
