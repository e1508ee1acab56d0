#include "planner/calibration.h"

#include <cmath>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "base/check.h"
#include "base/embedded_file.h"
#include "base/missing_unit.h"

namespace trireme::planner {

std::span<const EmbeddedFile> shipped_calibrations();  // examples/calibrations/: the default

namespace {

Failure refuse(const std::string& option, std::string value, std::string rule, std::string nearest) {
  return {.option = option, .value = std::move(value), .rule = std::move(rule), .nearest = std::move(nearest)};
}

// One key of a table: how it is read into the struct.
template <class T>
struct Key {
  std::string name;
  std::function<Status(const Json&, const std::string& option, T&)> read;
};

template <class T>
Key<T> number(std::string name, double T::*member, double least, double most) {
  return {name, [=](const Json& value, const std::string& option, T& out) -> Status {
            if (!value.is_number()) return refuse(option, value.dump(), "must be a number", "");
            const double x = value.as_number();
            if (!(x >= least && x <= most)) {
              return refuse(option, value.dump(), fmt::format("must lie between {} and {}", least, most), "");
            }
            out.*member = x;
            return ok_status();
          }};
}

template <class T>
Key<T> flag(std::string name, bool T::*member) {
  return {name, [=](const Json& value, const std::string& option, T& out) -> Status {
            if (!value.is_bool()) return refuse(option, value.dump(), "must be true or false", "");
            out.*member = value.as_bool();
            return ok_status();
          }};
}

template <class T, class Value>
Key<T> quantity(std::string name, Value T::*member, Result<Value> (*parse)(std::string_view)) {
  return {name, [=](const Json& value, const std::string& option, T& out) -> Status {
            if (!value.is_string()) return refuse(option, value.dump(), "must be a text with its unit", "");
            Result<Value> parsed = parse(value.as_string());
            if (!parsed) {
              Failure failure = parsed.failure();
              failure.option = option;
              return failure;
            }
            out.*member = *parsed;
            return ok_status();
          }};
}

template <class T, class Value>
Key<T> word(std::string name, Value T::*member, std::map<std::string, Value> words) {
  return {name, [=](const Json& value, const std::string& option, T& out) -> Status {
            std::vector<std::string> known;
            for (const auto& [text, meaning] : words) known.push_back(text);
            const auto found = value.is_string() ? words.find(value.as_string()) : words.end();
            if (found == words.end()) {
              return refuse(option, value.dump(), "is not known", fmt::format("{}", fmt::join(known, ", ")));
            }
            out.*member = found->second;
            return ok_status();
          }};
}

const std::vector<Key<DeviceConstants>>& device_keys() {
  using D = DeviceConstants;
  static const std::vector<Key<D>> keys{
      number("gemm_efficiency", &D::gemm_efficiency, 0.01, 1.0),
      number("gemm_half_extent", &D::gemm_half_extent, 0.0, 1e5),
      number("attention_efficiency", &D::attention_efficiency, 0.01, 1.0),
      number("memory_efficiency", &D::memory_efficiency, 0.01, 1.0),
      quantity("kernel_launch", &D::kernel_launch, parse_seconds),
      number("inside_efficiency", &D::inside_efficiency, 0.01, 1.0),
      number("between_efficiency", &D::between_efficiency, 0.01, 1.0),
  };
  return keys;
}

const std::vector<Key<FrameworkConstants>>& framework_keys() {
  using F = FrameworkConstants;
  static const std::vector<Key<F>> keys{
      word<F, ActivationSet>("activations", &F::activations,
                             {{"trireme", ActivationSet::kTrireme}, {"megatron", ActivationSet::kMegatron}}),
      flag("fused_attention", &F::fused_attention),
      flag("fp32_gradients", &F::fp32_gradients),
      flag("dropout", &F::dropout),
      number("activation_scale", &F::activation_scale, 0.1, 10.0),
      number("logit_bytes", &F::logit_bytes, 0.0, 64.0),
      number("kernels_per_layer", &F::kernels_per_layer, 0.0, 1e4),
      quantity("context", &F::context, parse_memory),
      number("fragmentation", &F::fragmentation, 0.0, 1.0),
      number("data_overlap", &F::data_overlap, 0.0, 1.0),
      number("tensor_overlap", &F::tensor_overlap, 0.0, 1.0),
      number("pipeline_overlap", &F::pipeline_overlap, 0.0, 1.0),
      number("step_overhead", &F::step_overhead, 0.0, 1.0),
      {"vocabulary_multiple",
       [](const Json& value, const std::string& option, F& out) -> Status {
         if (!value.is_integer() || value.as_integer() < 1 || value.as_integer() > 65536) {
           return refuse(option, value.dump(), "must be an integer between 1 and 65536", "");
         }
         out.vocabulary_multiple = value.as_integer();
         return ok_status();
       }},
      flag("scattered_sends", &F::scattered_sends),
      flag("resharded_after_forward", &F::resharded_after_forward),
      word<F, CollectiveAlgorithm>("reduce", &F::reduce,
                                   {{"ring", CollectiveAlgorithm::kRing},
                                    {"direct", CollectiveAlgorithm::kDirect},
                                    {"hierarchical", CollectiveAlgorithm::kHierarchical}}),
  };
  return keys;
}

template <class T>
Status read_table(const Json& table, const std::string& where, const std::vector<Key<T>>& keys, T& out) {
  if (!table.is_object()) return refuse(where, std::string(table.type_name()), "must be a table", "");
  for (const auto& [key, value] : table.as_object()) {
    const Key<T>* found = nullptr;
    std::vector<std::string> names;
    for (const Key<T>& known : keys) {
      names.push_back(known.name);
      if (known.name == key) found = &known;
    }
    const std::string option = where + "." + key;
    if (!found) return refuse(option, value.dump(), "is not known", nearest_word(key, names));
    if (Status status = found->read(value, option, out); !status) return status;
  }
  return ok_status();
}

template <class T>
Status read_tables(const Json& document, const std::string& what, const std::string& section,
                   const std::vector<Key<T>>& keys, const std::string& parent, std::map<std::string, T>& out) {
  const Json* tables = document.find(section);
  if (!tables) return ok_status();
  if (!tables->is_object()) return refuse(what + ": " + section, tables->dump(), "must be a table of tables", "");
  for (const auto& [name, table] : tables->as_object()) {
    const auto start = out.contains(name) ? out.find(name) : out.find(parent);
    T constants = start == out.end() ? T{} : start->second;
    const std::string where = fmt::format("{}: {}.{}", what, section, name);
    if (Status status = read_table(table, where, keys, constants); !status) return status;
    out[name] = constants;
  }
  return ok_status();
}

}  // namespace

const DeviceConstants& Calibration::device(const std::string& name) const {
  const auto found = devices.find(name);
  return found != devices.end() ? found->second : devices.at("default");
}

Result<FrameworkConstants> Calibration::framework(const std::string& name) const {
  if (const auto found = frameworks.find(name); found != frameworks.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [text, constants] : frameworks) known.push_back(text);
  return refuse("framework", name, "the calibration has none of this name", fmt::format("{}", fmt::join(known, ", ")));
}

Result<Calibration> parse_calibration(const Json& document, const std::string& what, Calibration base) {
  if (!document.is_object()) return refuse(what, std::string(document.type_name()), "must be a table", "");
  for (const auto& [key, value] : document.as_object()) {
    if (key != "device" && key != "framework") {
      return refuse(what + ": " + key, value.dump(), "is not known", nearest_word(key, {"device", "framework"}));
    }
  }
  if (Status s = read_tables(document, what, "device", device_keys(), "default", base.devices); !s) return s.failure();
  if (Status s = read_tables(document, what, "framework", framework_keys(), "trireme", base.frameworks); !s) {
    return s.failure();
  }
  return base;
}

const Calibration& default_calibration() {
  static const Calibration calibration = [] {
    const Json document = parse_toml(shipped_calibrations().front().text, "the default calibration").or_throw();
    return parse_calibration(document, "the default calibration", {}).or_throw();
  }();
  return calibration;
}

Result<Calibration> load_calibration(Env& env, const std::string& path) {
  if (path.empty()) return default_calibration();
  const Result<Json> document = parse_toml(env.read_file(path), path);
  if (!document) return document.failure();
  return parse_calibration(*document, path, default_calibration());
}

std::string to_toml(const std::string& device, const DeviceConstants& constants) {
  Json document = Json::object();
  document["device"][device] =
      Json::object({{"gemm_efficiency", constants.gemm_efficiency},
                    {"gemm_half_extent", constants.gemm_half_extent},
                    {"attention_efficiency", constants.attention_efficiency},
                    {"memory_efficiency", constants.memory_efficiency},
                    {"kernel_launch", fmt::format("{}us", constants.kernel_launch.count * 1e6)},
                    {"inside_efficiency", constants.inside_efficiency},
                    {"between_efficiency", constants.between_efficiency}});
  return trireme::to_toml(document);
}

}  // namespace trireme::planner
