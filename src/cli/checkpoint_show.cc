#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/find.h"
#include "checkpoint/reader.h"
#include "cli/checkpoint_commands.h"
#include "model/parameters.h"

namespace trireme::cli {
namespace {

using checkpoint::FoundCheckpoint;
using checkpoint::Manifest;
using checkpoint::Presence;

std::string_view presence_name(Presence presence) {
  switch (presence) {
    case Presence::kPartial:
      return "partial";
    case Presence::kAside:
      return "set aside";
    case Presence::kComplete:
      break;
  }
  return "complete";
}

// A line of the list: what the name says and, of all but partial ones, what the manifest says.
struct ListedCheckpoint {
  FoundCheckpoint found;
  Manifest manifest = {};
  std::string damage = {};  // why there is no manifest
  bool has_manifest = false;
};

ListedCheckpoint look_at(Env& env, const FoundCheckpoint& found) {
  ListedCheckpoint listed{.found = found};
  if (found.presence == Presence::kPartial) return listed;
  Result<Manifest> manifest = checkpoint::Reader::open_manifest(env, found.path);
  listed.has_manifest = manifest.ok();
  if (manifest.ok()) {
    listed.manifest = std::move(manifest).value();
  } else {
    listed.damage = manifest.failure().sentence();
  }
  return listed;
}

std::int64_t step_of(const ListedCheckpoint& listed) {
  return listed.has_manifest ? listed.manifest.progress.step : listed.found.step;
}

Json to_json(const ListedCheckpoint& listed) {
  Json object = Json::object({{"path", listed.found.path},
                              {"step", step_of(listed)},
                              {"state", presence_name(listed.found.presence)},
                              {"damage", listed.damage.empty() ? Json() : Json(listed.damage)}});
  if (!listed.has_manifest) return object;
  object["saved_at"] = listed.manifest.saved_at;
  object["reason"] = listed.manifest.reason;
  object["layout"] = listed.manifest.layout;
  object["samples"] = listed.manifest.progress.samples;
  object["tokens"] = listed.manifest.progress.tokens;
  object["bytes"] = listed.manifest.bytes();
  return object;
}

void print(const std::vector<ListedCheckpoint>& all) {
  std::size_t width = std::string_view("layout").size();
  for (const ListedCheckpoint& listed : all) width = std::max(width, listed.manifest.layout.size());
  const auto line = [&](const auto& step, std::string_view saved_at, std::string_view size, std::string_view reason,
                        std::string_view state, std::string_view layout, std::string_view path) {
    fmt::print("{:>10}  {:<20} {:>12}  {:<9} {:<9} {:<{}}  {}\n", step, saved_at, size, reason, state, layout, width,
               path);
  };
  line("step", "saved at", "size", "reason", "state", "layout", "path");
  for (const ListedCheckpoint& listed : all) {
    const Manifest& m = listed.manifest;
    line(step_of(listed), m.saved_at, listed.has_manifest ? format_bytes(Bytes{m.bytes()}) : "", m.reason,
         listed.damage.empty() ? presence_name(listed.found.presence) : "damaged", m.layout, listed.found.path);
  }
  for (const ListedCheckpoint& listed : all) {
    if (!listed.damage.empty()) fmt::print(stderr, "{}\n", listed.damage);
  }
}

ExitCode run_ls(Env& env, const std::string& path, bool json) {
  std::vector<ListedCheckpoint> all;
  for (const FoundCheckpoint& found : checkpoint::list_checkpoints(env, path).or_throw()) {
    all.push_back(look_at(env, found));
  }
  if (json) {
    Json list = Json::array();
    for (const ListedCheckpoint& listed : all) list.push_back(to_json(listed));
    fmt::print("{}\n", Json::object({{"checkpoints", std::move(list)}}).dump(2));
  } else if (!all.empty()) {
    print(all);
  }
  if (all.empty()) {
    fmt::print(stderr, "{} holds no checkpoints; name a run directory, or a directory of checkpoints\n", path);
  }
  return ExitCode::kDone;
}

struct StateSum {
  plan::StateKind kind = plan::StateKind::kWeight;
  std::int64_t tensors = 0, slices = 0, elements = 0, bytes = 0;
};

std::vector<StateSum> sums_of(const Manifest& manifest) {
  std::vector<StateSum> sums;
  for (const plan::StateKind kind : plan::kStateKinds) sums.push_back({.kind = kind});
  for (const checkpoint::StoredState& tensor : manifest.tensors) {
    StateSum& sum = sums[static_cast<std::size_t>(tensor.kind)];
    const std::int64_t elements = tensor.rows() * tensor.columns();
    sum.tensors += 1;
    sum.slices += std::ssize(tensor.slices);
    sum.elements += elements;
    sum.bytes += elements * dtype_size(tensor.dtype);
  }
  return sums;
}

Json to_json(const std::string& path, const Manifest& m) {
  Json files = Json::array(), states = Json::array(), model_files = Json::array();
  for (const checkpoint::StoredModelFile& file : m.model_files) model_files.push_back(file.name);
  for (const checkpoint::StoredFile& file : m.files) {
    files.push_back(Json::object({{"name", file.name}, {"bytes", file.bytes}}));
  }
  for (const StateSum& sum : sums_of(m)) {
    states.push_back(Json::object({{"state", plan::state_kind_name(sum.kind)},
                                   {"tensors", sum.tensors},
                                   {"slices", sum.slices},
                                   {"elements", sum.elements},
                                   {"bytes", sum.bytes}}));
  }
  return Json::object({{"path", path},
                       {"progress", checkpoint::to_json(m.progress)},
                       {"saved_at", m.saved_at},
                       {"reason", m.reason},
                       {"program", m.program},
                       {"layout", m.layout},
                       {"parameters", sums_of(m)[0].elements},
                       {"model", m.model},
                       {"model_files", std::move(model_files)},
                       {"run", m.run},
                       {"data", m.data},
                       {"scaler", m.scaler},
                       {"states", std::move(states)},
                       {"files", std::move(files)},
                       {"bytes", m.bytes()}});
}

void print_line(std::string_view name, const std::string& value) { fmt::print("{:<18} {}\n", name, value); }

std::string model_text(const Json& document, std::int64_t parameters) {
  const std::string count = fmt::format("{} parameters", format_exact(parameters));
  const auto config = model::parse_config(document, "model");
  if (!config) return count;
  return fmt::format("{}, {}, {} layers, hidden {}, {} heads, vocabulary {}{}", model::family_name(config->family),
                     count, config->layers, config->hidden, config->heads, config->vocabulary,
                     config->tied_embeddings ? ", tied embeddings" : "");
}

std::string trained_text(const checkpoint::Progress& progress) {
  if (progress.incarnation == 0) return "not yet";
  return fmt::format("{} in {} start{}, {} of them after a failure", format_seconds(Seconds{progress.elapsed_s}),
                     progress.incarnation, progress.incarnation == 1 ? "" : "s", progress.failures);
}

std::string scalar_text(const Json& value) { return value.is_string() ? value.as_string() : value.dump(); }

// The keys of a run that say what was trained, of those that it has.
void print_run(const Json& run) {
  const std::pair<const char*, std::vector<const char*>> shown[] = {
      {"model", {"config", "weights"}},
      {"data", {"train", "validation"}},
      {"train", {"steps", "seed", "sequence", "global_batch", "micro_batch"}},
      {"optimizer", {"learning_rate", "min_learning_rate", "warmup_steps", "decay", "weight_decay", "clip_norm"}},
      {"out", {"directory"}}};
  for (const auto& [section, keys] : shown) {
    const Json* table = run.find(section);
    if (table == nullptr) continue;
    std::string text;
    for (const char* key : keys) {
      const Json* value = table->find(key);
      if (value == nullptr || *value == Json("")) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, scalar_text(*value));
    }
    if (!text.empty()) print_line(fmt::format("run.{}", section), text);
  }
}

void print(const std::string& path, const Manifest& m) {
  const std::vector<StateSum> sums = sums_of(m);
  fmt::print("{}\n\n", path);
  print_line("step", format_exact(m.progress.step));
  print_line("samples",
             fmt::format("{} ({} tokens)", format_exact(m.progress.samples), format_exact(m.progress.tokens)));
  print_line("trained for", trained_text(m.progress));
  print_line("saved", fmt::format("{} ({})", m.saved_at, m.reason));
  print_line("program", m.program);
  print_line("layout", m.layout);
  print_line("model", model_text(m.model, sums[0].elements));
  print_run(m.run);
  for (const auto& [key, value] : m.data.as_object()) print_line("data." + key, scalar_text(value));
  if (!m.scaler.is_null()) print_line("loss scale", m.scaler.dump());
  fmt::print("\n{:<18} {:>8} {:>10} {:>18} {:>12}\n", "state", "tensors", "slices", "elements", "size");
  StateSum all;
  for (const StateSum& sum : sums) {
    fmt::print("{:<18} {:>8} {:>10} {:>18} {:>12}\n", plan::state_kind_name(sum.kind), format_exact(sum.tensors),
               format_exact(sum.slices), format_exact(sum.elements), format_bytes(Bytes{sum.bytes}));
    all.tensors += sum.tensors;
    all.slices += sum.slices;
    all.elements += sum.elements;
    all.bytes += sum.bytes;
  }
  fmt::print("{:<18} {:>8} {:>10} {:>18} {:>12}\n\n", "all", format_exact(all.tensors), format_exact(all.slices),
             format_exact(all.elements), format_bytes(Bytes{all.bytes}));
  fmt::print("{:<32} {:>12}\n", "file", "size");
  for (const checkpoint::StoredFile& file : m.files) {
    fmt::print("{:<32} {:>12}\n", file.name, format_bytes(Bytes{file.bytes}));
  }
}

struct Options {
  std::string path = ".";
  bool json = false;
};

}  // namespace

void declare_checkpoint_ls(Command& parent, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command = parent.command("ls", "List the checkpoints of a run, newest first");
  command.positional("path", options->path, "a run, or a directory of checkpoints (default: this directory)", false);
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme checkpoint ls runs/one");
  command.run([options, &env] { return run_ls(env, options->path, options->json); });
}

void declare_checkpoint_show(Command& parent, Env& env) {
  auto options = std::make_shared<Options>();
  Command& command = parent.command("show", "What a checkpoint holds and where its run stood");
  command.positional("checkpoint", options->path, kCheckpointHelp, true);
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme checkpoint show runs/one\n"
      "  trireme checkpoint show runs/one/checkpoints/step-00000040 --json");
  command.run([options, &env] {
    const std::string path = chosen_checkpoint(env, options->path);
    const Manifest manifest = checkpoint::Reader::open_manifest(env, path).or_throw();
    if (options->json) {
      fmt::print("{}\n", to_json(path, manifest).dump(2));
    } else {
      print(path, manifest);
    }
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
