#include "engine/train/run_saver.h"

#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/patient_env.h"
#include "engine/train/run_directory.h"

namespace trireme::train {
namespace {

constexpr Seconds kBetweenLooks{0.005};
constexpr Seconds kPatience{30};  // then, and after twice as long each time, a wait says for whom

}  // namespace

// Makes a checkpoint of shards that are there: on a thread, since a disk takes its time to promise.
struct RunSaver::Commit {
  std::thread thread;
  std::mutex mutex;
  bool ended = false;
  std::string error;
  bool replaced = false;  // which is the error: by another start of the run
  Seconds at;             // that it ended
  Bytes bytes;
  checkpoint::Removal removal = {};
  std::string stays;  // why an older checkpoint could not be removed

  ~Commit() {
    if (thread.joinable()) thread.join();
  }
  void end(const std::string& what, Seconds now, bool by_another = false) {
    const std::lock_guard lock(mutex);
    ended = true;
    replaced = by_another;
    at = now;
    error = what;
  }
};

RunSaver::RunSaver(Env& env, Log& log, checkpoint::Store store, const parallel::RunPlan& plan, kernels::Device& device,
                   Control& control, const SaveFacts* facts, SaveSchedule* schedule,
                   std::function<void(std::int64_t)> written)
    : env_(env),
      log_(log),
      plan_(plan),
      control_(control),
      facts_(facts),
      schedule_(schedule),
      written_(std::move(written)),
      store_(std::move(store)),
      saver_(env, device, plan) {
  if (!control.leads()) return;
  bytes_ = save_bytes(plan.table, plan.layout);
  for (const checkpoint::ModelFile& file : facts->model_files) bytes_ += Bytes{std::ssize(file.content)};
}

RunSaver::~RunSaver() = default;

Bytes save_bytes(const model::ParameterTable& table, const plan::Layout& layout) {
  const std::vector<checkpoint::StoredState> tensors = checkpoint::states_of(table);
  constexpr std::int64_t kManifest = 1 << 16, kManifestTensor = 256, kManifestSlice = 96;  // its text, at most
  Bytes sum{kManifest + kManifestTensor * std::ssize(tensors)};
  for (int rank = 0; rank < layout.world(); ++rank) {
    const std::vector<checkpoint::ShardSlice> slices = checkpoint::slices_of_rank(table, layout, rank);
    sum += checkpoint::shard_bytes(tensors, slices) + Bytes{kManifestSlice * std::ssize(slices)};
  }
  return sum;
}

bool RunSaver::has_room() {
  const Bytes left = env_.free_space(store_.directory());
  if (left >= bytes_) return true;
  log_.warning(
      "no checkpoint now: it needs {}, and the disk of {} has {} left. Training goes on; free some space, or this run "
      "can be lost{}",
      format_bytes(bytes_), store_.directory(), format_bytes(left),
      saved_ >= 0 ? fmt::format(" from step {} on", saved_) : std::string());
  return false;
}

bool RunSaver::wait_for_room() {
  constexpr Seconds kBetweenRoomLooks{0.1};
  const Seconds begun = env_.now();
  if (has_room()) return true;
  log_.warning("it is waited for room, at most {}", format_seconds(kDiskPatience));
  while (since(begun).count < kDiskPatience.count) {
    env_.sleep(kBetweenRoomLooks);
    if (env_.free_space(store_.directory()) >= bytes_) return true;
  }
  return false;
}

void RunSaver::save(parallel::RankState& state, const checkpoint::Progress& progress, const std::string& reason) {
  if (in_flight_) {
    const Seconds before = env_.now();
    const std::int64_t earlier = progress_.step;
    wait();
    if (control_.leads()) {
      log_.warning("the checkpoint of step {} was not written yet when that of step {} was due: waited {}", earlier,
                   progress.step, format_seconds(since(before)));
    }
  }
  begun_ = env_.now();
  if (control_.leads()) tell_left(log_, store_.directory(), store_.begin(progress.step));
  control_.decide(0);  // the directory is there
  progress_ = progress;
  reason_ = reason;
  records_.assign(static_cast<std::size_t>(control_.ranks()), std::nullopt);
  told_ = false;
  failure_.clear();
  in_flight_ = true;
  std::function<void()> written;
  if (written_) written = [this, step = progress.step] { written_(step); };
  saver_.begin(state, join_path(store_.partial_path_of(progress.step), checkpoint::shard_name(control_.rank())),
               std::move(written));
  if (plan_.inputs.checkpoints == plan::CheckpointStaging::kTile) wait();
  stall_ = since(begun_);
  saved_ = progress.step;
  if (schedule_ != nullptr) schedule_->saved(progress.step, stall_);
}

void RunSaver::poll() {
  if (in_flight_) settle();
}

void RunSaver::wait() {
  double told = kPatience.count;
  const Seconds begun = env_.now();
  while (in_flight_ && !settle()) {
    env_.sleep(kBetweenLooks);
    if (since(begun).count < told) continue;
    told *= 2;
    if (control_.leads()) tell_waiting(since(begun));
  }
}

void RunSaver::tell_waiting(Seconds waited) {
  std::vector<int> writing;
  for (std::size_t rank = 0; rank < records_.size(); ++rank) {
    if (!records_[rank]) writing.push_back(static_cast<int>(rank));
  }
  log_.warning("waits for the checkpoint of step {} since {}: {}", progress_.step, format_seconds(waited),
               writing.empty() ? std::string("all parts are written, the disk is to promise them")
                               : fmt::format("rank {} still writing", fmt::join(writing, ", ")));
}

// Of this rank's part, once.
std::string RunSaver::own_news() {
  if (told_) return "";
  const std::optional<RankSaver::Outcome> outcome = saver_.outcome();
  if (!outcome) return "";
  told_ = true;
  return outcome->error.empty() ? "+" + outcome->record : "-" + outcome->error;
}

// True once nothing is in flight.
bool RunSaver::settle() {
  const std::vector<std::string> news = control_.gather(own_news());
  const auto word = static_cast<Word>(control_.decide(control_.leads() ? leaders_word(news) : kGoesOn));
  if (word == kGoesOn) return false;
  in_flight_ = false;
  if (word == kDurable) {
    if (control_.leads()) tell_durable();
    return true;
  }
  const std::string failure = control_.share(failure_).front();
  const std::string operation = fmt::format("save step {}", progress_.step);
  if (word == kReplaced) {
    throw Error(ExitCode::kRankLost, "checkpoint", operation, failure,
                "another start of this run goes on in its place");
  }
  // The rank that failed says so; the others end by its loss, and are not taken for it.
  if (control_.decide(failed_) != control_.rank()) control_.share("");
  throw Error(ExitCode::kStorage, "checkpoint", operation, failure,
              "free space or mend the disk, then start the same run again: it goes on from its last checkpoint");
}

RunSaver::Word RunSaver::leaders_word(const std::vector<std::string>& news) {
  for (std::size_t rank = 0; rank < news.size(); ++rank) {
    if (!news[rank].empty()) records_[rank] = news[rank];
  }
  std::vector<std::string> records;
  for (const std::optional<std::string>& record : records_) {
    if (!record) return kGoesOn;
    if (record->front() == '-' && failure_.empty()) {
      failure_ = record->substr(1);
      failed_ = static_cast<int>(records.size());
    }
    records.push_back(record->substr(1));
  }
  if (failure_.empty() && commit_ == nullptr) {
    start_commit(records);
    return kGoesOn;
  }
  Word word = kFailed;
  if (failure_.empty()) {
    const std::lock_guard lock(commit_->mutex);
    if (!commit_->ended) return kGoesOn;
    failure_ = commit_->error;
    failed_ = control_.rank();
    if (commit_->replaced) word = kReplaced;
  }
  if (failure_.empty()) return kDurable;
  commit_.reset();
  store_.abandon(progress_.step);
  return word;
}

void RunSaver::start_commit(const std::vector<std::string>& texts) {
  checkpoint::Manifest manifest = facts_->about;
  manifest.progress = progress_;
  manifest.reason = reason_;
  manifest.saved_at = env_.wall_time();
  manifest.tensors = checkpoint::states_of(plan_.table);
  std::vector<std::vector<checkpoint::ShardSlice>> slices;
  std::vector<checkpoint::ShardRecord> records;
  for (int rank = 0; rank < control_.ranks(); ++rank) {
    slices.push_back(checkpoint::slices_of_rank(plan_.table, plan_.layout, rank));
    records.push_back(checkpoint::shard_record_from_text(texts[static_cast<std::size_t>(rank)]));
  }
  checkpoint::add_shards(manifest, slices, records);
  commit_ = std::make_unique<Commit>();
  commit_->bytes = Bytes{manifest.bytes()};
  commit_->thread = std::thread([this, commit = commit_.get(), manifest = std::move(manifest)]() mutable {
    try {
      facts_->before_commit();
      manifest.model_files =
          checkpoint::write_model_files(env_, store_.partial_path_of(manifest.progress.step), facts_->model_files);
      commit->removal = store_.commit(manifest.progress.step, manifest, facts_->may_commit);
      facts_->after_commit();
      remove_older(*commit);
      commit->end("", env_.now());
    } catch (const Error& error) {
      commit->end(error.what(), env_.now(), error.code() == ExitCode::kRankLost);
    } catch (const std::exception& error) {
      commit->end(error.what(), env_.now());
    }
  });
}

// The checkpoint is there: that an older one cannot be removed is no failure of it.
void RunSaver::remove_older(Commit& commit) {
  try {
    const checkpoint::Removal removal = store_.retain(facts_->retention);
    commit.removal.steps = removal.steps;
    commit.removal.left.insert(commit.removal.left.end(), removal.left.begin(), removal.left.end());
  } catch (const Error& error) {
    commit.stays = error.what();
  }
}

void RunSaver::tell_durable() {
  const std::vector<std::int64_t> removed = commit_->removal.steps;
  tell_left(log_, store_.directory(), commit_->removal);
  if (!commit_->stays.empty()) {
    log_.warning("an older checkpoint stays, and takes its room: {}", commit_->stays);
  }
  const Seconds took{commit_->at.count - begun_.count};
  const Bytes bytes = commit_->bytes;
  commit_.reset();
  log_.info("checkpoint of step {} is durable: {} in {}{}", progress_.step, format_bytes(bytes), format_seconds(took),
            removed.empty() ? std::string() : fmt::format("; step {} removed", fmt::join(removed, ", ")));
  if (facts_->durable) facts_->durable(progress_.step);
  schedule_->written(took);
  if (const std::string text = schedule_->take_news(); !text.empty()) log_.info("{}", text);
}

}  // namespace trireme::train
