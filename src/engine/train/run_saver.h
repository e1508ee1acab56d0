#pragma once

// Saving a run: all ranks write their parts, the leader makes a checkpoint of them. Every rank has one, and calls it at
// the same points of its loop; the leader alone touches the store and decides.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "checkpoint/model_files.h"
#include "checkpoint/store.h"
#include "engine/train/control.h"
#include "engine/train/rank_saver.h"
#include "engine/train/save_schedule.h"

namespace trireme::train {

// Room that one checkpoint takes, at most.
Bytes save_bytes(const model::ParameterTable& table, const plan::Layout& layout);

// What the leader knows of the run beside its plan.
struct SaveFacts {
  checkpoint::Manifest about;  // program, layout, model, run, data: what every manifest of this run says
  std::vector<checkpoint::ModelFile> model_files = {};  // that every checkpoint carries
  checkpoint::Retention retention;
  // On another thread, around the moment from which the checkpoint is there: makes durable what must not be older;
  // throws where this run may write no more (Store::commit asks it); knows that there is one.
  std::function<void()> before_commit, may_commit, after_commit;
  // On the leader's thread, once it can no longer be lost; may be null.
  std::function<void(std::int64_t step)> durable = nullptr;
};

class RunSaver {
 public:
  // facts, schedule: the leader's; null on the others. References outlive it. written (may be null): called by a thread
  // that has written this rank's part of a step, before anybody hears of it.
  RunSaver(Env& env, Log& log, checkpoint::Store store, const parallel::RunPlan& plan, kernels::Device& device,
           Control& control, const SaveFacts* facts, SaveSchedule* schedule,
           std::function<void(std::int64_t step)> written = nullptr);
  ~RunSaver();

  // All ranks, together. While a save is in flight poll() asks how it stands, and commits it once all parts are there:
  // once a step. save() waits for one in flight, then begins another: blocks for the copy, or with tile staging until
  // it is durable. wait() blocks until nothing is in flight. What failed anywhere is an Error(kStorage) on all ranks,
  // and nothing of it is left; Error(kRankLost) where another start of the run has taken its directory.
  void poll();
  void save(parallel::RankState& state, const checkpoint::Progress& progress, const std::string& reason);
  void wait();

  // The leader's. False, and a warning, where the disk has less left than a save needs.
  bool has_room();
  // The same of a save that the run cannot do without: waits for room for kDiskPatience.
  bool wait_for_room();
  Bytes bytes() const { return bytes_; }
  std::int64_t saved_step() const { return saved_; }  // of the newest begun; -1: none
  Seconds last_stall() const { return stall_; }

 private:
  struct Commit;
  enum Word : std::int64_t { kGoesOn, kDurable, kFailed, kReplaced };
  bool settle();
  Seconds since(Seconds moment) { return {env_.now().count - moment.count}; }
  std::string own_news();
  Word leaders_word(const std::vector<std::string>& news);
  void start_commit(const std::vector<std::string>& texts);
  void remove_older(Commit& commit);
  void tell_durable();
  void tell_waiting(Seconds waited);

  Env& env_;
  Log& log_;
  const parallel::RunPlan& plan_;
  Control& control_;
  const SaveFacts* facts_;
  SaveSchedule* schedule_;
  const std::function<void(std::int64_t)> written_;
  checkpoint::Store store_;
  Bytes bytes_;
  std::int64_t saved_ = -1;
  Seconds stall_;
  // Of the save in flight.
  bool in_flight_ = false;
  bool told_ = false;  // the leader has this rank's outcome
  Seconds begun_;
  checkpoint::Progress progress_;
  std::string reason_, failure_;
  int failed_ = 0;                                   // the rank that this is of
  std::vector<std::optional<std::string>> records_;  // the leader's, by rank
  std::unique_ptr<Commit> commit_;
  RankSaver saver_;  // ends first
};

}  // namespace trireme::train
