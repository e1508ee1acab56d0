#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/difference.h"
#include "checkpoint/reader.h"
#include "cli/checkpoint_commands.h"

namespace trireme::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::Reader;
using checkpoint::TensorDifference;

// What a verification read, of a manifest that could be read.
struct Extent {
  std::int64_t files = 0, slices = 0, bytes = 0;
};

Extent extent_of(const Manifest& manifest) {
  Extent extent{.files = std::ssize(manifest.files), .bytes = manifest.bytes()};
  for (const checkpoint::StoredState& tensor : manifest.tensors) extent.slices += std::ssize(tensor.slices);
  return extent;
}

ExitCode run_verify(Env& env, const std::string& asked, bool json) {
  const std::string path = chosen_checkpoint(env, asked);
  const Result<Manifest> manifest = Reader::open_manifest(env, path);
  const Extent extent = manifest.ok() ? extent_of(*manifest) : Extent{};
  const Seconds begun = env.now();
  std::vector<std::string> damages;
  {
    ProgressLine line(env, "verifying");
    damages = checkpoint::damages_of(env, path, [&](Bytes read) { line.update(read, Bytes{extent.bytes}); });
  }
  const double seconds = std::max(1e-9, env.now().count - begun.count);
  const double rate = static_cast<double>(extent.bytes) / seconds;
  if (json) {
    Json list = Json::array();
    for (const std::string& damage : damages) list.push_back(damage);
    fmt::print("{}\n", Json::object({{"path", path},
                                     {"whole", damages.empty()},
                                     {"damages", std::move(list)},
                                     {"files", extent.files},
                                     {"slices", extent.slices},
                                     {"bytes", extent.bytes},
                                     {"elapsed_s", seconds},
                                     {"bytes_per_s", rate}})
                           .dump(2));
  } else if (damages.empty()) {
    fmt::print("whole: {} file{}, {} slices, {} in {} ({:.0f} MB/s)\n", extent.files, extent.files == 1 ? "" : "s",
               format_exact(extent.slices), format_bytes(Bytes{extent.bytes}), format_seconds(Seconds{seconds}),
               rate / 1e6);
  } else {
    for (const std::string& damage : damages) fmt::print("{}\n", damage);
  }
  if (damages.empty()) return ExitCode::kDone;
  fmt::print(stderr, "damaged: {} fault{}; go on from another checkpoint (trireme checkpoint ls lists them)\n",
             damages.size(), damages.size() == 1 ? "" : "s");
  return ExitCode::kStorage;
}

Json finite_or_text(float value) {
  if (std::isfinite(value)) return static_cast<double>(value);
  return fmt::format("{}", value);
}

Json to_json(const TensorDifference& d) {
  return Json::object({{"name", d.name},
                       {"state", plan::state_kind_name(d.kind)},
                       {"elements", d.elements},
                       {"differing", d.differing},
                       {"largest_ulp", static_cast<std::int64_t>(d.largest_ulp)},
                       {"first_row", d.first_row},
                       {"first_column", d.first_column},
                       {"first_a", finite_or_text(d.first_a)},
                       {"first_b", finite_or_text(d.first_b)},
                       {"first_a_hex", format_hex(d.first_a)},
                       {"first_b_hex", format_hex(d.first_b)}});
}

struct DifferenceSum {
  std::int64_t tensors = 0, elements = 0, differing = 0;
  std::vector<TensorDifference> different = {};  // tensors
};

DifferenceSum sum_of(const std::vector<TensorDifference>& all) {
  DifferenceSum sum{.tensors = std::ssize(all)};
  for (const TensorDifference& d : all) {
    sum.elements += d.elements;
    sum.differing += d.differing;
    if (d.differing > 0) sum.different.push_back(d);
  }
  return sum;
}

void print(const DifferenceSum& sum) {
  if (sum.different.empty()) {
    fmt::print("identical: {} tensors, {} values\n", format_exact(sum.tensors), format_exact(sum.elements));
    return;
  }
  fmt::print("{:<52} {:<10} {:>14} {:>14} {:>10}  {}\n", "tensor", "state", "differing", "of", "max ulp",
             "first difference");
  for (const TensorDifference& d : sum.different) {
    fmt::print("{:<52} {:<10} {:>14} {:>14} {:>10}  [{}, {}]: {} ({}) and {} ({})\n", d.name,
               plan::state_kind_name(d.kind), format_exact(d.differing), format_exact(d.elements), d.largest_ulp,
               d.first_row, d.first_column, d.first_a, format_hex(d.first_a), d.first_b, format_hex(d.first_b));
  }
  fmt::print("\ndifferent: {} of {} tensors, {} of {} values\n", format_exact(std::ssize(sum.different)),
             format_exact(sum.tensors), format_exact(sum.differing), format_exact(sum.elements));
}

ExitCode run_diff(Env& env, const std::string& a_path, const std::string& b_path, bool json) {
  const Reader a = Reader::open(env, chosen_checkpoint(env, a_path)).or_throw();
  const Reader b = Reader::open(env, chosen_checkpoint(env, b_path)).or_throw();
  const DifferenceSum sum = sum_of(checkpoint::difference(a, b));
  if (json) {
    Json tensors = Json::array();
    for (const TensorDifference& d : sum.different) tensors.push_back(to_json(d));
    fmt::print("{}\n", Json::object({{"a", a.directory()},
                                     {"b", b.directory()},
                                     {"a_step", a.manifest().progress.step},
                                     {"b_step", b.manifest().progress.step},
                                     {"identical", sum.different.empty()},
                                     {"tensors", sum.tensors},
                                     {"different_tensors", std::ssize(sum.different)},
                                     {"elements", sum.elements},
                                     {"differing_elements", sum.differing},
                                     {"differences", std::move(tensors)}})
                           .dump(2));
  } else {
    print(sum);
  }
  return sum.different.empty() ? ExitCode::kDone : ExitCode::kWithinBound;
}

}  // namespace

void declare_checkpoint_verify(Command& parent, Env& env) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command& command = parent.command("verify", "Read every byte of a checkpoint and compare it with its checksum");
  command.positional("checkpoint", options->path, kCheckpointHelp, true);
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme checkpoint verify runs/one\n\n"
      "Exit code 0: whole; 79: a line for each damage");
  command.run([options, &env] { return run_verify(env, options->path, options->json); });
}

void declare_checkpoint_diff(Command& parent, Env& env) {
  struct Options {
    std::string a, b;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command& command =
      parent.command("diff", "Compare the training state of two checkpoints by bits, whatever their layouts");
  command.positional("a", options->a, kCheckpointHelp, true);
  command.positional("b", options->b, "the other", true);
  command.flag("json", options->json, "one JSON object on standard output");
  command.examples(
      "  trireme checkpoint diff runs/one/checkpoints/step-00000020 runs/again\n\n"
      "Exit code 0: the same bits; 1: different");
  command.run([options, &env] { return run_diff(env, options->a, options->b, options->json); });
}

}  // namespace trireme::cli
