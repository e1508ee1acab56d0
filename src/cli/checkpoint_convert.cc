#include <fmt/format.h>

#include "base/missing_unit.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/reader.h"
#include "cli/checkpoint_commands.h"
#include "cli/plan_values.h"
#include "engine/train/run_progress.h"
#include "plan/memory.h"

namespace trireme::cli {
namespace {

struct ExportArguments {
  std::string path, out, shard_size, dtype = "fp32", tokenizer;
  bool json = false;
};

// In the words of train.precision; those of safetensors and config.json are understood.
DType dtype_of(const std::string& text) {
  if (text == "f32" || text == "float32") return DType::kF32;
  if (text == "bfloat16") return DType::kBF16;
  if (text == "f16" || text == "float16") return DType::kF16;
  const Result<DType> known = plan::parse_precision(text);
  if (!known) refuse("--dtype", text, "is no type that weights are written in", known.failure().nearest);
  return *known;
}

void require_out(const std::string& out, const std::string& example) {
  if (out.empty()) refuse("--out", "", "is needed", "write it like --out " + example);
}

ExitCode run_export(Env& env, const ExportArguments& arguments) {
  require_out(arguments.out, "model");
  checkpoint::ExportOptions options{.dtype = dtype_of(arguments.dtype), .tokenizer = arguments.tokenizer};
  if (!arguments.shard_size.empty()) {
    options.shard_size =
        Bytes{static_cast<std::int64_t>(positive_bytes("--shard-size", arguments.shard_size, "5GB", kLeastBareMemory))};
  }
  if (!options.tokenizer.empty() && (!env.exists(options.tokenizer) || env.is_directory(options.tokenizer))) {
    refuse("--tokenizer", options.tokenizer, "there is no such file", "name a tokenizer.json");
  }
  const auto reader = checkpoint::Reader::open(env, chosen_checkpoint(env, arguments.path)).or_throw();
  checkpoint::ExportReport report;
  {
    ProgressLine line(env, "exporting");
    options.progress = [&](Bytes done, Bytes total) { line.update(done, total); };
    report = checkpoint::export_hugging_face(env, reader, arguments.out, options);
  }
  if (!report.warning.empty()) fmt::print(stderr, "warning: {}\n", report.warning);
  if (arguments.json) {
    Json files = Json::array();
    for (const std::string& file : report.files) files.push_back(file);
    fmt::print("{}\n", Json::object({{"checkpoint", reader.directory()},
                                     {"directory", arguments.out},
                                     {"step", reader.manifest().progress.step},
                                     {"parameters", report.parameters},
                                     {"dtype", plan::precision_name(options.dtype)},
                                     {"files", std::move(files)},
                                     {"bytes", report.bytes.count}})
                           .dump(2));
  } else {
    fmt::print("{}: {} parameters of step {} as {}, {}\n", arguments.out, format_exact(report.parameters),
               reader.manifest().progress.step, plan::precision_name(options.dtype), format_bytes(report.bytes));
    for (const std::string& file : report.files) {
      fmt::print("  {:<32} {:>12}\n", file, format_bytes(Bytes{env.file_size(join_path(arguments.out, file))}));
    }
  }
  return ExitCode::kDone;
}

ExitCode run_import(Env& env, const std::string& folder, const std::string& out, bool json) {
  require_out(out, "start");
  std::string path;
  {
    ProgressLine line(env, "importing");
    path = checkpoint::import_hugging_face(
        env, folder, out,
        {.program = train::program_text(), .progress = [&](Bytes done, Bytes total) { line.update(done, total); }});
  }
  const checkpoint::Manifest manifest = checkpoint::Reader::open_manifest(env, path).or_throw();
  std::int64_t parameters = 0;
  for (const checkpoint::StoredState& tensor : manifest.tensors) {
    if (tensor.kind == plan::StateKind::kWeight) parameters += tensor.rows() * tensor.columns();
  }
  if (json) {
    fmt::print("{}\n", Json::object({{"checkpoint", path},
                                     {"step", manifest.progress.step},
                                     {"parameters", parameters},
                                     {"files", std::ssize(manifest.files)},
                                     {"bytes", manifest.bytes()}})
                           .dump(2));
  } else {
    fmt::print("{}: {} parameters at step 0 with moments of zero, {}\n", path, format_exact(parameters),
               format_bytes(Bytes{manifest.bytes()}));
  }
  return ExitCode::kDone;
}

}  // namespace

void declare_checkpoint_export(Command& parent, Env& env) {
  auto options = std::make_shared<ExportArguments>();
  Command& command = parent.command("export", "Write a checkpoint's weights as a Hugging Face folder");
  command.positional("checkpoint", options->path, kCheckpointHelp, true);
  command.option("out", options->out, "directory for config.json, the tokenizer and the safetensors");
  command.option("shard-size", options->shard_size, "most bytes of one safetensors file, e.g. 5GB (default: one file)");
  command.option("dtype", options->dtype, "fp32 (the weights' own), bf16 or fp16");
  command.option("tokenizer", options->tokenizer, "a tokenizer.json to put beside them (default: the checkpoint's)");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme checkpoint export runs/one --out model --dtype bf16 --shard-size 5GB");
  command.keeps_results([] { return true; });
  command.run([options, &env] { return run_export(env, *options); });
}

void declare_checkpoint_import(Command& parent, Env& env) {
  struct Options {
    std::string folder, out;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command& command = parent.command("import", "Make a checkpoint at step 0 of a Hugging Face folder");
  command.positional("folder", options->folder, "config.json with safetensors", true);
  command.option("out", options->out, "directory of checkpoints; OUT/step-00000000 is made");
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples("  trireme checkpoint import models/gpt2 --out start");
  command.keeps_results([] { return true; });
  command.run([options, &env] { return run_import(env, options->folder, options->out, options->json); });
}

}  // namespace trireme::cli
