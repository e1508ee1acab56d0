#pragma once

// Tables and JSON that the sums about layouts share.

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/explain.h"

namespace trireme::cli {

std::string bytes_text(double bytes);                 // "112.00 GB"
std::string fits_text(double needed, double memory);  // "does not fit: 112.00 GB of 80.00 GB", "fits: ..."
void print_memory_classes(const planner::MemoryEstimate& memory);
// A share of the peak that counts the masked half of attention may be above 1: then it is none, and not said.
std::string mfu_text(double mfu);  // "48.8%", "none"
// The step times of a list, right-aligned to at least `least` letters.
std::vector<std::string> step_column(const std::vector<planner::Estimate>& estimates, std::size_t least);
void print_ranking(const std::vector<planner::Estimate>& best, double memory);
void print_explanation(const planner::Estimate& estimate, const planner::Problem& problem, double memory);
void print_changes(const std::vector<planner::Change>& changes, const planner::Estimate& from);
void print_part_differences(const planner::Estimate& asked, const planner::Estimate& best);

Json choice_json(const planner::Choice& choice);
Json memory_json(const planner::MemoryEstimate& memory);
Json estimate_json(const planner::Estimate& estimate, double memory);

}  // namespace trireme::cli
