#include "model/parameters.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "model/flow.h"

namespace trireme::model {
namespace {

constexpr std::array kRoleNames = std::to_array<std::string_view>({
    "token embedding",
    "position embedding",
    "norm 1 weight",
    "norm 1 bias",
    "qkv weight",
    "qkv bias",
    "query weight",
    "query bias",
    "key weight",
    "key bias",
    "value weight",
    "value bias",
    "query norm weight",
    "key norm weight",
    "attention output weight",
    "attention output bias",
    "norm 2 weight",
    "norm 2 bias",
    "gate and up weight",
    "gate and up bias",
    "gate weight",
    "gate bias",
    "up weight",
    "up bias",
    "down weight",
    "down bias",
    "final norm weight",
    "final norm bias",
    "head weight",
});
static_assert(kRoleNames.size() == kRoleCount);

// What a unit's names begin with.
std::string prefix_of(const Config& config, int unit) {
  const bool gpt2 = config.family == Family::kGpt2;
  const std::string_view model = gpt2 ? "transformer." : "model.";
  if (unit_kind(config, unit) != UnitKind::kDecoder) return std::string(model);
  return fmt::format("{}{}.{}.", model, gpt2 ? "h" : "layers", unit - 1);
}

void add_unit(const Config& config, int unit, const UnitFlow& flow, std::vector<Parameter>& table) {
  const std::string prefix = prefix_of(config, unit);
  const auto begin = static_cast<std::ptrdiff_t>(table.size());
  for (const Operation& operation : flow.operations) {
    for (const Parameter& parameter : operation.parameters) {
      table.push_back(parameter);
      table.back().unit = unit;
      // The head's own weight lies beside the model, not in it.
      if (parameter.role != Role::kHeadWeight) table.back().name = prefix + parameter.name;
    }
  }
  std::sort(table.begin() + begin, table.end(), [](const Parameter& a, const Parameter& b) { return a.role < b.role; });
}

}  // namespace

UnitKind unit_kind(const Config& config, int unit) {
  TRIREME_CHECK(unit >= 0 && unit < unit_count(config), "unit {} of {}", unit, unit_count(config));
  if (unit == 0) return UnitKind::kEmbedding;
  return unit <= config.layers ? UnitKind::kDecoder : UnitKind::kHead;
}

int unit_count(const Config& config) { return static_cast<int>(config.layers) + 2; }

std::string unit_name(const Config& config, int unit) {
  switch (unit_kind(config, unit)) {
    case UnitKind::kEmbedding:
      return "embedding";
    case UnitKind::kDecoder:
      return fmt::format("layer {}", unit - 1);
    case UnitKind::kHead:
      return "head";
  }
  TRIREME_CHECK(false, "unit {}", unit);
}

std::string_view role_name(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::int64_t Parameter::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count = checked_multiply(count, extent);
  return count;
}

std::int64_t ParameterTable::total() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) count = checked_add(count, parameter.elements());
  return count;
}

int ParameterTable::find(int unit, Role role) const {
  if (role == Role::kHeadWeight && config.tied_embeddings) {
    return unit == unit_count(config) - 1 ? find(0, Role::kTokenEmbedding) : -1;
  }
  const std::pair<int, Role> wanted{unit, role};
  const auto key = [](const Parameter& parameter) { return std::pair<int, Role>{parameter.unit, parameter.role}; };
  const auto at = std::ranges::lower_bound(parameters, wanted, {}, key);
  if (at == parameters.end() || key(*at) != wanted) return -1;
  return static_cast<int>(at - parameters.begin());
}

int ParameterTable::find(std::string_view name) const {
  const auto at = std::ranges::find(parameters, name, &Parameter::name);
  return at == parameters.end() ? -1 : static_cast<int>(at - parameters.begin());
}

ParameterTable make_parameter_table(const Config& config) {
  ParameterTable table{.config = config, .parameters = {}};
  const std::vector<UnitFlow> flows = flows_by_class(config);
  for (int unit = 0; unit < unit_count(config); ++unit) {
    add_unit(config, unit, flows[static_cast<std::size_t>(flow_class(config, unit))], table.parameters);
  }
  return table;
}

}  // namespace trireme::model
