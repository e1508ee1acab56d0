#include "telemetry/step_record.h"

#include <algorithm>
#include <cstdlib>

#include "base/patient_env.h"
#include "base/units.h"

namespace trireme::telemetry {
namespace {

// JSON has no infinity; a diverged loss is written as text by its hex form and as null here.
Json finite_or_null(double x) { return x - x == 0.0 ? Json(x) : Json(nullptr); }

Result<double> number(const Json& line, const std::string& key) {
  const Json* value = line.find(key);
  if (value == nullptr || !value->is_number()) {
    return Failure{.option = key, .value = "", .rule = "metrics line lacks this number", .nearest = ""};
  }
  return value->as_number();
}

}  // namespace

Json to_json(const StepRecord& r) {
  Json line = Json::object({{"step", r.step},
                            {"loss", finite_or_null(r.loss)},
                            {"loss_hex", format_hex(r.loss)},
                            {"grad_norm", finite_or_null(r.grad_norm)},
                            {"grad_norm_hex", format_hex(r.grad_norm)},
                            {"clip_factor", r.clip_factor},
                            {"lr", r.learning_rate},
                            {"first_sample", r.first_sample},
                            {"samples", r.samples},
                            {"tokens", r.tokens},
                            {"tokens_per_s", r.tokens_per_s},
                            {"mfu", r.mfu ? Json(*r.mfu) : Json(nullptr)},
                            {"step_s", r.step_s},
                            {"resident_bytes", r.resident_bytes},
                            {"incarnation", r.incarnation}});
  if (r.save_stall_s) line["save_stall_s"] = *r.save_stall_s;
  if (r.goodput) line["goodput"] = *r.goodput;
  if (r.loss_scale) line["loss_scale"] = *r.loss_scale;
  if (r.left_out) line["left_out"] = true;
  if (!r.communication.empty()) {
    Json axes = Json::object();
    for (const AxisCommunication& axis : r.communication) {
      axes[axis.axis] = Json::object({{"under_way_s", axis.under_way_s}, {"exposed_s", axis.exposed_s}});
    }
    line["communication"] = axes;
  }
  if (r.validation_loss) {
    line["validation_loss"] = finite_or_null(*r.validation_loss);
    line["validation_loss_hex"] = format_hex(*r.validation_loss);
  }
  return line;
}

Result<StepRecord> step_record_from_json(const Json& line) {
  StepRecord r;
  for (auto [key, field] : {std::pair<const char*, double*>{"clip_factor", &r.clip_factor},
                            {"lr", &r.learning_rate},
                            {"tokens_per_s", &r.tokens_per_s},
                            {"step_s", &r.step_s}}) {
    Result<double> value = number(line, key);
    if (!value) return value.failure();
    *field = *value;
  }
  for (auto [key, field] : {std::pair<const char*, std::int64_t*>{"step", &r.step},
                            {"tokens", &r.tokens},
                            {"resident_bytes", &r.resident_bytes},
                            {"incarnation", &r.incarnation}}) {
    Result<double> value = number(line, key);
    if (!value) return value.failure();
    *field = static_cast<std::int64_t>(*value);
  }
  for (auto [key, field] : {std::pair<const char*, double*>{"loss_hex", &r.loss}, {"grad_norm_hex", &r.grad_norm}}) {
    const Json* value = line.find(key);
    if (value == nullptr || !value->is_string()) {
      return Failure{.option = key, .value = "", .rule = "metrics line lacks this hex float", .nearest = ""};
    }
    *field = std::strtod(value->as_string().c_str(), nullptr);
  }
  if (const Json* axes = line.find("communication"); axes != nullptr && axes->is_object()) {
    for (const auto& [axis, times] : axes->as_object()) {
      Result<double> under_way = number(times, "under_way_s"), exposed = number(times, "exposed_s");
      if (!under_way) return under_way.failure();
      if (!exposed) return exposed.failure();
      r.communication.push_back({axis, *under_way, *exposed});
    }
  }
  if (const Json* value = line.find("left_out"); value != nullptr && value->is_bool()) r.left_out = value->as_bool();
  for (auto [key, field] : {std::pair<const char*, std::optional<double>*>{"save_stall_s", &r.save_stall_s},
                            {"goodput", &r.goodput},
                            {"mfu", &r.mfu},
                            {"loss_scale", &r.loss_scale}}) {
    if (const Json* value = line.find(key); value != nullptr && value->is_number()) *field = value->as_number();
  }
  // Lines of programs that did not say them.
  for (auto [key, field] :
       {std::pair<const char*, std::int64_t*>{"first_sample", &r.first_sample}, {"samples", &r.samples}}) {
    if (const Json* value = line.find(key); value != nullptr && value->is_number()) *field = value->as_integer();
  }
  if (const Json* value = line.find("validation_loss_hex"); value != nullptr && value->is_string()) {
    r.validation_loss = std::strtod(value->as_string().c_str(), nullptr);
  }
  return r;
}

namespace {

// Each whole line of `text` and what it says, up to one that is torn: what follows that is not to be trusted.
template <class Take>
void for_each_step(const std::string& text, const std::string& path, const Take& take) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;  // cut off
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    const Result<Json> parsed = parse_json(line, path);
    const Result<StepRecord> record = parsed ? step_record_from_json(*parsed) : parsed.failure();
    if (!record) return;
    take(line, *record);
    begin = end + 1;
  }
}

}  // namespace

EarlierMetrics rewind_metrics(Env& env, const std::string& path, std::int64_t step) {
  if (!env.exists(path)) return {};
  const std::string text = env.read_file(path);
  std::string kept;
  EarlierMetrics earlier;
  for_each_step(text, path, [&](std::string_view line, const StepRecord& record) {
    earlier.incarnation = std::max(earlier.incarnation, record.incarnation);
    if (record.step > step) return;
    kept += line;
    earlier.step_s += record.step_s;
  });
  if (kept != text) env.write_file_atomically(path, kept);
  return earlier;
}

std::vector<StepRecord> read_steps(Env& env, const std::string& path) {
  std::vector<StepRecord> steps;
  if (!env.exists(path)) return steps;
  for_each_step(env.read_file(path), path,
                [&](std::string_view, const StepRecord& record) { steps.push_back(record); });
  return steps;
}

MetricsWriter::MetricsWriter(Env& env, Log& log, const std::string& path)
    : env_(env), log_(log), file_(env.append_file(path)) {}

bool MetricsWriter::put() {
  try {
    file_->write_text(kept_);
  } catch (const FileError& error) {
    kept_.erase(0, error.put());
    const Seconds now = env_.now();
    if (error.trouble() == FileTrouble::kOther) throw;
    if (!full_since_) {
      full_since_ = now;
      log_.warning("{}: the run goes on meanwhile, for at most {}", error.what(), format_seconds(kDiskPatience));
    }
    if (now.count - full_since_->count >= kDiskPatience.count) throw;
    return false;
  }
  kept_.clear();
  if (full_since_) log_.info("the metrics are written again");
  full_since_.reset();
  return true;
}

void MetricsWriter::write(const StepRecord& record) {
  kept_ += to_json(record).dump() + "\n";
  put();
}

void MetricsWriter::flush() {
  constexpr Seconds kBetweenTries{0.05};
  while (!kept_.empty() && !put()) env_.sleep(kBetweenTries);
}

void MetricsWriter::close() {
  flush();
  file_->sync();
  file_->close();
}

}  // namespace trireme::telemetry
