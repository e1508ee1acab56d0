#include "engine/train/run_loops.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "checkpoint/hugging_face.h"
#include "engine/train/peak.h"
#include "engine/train/run_progress.h"
#include "engine/train/run_saver.h"
#include "engine/train/same_run.h"
#include "engine/train/weights.h"
#include "model/flops.h"

namespace trireme::train {
namespace {

using telemetry::Phase;

// The leader's, before everything that all ranks do together.
enum Word : std::int64_t { kEnd, kStep, kSave, kWait };
enum RoundWord : std::int64_t { kEnough, kRound };  // of validation

bool validation_due(const RunConfig& config, std::int64_t step) {
  if (config.validation_tokens.empty()) return false;
  return step == config.steps || (config.validation_interval > 0 && step % config.validation_interval == 0);
}

// incarnation: the leader's; the others are told it.
void make_saver(std::optional<RunSaver>& saver, const RankRun& own, const SaveFacts* facts, SaveSchedule* schedule,
                std::int64_t incarnation = 0) {
  if (!saves(own.run.config)) return;
  checkpoint::Store store = store_of(own.watch.save_env(), own.run.config, own.control.decide(incarnation));
  saver.emplace(own.watch.save_env(), own.watch.log(), std::move(store), own.rank.rank().plan(),
                own.rank.rank().device(), own.control, facts, schedule, own.watch.written());
}

void save_state(const RankRun& own, RunSaver& saver, const checkpoint::Progress& progress, const char* reason) {
  own.watch.at(Phase::kSave, progress.step);
  saver.save(own.rank.rank().executor().state(), progress, reason);
  own.watch.at(Phase::kIdle);
}

// Every rank's prediction is compared with what it counted (the leader's outcome; null elsewhere); then the model.
void finish(const RankRun& own, TrainOutcome* outcome, const checkpoint::ModelDescription& model = {}) {
  parallel::Rank& rank = own.rank.rank();
  const std::string report = to_json(make_rank_report(rank, own.rank.last_traffic(), own.env)).dump();
  for (const std::string& text : own.control.gather(report)) {
    RankReport one = rank_report_from_json(parse_json(text, "a rank's report").or_throw());
    if (!outcome->last) one.ledger_fault = one.traffic_fault = "";  // no step: nothing is to be compared
    for (const std::string& fault : {one.ledger_fault, one.traffic_fault}) {
      if (!fault.empty()) own.watch.log().warning("rank {} is not what the plan predicted: {}", one.rank, fault);
    }
    outcome->ranks.push_back(one);
  }
  export_model(own.env, {rank.plan(), rank.device(), rank.executor().state()}, own.control,
               join_path(own.run.config.out, "model"), model);
}

// What the model's folder holds beside its weights or, where that is gone or holds none, what the checkpoint carries.
std::vector<checkpoint::ModelFile> model_files_of(const RankRun& own, const std::string& checkpoint) {
  const RunConfig& config = own.run.config;
  auto files = checkpoint::find_model_files(own.env, {config.model_config, config.model_weights});
  if (checkpoint.empty()) return files;
  auto all = checkpoint::find_model_files(own.env, {config.model_config, config.model_weights, checkpoint});
  if (all == files) return files;
  const auto manifest = checkpoint::Reader::open_manifest(own.env, checkpoint).or_throw();
  checkpoint::read_model_files(own.env, checkpoint, manifest);  // they are what was written
  return all;
}

class Leader {
 public:
  Leader(const RankRun& own, const LeadersRun& leader)
      : own_(own),
        leader_(leader),
        config_(own.run.config),
        log_(own.watch.log()),
        outcome_(leader.outcome),
        earlier_(telemetry::rewind_metrics(own.env, metrics_of(config_.out), leader.from.progress.step)),
        progress_(own.env, own.run, leader.from, earlier_.incarnation,
                  leader.claim.incarnation_above(std::max(earlier_.incarnation, leader.from.progress.incarnation))),
        facts_(progress_.facts(data_identity(leader.tokens))),
        schedule_(progress_.policy(), progress_.first_step()),
        metrics_(own.at_once, own.watch.log(), metrics_of(config_.out)),
        peak_(outcome_.gemm_flops_per_s, leader.begun) {
    facts_.model_files = model_files_of(own, leader.from.path);
    if (const std::string refused = checkpoint::refused_elsewhere(own.run.plan.table.config); !refused.empty()) {
      log_.warning("the model that this run writes: {}", refused);
    }
    facts_.durable = [&own](std::int64_t step) { own.hooks.reporter->send(telemetry::Saved{.step = step}); };
    make_saver(saver_, own, &facts_, &schedule_, progress_.incarnation());
  }

