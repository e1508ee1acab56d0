#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/missing_unit.h"
#include "cluster/cluster.h"
#include "cluster/keys.h"

namespace trireme::cluster {
namespace {

constexpr std::string_view kSources = "sources";
constexpr std::array<std::string_view, 6> kTables = {"hosts",        "device",        "links",
                                                     "links.inside", "links.between", "storage"};

// At most 60 bytes of a text, cut between characters.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

std::string shown(const Json& value) {
  if (value.is_object()) return "a table";
  if (value.is_array()) return "a list";
  if (value.is_number() && !value.is_integer() && !std::isfinite(value.as_number())) return "not a finite number";
  return shortened(value.dump());
}

Failure wrong(const std::string& name, std::string value, std::string rule, std::string nearest = "") {
  return {.option = name, .value = std::move(value), .rule = std::move(rule), .nearest = std::move(nearest)};
}

// The legal values of a quantity, in its base unit, and the words for them.
struct Range {
  double least = 0;
  double most = 0;
  std::string_view words;
};
constexpr Range kBandwidth{1, 1e18, "must be from 1 B/s to 1000 PB/s"};
constexpr Range kFlopsRate{1, 1e21, "must be from 1 FLOP/s to 1000000 PFLOP/s"};
constexpr Range kMemory{1, 1e15, "must be from 1B to 1PB"};
constexpr Range kLatency{0, 60, "must be from 0s to 1min"};
constexpr Range kMtbf{1, 1e12, "must be from 1s to 1e12s; leave it out if it is not known"};
constexpr Range kPrice{1e-9, 1e9, "must be above 0 and at most 1e9; leave it out if it is not known"};

bool holds(const Range& range, double value) { return value >= range.least && value <= range.most; }

// Rows of the key table. `field` gives the member of a Cluster, const or not.

template <class Field>
Key text_key(std::string name, Field field) {
  const auto set = [name, field](Cluster& cluster, const Json& value) -> Status {
    constexpr std::size_t kLongest = 200;
    if (!value.is_string()) return wrong(name, shown(value), "must be text");
    if (value.as_string().empty() || value.as_string().size() > kLongest) {
      return wrong(name, shown(value), fmt::format("must have 1 to {} bytes", kLongest));
    }
    field(cluster) = value.as_string();
    return ok_status();
  };
  return {.name = name, .set = set, .get = [field](const Cluster& cluster) { return Json(field(cluster)); }};
}

template <class Field>
Key count_key(std::string name, Field field) {
  const auto set = [name, field](Cluster& cluster, const Json& value) -> Status {
    if (!value.is_integer()) return wrong(name, shown(value), "must be an integer");
    const std::int64_t n = value.as_integer();
    if (n < 1 || n > kMaximumCount) {
      return wrong(name, shown(value), fmt::format("must be an integer from 1 to {}", kMaximumCount),
                   fmt::format("{}", n < 1 ? 1 : kMaximumCount));
    }
    field(cluster) = static_cast<int>(n);
    return ok_status();
  };
  return {.name = name, .set = set, .get = [field](const Cluster& cluster) { return Json(field(cluster)); }};
}

// A text with a unit. parse: text to Result; number: what it gave, as a double in the base unit; print: value to text.
template <class Field, class Parse, class Number, class Print>
Key quantity_key(std::string name, Field field, Parse parse, Number number, Print print, const Range& range,
                 std::string example, bool required = true) {
  const auto set = [=](Cluster& cluster, const Json& value) -> Status {
    if (!value.is_string()) {
      return wrong(name, shown(value), "must be text with a unit", fmt::format("write it like \"{}\"", example));
    }
    const auto parsed = parse(value.as_string());
    if (!parsed) {
      Failure failure = parsed.failure();
      failure.option = name;
      failure.value = shown(value);
      return failure;
    }
    if (!holds(range, number(*parsed))) return wrong(name, shown(value), std::string(range.words));
    field(cluster) = *parsed;
    return ok_status();
  };
  const auto get = [=](const Cluster& cluster) {
    const bool given = required || number(field(cluster)) > 0;
    return given ? Json(print(field(cluster))) : Json();
  };
  return {.name = name, .required = required, .set = set, .get = get};
}

double plain(double value) { return value; }
double bytes_as_number(Bytes bytes) { return static_cast<double>(bytes.count); }
double seconds_as_number(Seconds seconds) { return seconds.count; }

template <class Field>
Key bandwidth_key(std::string name, Field field, bool required = true) {
  return quantity_key(std::move(name), field, parse_bytes_per_second, plain, bandwidth_text, kBandwidth, "400Gb/s",
                      required);
}
template <class Field>
Key flops_key(std::string name, Field field) {
  return quantity_key(std::move(name), field, parse_flops_per_second, plain, flops_rate_text, kFlopsRate,
                      "989.4 TFLOP/s");
}
template <class Field>
Key seconds_key(std::string name, Field field, const Range& range, std::string example, bool required = true) {
  return quantity_key(std::move(name), field, parse_seconds, seconds_as_number, duration_text, range,
                      std::move(example), required);
}

template <class Field>
Key price_key(std::string name, Field field) {
  const auto set = [name, field](Cluster& cluster, const Json& value) -> Status {
    if (!value.is_number()) return wrong(name, shown(value), "must be a number");
    if (!holds(kPrice, value.as_number())) return wrong(name, shown(value), std::string(kPrice.words));
    field(cluster) = value.as_number();
    return ok_status();
  };
  const auto get = [field](const Cluster& cluster) { return field(cluster) > 0 ? Json(field(cluster)) : Json(); };
  return {.name = name, .required = false, .set = set, .get = get};
}

std::vector<Key> make_keys() {
  return {
      text_key(
          "name", [](auto& c) -> auto& { return c.name; }),
      count_key(
          "hosts.count", [](auto& c) -> auto& { return c.hosts; }),
      count_key(
          "hosts.devices", [](auto& c) -> auto& { return c.devices_per_host; }),
      count_key(
          "hosts.cards", [](auto& c) -> auto& { return c.cards_per_host; }),
      text_key(
          "device.name", [](auto& c) -> auto& { return c.device.name; }),
      quantity_key(
          "device.memory", [](auto& c) -> auto& { return c.device.memory; }, parse_memory, bytes_as_number, bytes_text,
          kMemory, "80GB"),
      flops_key(
          "device.bf16", [](auto& c) -> auto& { return c.device.bf16_flops_per_s; }),
      flops_key(
          "device.fp32", [](auto& c) -> auto& { return c.device.fp32_flops_per_s; }),
      bandwidth_key(
          "device.memory_bandwidth", [](auto& c) -> auto& { return c.device.memory_bytes_per_s; }),
      seconds_key(
          "device.mtbf", [](auto& c) -> auto& { return c.device_mtbf; }, kMtbf, "50000h", false),
      price_key(
          "device.price_per_hour", [](auto& c) -> auto& { return c.device.price_per_hour; }),
      bandwidth_key(
          "links.inside.bandwidth", [](auto& c) -> auto& { return c.inside.bytes_per_s; }),
      seconds_key(
          "links.inside.latency", [](auto& c) -> auto& { return c.inside.latency; }, kLatency, "3us"),
      bandwidth_key(
          "links.between.bandwidth", [](auto& c) -> auto& { return c.between.bytes_per_s; }),
      seconds_key(
          "links.between.latency", [](auto& c) -> auto& { return c.between.latency; }, kLatency, "8us"),
      bandwidth_key(
          "storage.bandwidth", [](auto& c) -> auto& { return c.storage_bytes_per_s; }, false),
  };
}

const Key* find_key(std::string_view name) {
  const auto at = std::ranges::find(keys(), name, &Key::name);
  return at == keys().end() ? nullptr : &*at;
}

bool is_table(std::string_view name) { return std::ranges::find(kTables, name) != kTables.end(); }

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.push_back(key.name);
  return names;
}

// Of keys, or of tables where a table was given.
std::string nearest_name(const std::string& name, const Json& value) {
  if (!value.is_object()) return nearest_word(name, key_names());
  std::vector<std::string> tables(kTables.begin(), kTables.end());
  tables.emplace_back(kSources);
  return nearest_word(name, tables);
}

std::string joined(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

class Reader {
 public:
  explicit Reader(Cluster& cluster) : cluster_(cluster) {}

  // No key's path is longer than three names, so the recursion ends there however deep the document is.
  Status read_table(const Json& table, const std::string& path) {
    for (const auto& [name, value] : table.as_object()) {
      const std::string full = joined(path, name);
      Status status = ok_status();
      if (full == kSources) {
        status = value.is_object() ? read_sources(value, "") : wrong(full, shown(value), "must be a table");
      } else if (is_table(full)) {
        status = value.is_object() ? read_table(value, full) : wrong(full, shown(value), "must be a table");
      } else {
        status = read_key(full, value);
      }
      if (!status) return status;
    }
    return ok_status();
  }

  Status check_complete() const {
    for (const Key& key : keys()) {
      if (key.required && !given_.contains(key.name)) {
        return wrong(key.name, "", "the key is missing", fmt::format("add {}", key.name));
      }
    }
    if (cluster_.devices() > kMaximumCount) {
      return wrong(
          "hosts.count", fmt::format("{}", cluster_.hosts),
          fmt::format("hosts.count x hosts.devices ({}) must be at most {}", cluster_.devices_per_host, kMaximumCount),
          fmt::format("{}", kMaximumCount / cluster_.devices_per_host));
    }
    return ok_status();
  }

 private:
  Status read_key(const std::string& name, const Json& value) {
    const Key* key = find_key(name);
    if (key == nullptr)
      return wrong(shortened(name), shown(value), "unknown key", nearest_name(shortened(name), value));
    if (!given_.insert(name).second) return wrong(name, shown(value), "the key is given twice");
    return key->set(cluster_, value);
  }

  // `device.memory = "..."` (a table below the table) and `"device.memory" = "..."` are the same key here.
  Status read_sources(const Json& table, const std::string& path) {
    for (const auto& [name, value] : table.as_object()) {
      const std::string full = joined(path, name);
      const std::string option = fmt::format("{}.{}", kSources, shortened(full));
      if (is_table(full) && value.is_object()) {
        if (Status status = read_sources(value, full); !status) return status;
        continue;
      }
      if (find_key(full) == nullptr) {
        return wrong(option, shown(value), "a source belongs to a key, and this is none",
                     nearest_word(shortened(full), key_names()));
      }
      if (!value.is_string()) return wrong(option, shown(value), "must be text");
      if (!cluster_.sources.emplace(full, value.as_string()).second) {
        return wrong(option, shown(value), "the key is given twice");
      }
    }
    return ok_status();
  }

  Cluster& cluster_;
  std::set<std::string> given_;
};

// The member at a dotted path, made where it is missing.
Json& at_path(Json& document, std::string_view path) {
  Json* table = &document;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    table = &(*table)[path.substr(0, dot)];
    path.remove_prefix(dot + 1);
  }
  return (*table)[path];
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

Result<Cluster> parse_cluster(const Json& document, const std::string& what) {
  if (!document.is_object()) return wrong(what, std::string(document.type_name()), "must be a table of keys");
  Cluster cluster;
  Reader reader(cluster);
  Status status = reader.read_table(document, "");
  if (status) status = reader.check_complete();
  if (status) return cluster;
  Failure failure = status.failure();
  failure.option = fmt::format("{}: {}", what, failure.option);
  return failure;
}

std::string to_toml(const Cluster& cluster) {
  Json document = Json::object();
  for (const Key& key : keys()) {
    if (Json value = key.get(cluster); !value.is_null()) at_path(document, key.name) = std::move(value);
  }
  for (const auto& [key, source] : cluster.sources) document[kSources][key] = source;
  return trireme::to_toml(document);
}

}  // namespace trireme::cluster
