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

// The ranks that share a machine with `rank`, itself too: those of its host, or, in a rehearsal, whose hosts are names
// of one machine, all. host_of: by rank, as host_numbers gives them.
std::vector<int> ranks_of_machine(const std::vector<int>& host_of, int rank, bool rehearsal);

// "host-a: ranks 0-3; host-b: ranks 4-7": for people.
std::string describe_hosts(const std::vector<std::string>& hosts);

// "tensor groups stay on a host; pipeline groups cross hosts", of the axes that have groups; "" where there is one
// host.
std::string describe_crossings(const plan::Layout& layout, const std::vector<std::string>& hosts);

}  // namespace trireme::train