  void run() {
    if (saver_) tell_room();
    steps();
    own_.watch.at(Phase::kFinish);
    // A run that another's checkpoint has finished already gets it too: its directory needs no other.
    if (saver_ && (outcome_.steps_done != progress_.first_step() || !leader_.start.continues)) save_last();
    say(kEnd);
    own_.watch.at(Phase::kFinish);
    if (saver_) saver_->wait();
    own_.trace.end(outcome_.steps_done, own_.control);
    leader_.progress.finish();
    metrics_.close();
    parallel::Rank& rank = own_.rank.rank();
    outcome_.predicted = rank.predicted();
    outcome_.counted = rank.counted();
    outcome_.resident = own_.env.resident_memory().anonymous;
    outcome_.out = config_.out;
    outcome_.checkpoints = !checkpoint::Store(own_.env, checkpoints_of(config_.out)).steps().empty();
    finish(own_, &outcome_, {.config = facts_.about.model, .files = facts_.model_files});
    const std::string unsaved = unsaved_mark_of(config_.out);
    if (!saver_ && own_.env.exists(unsaved)) own_.env.remove_file(unsaved);
    if (!own_.hooks.faults.empty() && !own_.hooks.incarnation) remove_fault_marks(own_.env, config_.out);
  }

 private:
  // Before every word all ranks ask how a save stands.
  void say(Word word) {
    leader_.claim.keep();
    if (saver_) saver_->poll();
    own_.control.decide(word);
  }

  void save(std::int64_t step, const char* reason) {
    metrics_.flush();  // none is older than the checkpoint
    say(kSave);
    checkpoint::Progress progress = progress_.at(step);
    const optim::LossScale scale = own_.rank.loss_scale();  // none, whatever the checkpoint had that this began from
    progress.loss_scale = scale.scale;
    progress.good_steps = scale.good_steps;
    save_state(own_, *saver_, progress, reason);
    stall_s_ = saver_->last_stall().count;
  }

  void steps() {
    const std::int64_t first = progress_.first_step() + 1;
    outcome_.first_step = first;
    outcome_.steps_done = first - 1;
    for (std::int64_t step = first; step <= config_.steps; ++step) {
      say(kStep);
      own_.trace.before_step(step);
      const telemetry::StepRecord record = one_step(step);
      own_.trace.after_step(step, own_.control);
      metrics_.write(record);
      leader_.progress.step(record, own_.env.now());
      outcome_.last = record;
      outcome_.steps_done = step;
      measure_again();
      if (step == first) own_.world.set_deadline(Seconds{config_.deadline_s});
      if (stop_asked()) {
        outcome_.interrupted = step < config_.steps;
        return;
      }
      schedule_.step_done(step, Seconds{record.step_s});
      if (!saver_ || step == config_.steps) continue;
      if (const std::string news = schedule_.take_news(); !news.empty()) log_.info("{}", news);
      if (schedule_.due(step) && saver_->has_room()) save(step, "interval");
    }
  }

  // The machine may have been taken when the rate that MFU is of was measured.
  void measure_again() {
    if (!own_.hooks.measures_again) return;
    const Seconds begun = own_.env.now();
    if (!peak_.due(begun)) return;
    const bool was_known = peak_.known();
    peak_.measured(leader_.measure_rate(), begun, own_.env.now());
    outcome_.gemm_flops_per_s = peak_.flops_per_s();
    if (was_known || !peak_.known()) return;
    log_.info("steps were faster than the products of the start; measured GEMM rate now {}",
              format_flops_rate(peak_.flops_per_s()));
  }

