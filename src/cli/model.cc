#include <fmt/format.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/not_computed.h"
#include "model/counts.h"
#include "model/parameters.h"

namespace trireme::cli {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string split_text(const model::Parameter& parameter) {
  if (!parameter.split.split()) return "replicated";
  std::string pieces;
  for (const model::SplitBlock& block : parameter.split.blocks) {
    const bool heads = block.kind == model::PieceKind::kHeads || block.kind == model::PieceKind::kKvHeads;
    pieces += fmt::format("{}{} {}", pieces.empty() ? "" : " + ", block.count,
                          heads                                         ? "heads"
                          : block.kind == model::PieceKind::kVocabulary ? "rows"
                                                                        : "features");
  }
  return fmt::format("dim {}: {}", parameter.split.dimension, pieces);
}

Json to_json(const model::ParameterTable& table) {
  Json tensors = Json::array();
  for (const model::Parameter& parameter : table.parameters) {
    Json shape = Json::array();
    for (std::int64_t extent : parameter.shape) shape.push_back(extent);
    tensors.push_back(Json::object({{"name", parameter.name},
                                    {"shape", shape},
                                    {"unit", model::unit_name(table.config, parameter.unit)},
                                    {"elements", parameter.elements()},
                                    {"split_dimension", parameter.split.dimension},
                                    {"weight_decay", parameter.decay},
                                    {"tied_to_head", parameter.also_used_by_head}}));
  }
  return Json::object({{"model_type", model::family_name(table.config.family)},
                       {"parameters", table.total()},
                       {"active_parameters", table.total()},
                       {"layers", table.config.layers},
                       {"tensors", tensors}});
}

void print_table(const model::ParameterTable& table, bool all) {
  const model::Config& c = table.config;
  fmt::print("{}: {} layers, hidden {}, {} heads ({} key/value) of {}, ffn {}, vocabulary {}{}\n",
             model::family_name(c.family), c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.ffn, c.vocabulary,
             c.tied_embeddings ? ", tied embeddings" : "");
  fmt::print("\n{:<58} {:>18} {:>16}  {:<28} {}\n", "tensor", "shape", "elements", "tensor-parallel cut", "decay");
  const int units = model::unit_count(c);
  for (const model::Parameter& parameter : table.parameters) {
    const bool repeated = parameter.unit >= 2 && parameter.unit < units - 1;
    if (repeated && !all) continue;
    fmt::print("{:<58} {:>18} {:>16}  {:<28} {}{}\n", parameter.name, shape_text(parameter.shape),
               format_exact(parameter.elements()), split_text(parameter), parameter.decay ? "yes" : "no",
               parameter.also_used_by_head ? "  (also the head)" : "");
  }
  if (!all && units > 3) {
    fmt::print("... layers 1 to {} have the tensors of layer 0 (--all lists them)\n", c.layers - 1);
  }
  fmt::print("\nparameters: {}\n", format_exact(table.total()));
}

// A mixture of experts has no table yet.
void print_counts(const std::string& model_type, const model::ParameterCounts& counts, bool json) {
  if (json) {
    fmt::print("{}\n", Json::object({{"model_type", model_type},
                                     {"parameters", counts.total},
                                     {"active_parameters", counts.active},
                                     {"embedding_parameters", counts.embedding},
                                     {"routed_expert_parameters", counts.routed_experts}})
                           .dump(2));
    return;
  }
  fmt::print("{}: a mixture of experts; layouts of mixture-of-experts models are not planned yet\n\n", model_type);
  fmt::print("{:<22} {:>18}\n", "parameters", format_exact(counts.total));
  fmt::print("{:<22} {:>18}\n", "active for a token", format_exact(counts.active));
  fmt::print("{:<22} {:>18}\n", "in routed experts", format_exact(counts.routed_experts));
  fmt::print("{:<22} {:>18}\n", "in the embedding", format_exact(counts.embedding));
  if (counts.corrections > 0) fmt::print("{:<22} {:>18}\n", "routers' biases", format_exact(counts.corrections));
}

void print_model(const Json& config, const std::string& what, bool json, bool all) {
  if (model::is_mixture_of_experts(config)) {
    print_counts(config.find("model_type")->as_string(), model::count_parameters(config, what).or_throw(), json);
    return;
  }
  const model::ConfigReading reading = model::read_config(config, what).or_throw();
  const model::ParameterTable table = model::make_parameter_table(reading.config);
  note_not_computed(reading);
  if (json) {
    Json answer = to_json(table);
    answer["training_refuses"] = not_computed_json(reading);
    fmt::print("{}\n", answer.dump(2));
  } else {
    print_table(table, all);
  }
}

}  // namespace

void declare_model(Command& root, Env& env) {
  struct Options {
    std::string path;
    bool json = false;
    bool all = false;
  };
  auto options = std::make_shared<Options>();
  Command& command = root.command("model", "Print a model's parameter table and its exact count");
  command.positional("config", options->path, "config.json, or a directory that holds one", true);
  command.flag("json", options->json, "one JSON object on standard output");
  command.flag("all", options->all, "every layer's tensors");
  command.examples("  trireme model examples/models/llama-3-8b\n  trireme model config.json --json");
  command.run([options, &env] {
    print_model(model::load_config_document(env, options->path).or_throw(), options->path, options->json, options->all);
    return ExitCode::kDone;
  });
}

}  // namespace trireme::cli