  // The disk may be large enough for one checkpoint, and too small for those that are to stay and one more.
  void tell_room() {
    const std::int64_t count = config_.retention.keep_last + 1;
    const Bytes left = own_.env.free_space(checkpoints_of(config_.out)), wanted{count * saver_->bytes().count};
    if (left >= wanted) return;
    log_.warning("the disk of {} has {} left; {} checkpoints, which is what there can be at once, take {}", config_.out,
                 format_bytes(left), count, format_bytes(wanted));
  }

  // What a run that ends in order leaves.
  void save_last() {
    const std::int64_t done = outcome_.steps_done;
    if (done == saver_->saved_step()) return;
    say(kWait);  // whatever comes of this one, the one before is there
    saver_->wait();
    if (!saver_->wait_for_room()) {
      throw Error(ExitCode::kStorage, "checkpoint", fmt::format("save step {}", done), "there is no room for it",
                  fmt::format("free {} on the disk of {}", format_bytes(saver_->bytes()), config_.out));
    }
    save(done, outcome_.interrupted ? "stop" : "end");
  }

  telemetry::StepRecord one_step(std::int64_t step) {
    const double before = own_.env.now().count;
    const plan::Batch& batch = config_.batch;
    telemetry::StepRecord record{.step = step};
    record.incarnation = progress_.incarnation();
    record.save_stall_s = std::exchange(stall_s_, std::nullopt);
    record.learning_rate = optim::learning_rate_at(config_.learning_rate, step - 1);
    own_.watch.begins(step);
    const parallel::StepResult result = own_.rank.step(step);
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.clip_factor = result.clip_factor;
    note_loss_scale(result, record);
    record.step_s = std::max(own_.env.now().count - before, 1e-9);  // a clock may stand still
    own_.watch.step_done(step, own_.rank);
    const auto step_tokens = static_cast<double>(plan::tokens_per_step(batch));
    record.first_sample = own_.rank.last_first_sample();
    record.samples = batch.global_batch;
    record.tokens = progress_.at(step).tokens;
    record.tokens_per_s = step_tokens / record.step_s;
    record.mfu = peak_.share(model::model_flops(own_.run.plan.table.config, batch.global_batch, batch.sequence).count,
                             record.step_s);
    record.resident_bytes = own_.env.resident_memory().anonymous.count;
    for (const auto& [axis, times] : own_.rank.last_times()) {
      record.communication.push_back({axis, times.under_way.count, times.exposed.count});
    }
    useful_s_ += record.step_s;
    if (validation_due(config_, step)) {
      record.validation_loss = validation_loss(step);
      if (record.validation_loss) outcome_.validation_loss = record.validation_loss;
    }
    record.goodput = goodput();
    own_.watch.set_next(step + 1);
    return record;
  }

  void note_loss_scale(const parallel::StepResult& result, telemetry::StepRecord& record) {
    if (!own_.rank.scales_loss()) return;
    record.loss_scale = result.loss_scale;
    record.left_out = result.left_out;
    if (result.left_out) {
      own_.watch.log().warning("step {}: a gradient overflowed at loss scale {}: the step is left out, the next has {}",
                               record.step, result.loss_scale, own_.rank.loss_scale().scale);
    }
  }

  std::optional<double> goodput() {
    if (!own_.hooks.wall_before_s) return std::nullopt;
    const double wall = *own_.hooks.wall_before_s + own_.env.now().count - leader_.begun.count;
    return wall > 0 ? std::optional((earlier_.step_s + useful_s_) / wall) : std::nullopt;
  }

  bool stop_asked() const {
    return own_.hooks.reporter->stop_requested() || (own_.hooks.stop_requested && own_.hooks.stop_requested());
  }

  // None where the run was asked to stop meanwhile.
  std::optional<double> validation_loss(std::int64_t step) {
    ExactSum sum;
    std::int64_t tokens = 0;
    own_.watch.at(Phase::kValidation, step);
    for (std::int64_t i = 0; i < config_.validation_micro_batches; ++i) {
      if (own_.control.decide(stop_asked() ? kEnough : kRound) == kEnough) {
        own_.watch.at(Phase::kIdle);
        return std::nullopt;
      }
      const RankTrainer::Validation round = own_.rank.validate(i);
      sum.add(round.losses);
      tokens += round.tokens;
    }
    own_.watch.at(Phase::kIdle);
    if (tokens == 0) {
      throw Error(ExitCode::kUsage, "train", "validation",
                  "no validation token bears a loss: every target is data.ignore",
                  "another data.ignore, more train.validation_micro_batches, or other data");
    }
    const double loss = sum.value() / static_cast<double>(tokens);
    if (!std::isfinite(loss)) {
      throw Error(ExitCode::kDiverged, "train", "validation", fmt::format("the validation loss is {}", loss),
                  "lower optimizer.learning_rate, lengthen warm-up, or clip");
    }
    return loss;
  }

  const RankRun& own_;
  const LeadersRun& leader_;
  const RunConfig& config_;
  Log& log_;
  TrainOutcome& outcome_;
  const telemetry::EarlierMetrics earlier_;
  const RunProgress progress_;
  SaveFacts facts_;
  SaveSchedule schedule_;
  telemetry::MetricsWriter metrics_;
  PeakRate peak_;
  std::optional<RunSaver> saver_;
  std::optional<double> stall_s_;  // of a save since the last step
  double useful_s_ = 0;            // in steps of this start
};

// `step` was loaded whole. Sets aside what is beyond it: steps that this run will do anew, or damaged ones. Then
// removes what an earlier start was killed before removing; it may be that nothing is saved any more.
void tidy_checkpoints(const RankRun& own, std::int64_t step) {
  const RunConfig& config = own.run.config;
  checkpoint::Store store = store_of(own.env, config);
  for (const std::string& name : store.set_aside_after(step)) {
    own.watch.log().warning("a checkpoint beyond step {} is kept aside as {}", step,
                            join_path(store.directory(), name));
  }
  if (!saves(config)) return;
  try {
    tell_left(own.watch.log(), store.directory(), store.retain(config.retention));
  } catch (const Error& error) {
    own.watch.log().warning("an older checkpoint stays, and takes its room: {}", error.what());
  }
}

void follow_step(const RankRun& own, std::int64_t step) {
  own.trace.before_step(step);
  own.watch.begins(step);
  own.rank.step(step);
  own.watch.step_done(step, own.rank);
  if (validation_due(own.run.config, step)) {
    own.watch.at(Phase::kValidation, step);
    for (std::int64_t i = 0; i < own.run.config.validation_micro_batches; ++i) {
      if (own.control.decide(kEnough) == kEnough) break;
      own.rank.validate(i);
    }
    own.watch.at(Phase::kIdle);
  }
  own.watch.set_next(step + 1);
  own.trace.after_step(step, own.control);
}

}  // namespace

bool saves(const RunConfig& config) { return config.save_interval.kind != SaveInterval::Kind::kNone; }

void lead(const RankRun& rank, const LeadersRun& leader) {
  const std::int64_t done = leader.from.progress.step;
  if (leader.from.path.empty() && !rank.run.config.model_weights.empty()) {
    rank.watch.log().info("weights from {}", rank.run.config.model_weights);
  }
  if (leader.start.continues) tidy_checkpoints(rank, done);
  rank.hooks.reporter->send(telemetry::Resumed{.step = done,
                                               .continues = leader.start.continues && !leader.from.path.empty(),
                                               .gemm_flops_per_s = leader.outcome.gemm_flops_per_s});
  Leader(rank, leader).run();
}

void follow(const RankRun& own, std::int64_t first_step) {
  std::optional<RunSaver> saver;
  make_saver(saver, own, nullptr, nullptr);
  std::int64_t step = first_step;
  for (;;) {
    if (saver) saver->poll();
    const std::int64_t word = own.control.decide(kEnd);
    if (word == kEnd) break;
    if (word == kSave) {
      save_state(own, *saver, {.step = step}, "");
      continue;
    }
    if (word == kWait) {
      saver->wait();
      continue;
    }
    follow_step(own, ++step);
    if (step == first_step + 1) own.world.set_deadline(Seconds{own.run.config.deadline_s});
  }
  own.watch.at(Phase::kFinish);
  if (saver) saver->wait();
  own.trace.end(step, own.control);
  finish(own, nullptr);
}

}  // namespace trireme::train
