// A small run saves, fails to save, fills its disk, removes old checkpoints, goes back to an earlier one; at any
// operation the machine loses its power, and the disk is in any state that it may then be in. What must hold: every
// checkpoint that is complete by its name is whole and is that of one moment; every one whose commit returned is there
// until the run removes it; the next save succeeds.
// TRIREME_CRASH_STATES: how many states, 1000 unless it is set.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fake_env.h"
#include "base/random.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* kDirectory = "run/checkpoints";
constexpr int kShards = 3;
constexpr std::int64_t kStepsBetweenSaves = 10;
constexpr int kSaves = 8;
constexpr Retention kRetention{2, 30};

// A disk whose owner forgets some syncs. Without rules: a FakeEnv.
struct Forgotten {
  std::function<bool(const std::string& path)> file_sync;
  // renamed_to: the newest rename's second name.
  std::function<bool(const std::string& path, const std::string& renamed_to)> directory_sync;
};

class ForgetfulEnv : public FakeEnv {
 public:
  explicit ForgetfulEnv(Forgotten forgotten) : forgotten_(std::move(forgotten)) {}

  std::unique_ptr<Writer> create_file(const std::string& path) override {
    std::unique_ptr<Writer> writer = FakeEnv::create_file(path);
    if (!forgotten_.file_sync || !forgotten_.file_sync(path)) return writer;
    return std::make_unique<ForgetfulWriter>(std::move(writer));
  }
  void rename(const std::string& from, const std::string& to) override {
    FakeEnv::rename(from, to);
    renamed_to_ = to;
  }
  void sync_directory(const std::string& path) override {
    if (!forgotten_.directory_sync || !forgotten_.directory_sync(path, renamed_to_)) FakeEnv::sync_directory(path);
  }

 private:
  class ForgetfulWriter : public Writer {
   public:
    explicit ForgetfulWriter(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
    void write(std::span<const std::byte> data) override { writer_->write(data); }
    void write_at(std::int64_t offset, std::span<const std::byte> data) override { writer_->write_at(offset, data); }
    void reserve(Bytes bytes) override { writer_->reserve(bytes); }
    void sync() override {}
    void close() override { writer_->close(); }

   private:
    std::unique_ptr<Writer> writer_;
  };

  Forgotten forgotten_;
  std::string renamed_to_;
};

std::vector<StoredState> states() {
  std::vector<StoredState> all;
  for (const plan::StateKind kind : plan::kStateKinds) {
    all.push_back({"layer.weight", kind, {48, 64}, DType::kF32, {}});
    all.push_back({"norm.weight", kind, {200}, DType::kF32, {}});
  }
  return all;
}

// The training state after a step, tensor by tensor. A run that went back and trained a step again has it in another
// version, so that a mixture of two shows.
using Values = std::vector<std::vector<float>>;
const Values& values_of(std::int64_t step, std::int64_t version) {
  static std::map<std::pair<std::int64_t, std::int64_t>, Values> made;
  Values& values = made[{step, version}];
  if (!values.empty()) return values;
  std::uint64_t tensor = 0;
  for (const StoredState& state : states()) {
    const RandomKey key{static_cast<std::uint64_t>(step),
                        stream_of("state", static_cast<std::uint64_t>(version), tensor)};
    std::vector<float>& of_tensor = values.emplace_back(static_cast<std::size_t>(state.rows() * state.columns()));
    for (std::size_t i = 0; i < of_tensor.size(); ++i) of_tensor[i] = random_uniform(key, i);
    ++tensor;
  }
  return values;
}

// Of each tensor a third of its rows; the last shard has the rest.
std::vector<ShardSlice> slices_of(int shard) {
  std::vector<ShardSlice> slices;
  const std::vector<StoredState> all = states();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t third = all[i].rows() / kShards;
    const std::int64_t end = shard + 1 == kShards ? all[i].rows() : (shard + 1) * third;
    slices.push_back({static_cast<int>(i), {{shard * third, end}, {0, all[i].columns()}}});
  }
  return slices;
}

struct Tally {
  std::int64_t states = 0, in_operation = 0, lost = 0, torn = 0, dropped = 0, reordered = 0, undecided = 0;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Forgotten forgotten)
      : key_{seed, stream_of("store simulation", "")}, seed_(seed), env_(std::move(forgotten)) {
    env_.put_file("run/run.toml", "");
    env_.limit_bytes(kRoom);
    store_.emplace(env_, kDirectory, 1);
  }

  // To the crash and past it. What was violated; empty: nothing.
  std::vector<std::string> run(Tally& tally) {
    try {
      for (int save = 0; save < kSaves && !crashed_; ++save) act();
    } catch (const Crash&) {
      crashed_ = true;
    }
    env_.fail_operation(0);
    env_.limit_bytes(kRoom);
    CrashEffects effects;
    if (!one_in(10)) effects = env_.lose_power(seed_);  // else the process alone was killed
    ++tally.states;
    tally.in_operation += crashed_ ? 1 : 0;
    tally.lost += effects.lost_anything() ? 1 : 0;
    tally.torn += effects.torn_writes > 0 ? 1 : 0;
    tally.dropped += effects.dropped_writes > 0 ? 1 : 0;
    tally.reordered += effects.reordered_names > 0 ? 1 : 0;
    tally.undecided += possible_ != certain_versions() ? 1 : 0;
    guard([&] { verify(); });
    return violations_;
  }

  // The next start of the run.
  std::vector<std::string> go_on() {
    guard([&] { save_again(); });
    return violations_;
  }

 private:
  struct Crash {};
  static constexpr std::int64_t kRoom = 10'000'000;

  std::uint64_t below(std::uint64_t count) { return random_bits(key_, draws_++) % count; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  void violated(std::string what) { violations_.push_back(std::move(what)); }

  // Before each piece of work: the power may go in one of its operations, or in one soon after it. The fourth is often
  // the sync of what a shard or a commit has just written.
  void arm() {
    if (armed_ || !one_in(28)) return;
    armed_ = true;
    env_.fail_from_operation(one_in(2) ? 4 : 1 + static_cast<std::int64_t>(below(20)));
  }
  // An Error ends the machine once it is armed; else the run goes on without that piece of work.
  bool done(const std::function<void()>& work) {
    arm();
    try {
      work();
      return true;
    } catch (const Error&) {
      if (armed_) throw Crash();
      return false;
    }
  }

  void act() {
    if (one_in(4) && visible_.size() > 1) go_back();
    step_ += kStepsBetweenSaves;
    if (!armed_ && one_in(4)) env_.fail_operation(1 + static_cast<std::int64_t>(below(30)));
    if (!armed_ && one_in(6)) env_.limit_bytes(kRoom - env_free() + static_cast<std::int64_t>(below(50'000)));
    const bool saved = done([&] { save(step_, version_); });
    if (!armed_) env_.fail_operation(0);
    env_.limit_bytes(kRoom);
    if (saved) {
      committed();
      retain();
    } else {
      arm();
      store_->abandon(step_);
      const std::vector<std::int64_t> steps = done_steps();
      if (!steps.empty() && steps.back() == step_) {
        visible_[step_] = version_;  // only its last sync failed
      } else {
        possible_.erase(step_);
      }
    }
  }

  std::int64_t env_free() {
    try {
      return env_.free_space(".").count;
    } catch (const Error&) {
      return kRoom;  // the operation that was to fail
    }
  }

  void save(std::int64_t step, std::int64_t version) {
    store_->begin(step);
    Manifest manifest;
    manifest.progress.step = step;
    manifest.progress.incarnation = version;
    manifest.tensors = states();
    std::vector<std::vector<ShardSlice>> slices;
    std::vector<ShardRecord> records;
    std::vector<float> buffer;
    const Values& values = values_of(step, version);
    for (int shard = 0; shard < kShards; ++shard) {
      arm();
      slices.push_back(slices_of(shard));
      const SliceBytes bytes = [&](std::size_t i) {
        const ShardSlice& slice = slices.back()[i];
        const auto tensor = static_cast<std::size_t>(slice.tensor);
        const std::int64_t columns = slice.box.columns.length();
        return std::as_bytes(std::span(values[tensor])
                                 .subspan(static_cast<std::size_t>(slice.box.rows.begin * columns),
                                          static_cast<std::size_t>(slice.box.elements())));
      };
      const std::string path = join_path(store_->partial_path_of(step), shard_name(shard));
      records.push_back(write_shard(env_, path, manifest.tensors, slices.back(), bytes));
    }
    add_shards(manifest, slices, records);
    arm();
    possible_[step].insert(version);
    store_->commit(step, manifest);
  }

  void committed() {
    visible_[step_] = version_;
    certain_ = visible_;  // the sync of a commit is of all names
    possible_ = certain_versions();
  }

  void retain() {
    std::vector<std::int64_t> removed;
    std::int64_t left = static_cast<std::int64_t>(visible_.size());
    for (const auto& [step, version] : visible_) {
      if (left-- > kRetention.keep_last && step % kRetention.keep_every != 0) removed.push_back(step);
    }
    for (const std::int64_t step : removed) certain_.erase(step);
    // Those set aside that the newest has reached are counted, with some that this test is not certain of.
    std::erase_if(aside_,
                  [this](const auto& one) { return !visible_.empty() && one.first <= visible_.rbegin()->first; });
    std::vector<std::int64_t> told;
    if (!done([&] { told = store_->retain(kRetention).steps; })) return violated("retain failed without a reason");
    if (told != removed) violated("retain removed others than it had to");
    for (const std::int64_t step : removed) {
      visible_.erase(step);
      possible_.erase(step);
    }
  }

  // To an earlier checkpoint, the later ones set aside.
  void go_back() {
    const auto to = std::next(visible_.begin(), static_cast<std::ptrdiff_t>(below(visible_.size() - 1)));
    const std::int64_t step = to->first;
    for (auto later = std::next(to); later != visible_.end(); ++later) {
      if (!certain_.contains(later->first)) continue;
      certain_.erase(later->first);
      aside_.emplace_back(later->first, later->second);
    }
    if (!done([&] { store_->set_aside_after(step); })) return violated("set_aside_after failed without a reason");
    visible_.erase(std::next(to), visible_.end());
    certain_ = visible_;
    possible_ = certain_versions();
    step_ = step;
    ++version_;
  }

  std::map<std::int64_t, std::set<std::int64_t>> certain_versions() const {
    std::map<std::int64_t, std::set<std::int64_t>> versions;
    for (const auto& [step, version] : certain_) versions[step] = {version};
    return versions;
  }

  // The version of a checkpoint whose every byte is as it was saved; else what is wrong is noted.
  std::optional<std::int64_t> version_at(const std::string& path, std::int64_t step) {
    for (const std::string& damage : damages_of(env_, path)) violated(damage);
    const Result<Reader> reader = Reader::open(env_, path);
    if (!reader.ok()) {
      violated(reader.failure().sentence());
      return std::nullopt;
    }
    const Manifest& manifest = reader->manifest();
    if (manifest.progress.step != step) violated(fmt::format("{} is of step {}", path, manifest.progress.step));
    const Values& expected = values_of(step, manifest.progress.incarnation);
    std::vector<float> buffer(static_cast<std::size_t>(reader->largest_slice().count) / sizeof(float));
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
      const StoredState& tensor = manifest.tensors[i];
      std::vector<float> values(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
      reader->read_box(tensor, {{0, tensor.rows()}, {0, tensor.columns()}}, std::as_writable_bytes(std::span(buffer)),
                       values);
      if (values != expected[i]) violated(fmt::format("{}: {} is not that of its step", path, tensor.name));
    }
    return manifest.progress.incarnation;
  }

  void guard(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      violated(error.what());
    }
  }

  std::vector<std::int64_t> done_steps() {
    std::vector<std::int64_t> steps;
    if (!done([&] { steps = store_->steps(); })) violated("steps() failed without a reason");
    return steps;
  }

  void verify() {
    store_.emplace(env_, kDirectory, 2);
    std::set<std::pair<std::int64_t, std::int64_t>> found;
    std::map<std::int64_t, std::int64_t> complete;
    for (const std::int64_t step : store_->steps()) {
      const std::optional<std::int64_t> version = version_at(store_->path_of(step), step);
      if (!version) continue;
      complete[step] = *version;
      found.emplace(step, *version);
      if (!possible_[step].contains(*version)) violated(fmt::format("step {} is back after its removal", step));
    }
    for (const auto& [step, version] : certain_) {
      if (!complete.contains(step) || complete[step] != version) violated(fmt::format("step {} is lost", step));
    }
    if (!env_.is_directory(kDirectory)) return;
    for (const std::string& name : env_.list_directory(kDirectory)) {
      const std::size_t at = name.find(".aside");
      if (at == std::string::npos) continue;
      const std::int64_t step = *step_of_name(name.substr(0, at));
      if (const auto version = version_at(join_path(kDirectory, name), step)) found.emplace(step, *version);
    }
    for (const auto& [step, version] : aside_) {
      if (!found.contains({step, version})) violated(fmt::format("step {}, set aside, is lost", step));
    }
  }

  void save_again() {
    store_->remove_partial();
    const std::vector<std::int64_t> before = store_->steps();
    const std::int64_t step = (before.empty() ? 0 : before.back()) + kStepsBetweenSaves;
    armed_ = true;  // no more crashes
    save(step, ++version_);
    env_.lose_power();
    std::vector<std::int64_t> expected = before;
    expected.push_back(step);
    if (store_->steps() != expected) violated("the save after the crash is not durable");
    for (const std::int64_t kept : store_->steps()) version_at(store_->path_of(kept), kept);
    for (const std::string& name : env_.list_directory(kDirectory)) {
      if (name.ends_with(".partial")) violated(name + " is left");
    }
  }

  RandomKey key_;
  std::uint64_t draws_ = 0;
  std::uint64_t seed_;
  ForgetfulEnv env_;
  std::optional<Store> store_;
  bool armed_ = false;
  bool crashed_ = false;
  std::int64_t step_ = 0;
  std::int64_t version_ = 1;
  std::map<std::int64_t, std::int64_t> visible_;             // version of each step that is complete by its name
  std::map<std::int64_t, std::int64_t> certain_;             // of those that no crash may take
  std::map<std::int64_t, std::set<std::int64_t>> possible_;  // of those that a crash may leave
  std::vector<std::pair<std::int64_t, std::int64_t>> aside_;
  std::vector<std::string> violations_;
};

std::int64_t state_count() {
  const char* given = std::getenv("TRIREME_CRASH_STATES");
  return given != nullptr ? std::max(1LL, std::atoll(given)) : 1000;
}

TEST(StoreSimulation, NothingIsLostInAnyStateAfterACrash) {
  Tally tally;
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t seed = 0; seed < state_count(); ++seed) {
    Simulation simulation(static_cast<std::uint64_t>(seed), {});
    std::vector<std::string> violations = simulation.run(tally);
    if (violations.empty()) violations = simulation.go_on();
    for (const std::string& violation : violations) ADD_FAILURE() << "seed " << seed << ": " << violation;
    if (HasFailure()) return;
  }
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
  // Else there would be nothing to survive.
  if (tally.states >= 200) {
    EXPECT_GT(tally.in_operation, tally.states / 2);
    EXPECT_GT(tally.lost, tally.states / 2);
    EXPECT_GT(tally.torn, tally.states / 100);
    EXPECT_GT(tally.dropped, tally.states / 100);
    EXPECT_GT(tally.reordered, tally.states / 5);
    EXPECT_GT(tally.undecided, tally.states / 10);
  }
  fmt::print(
      "{} crash states, {:.2f} ms each: {} in an operation, {} lost something that was not synced, {} with a torn "
      "write, {} with a dropped one, {} with names out of order, {} with a checkpoint that might be there or not\n",
      tally.states, elapsed.count() / static_cast<double>(tally.states), tally.in_operation, tally.lost, tally.torn,
      tally.dropped, tally.reordered, tally.undecided);
}

// The simulation sees it when a sync is left out. The sync of the partial directory before the manifest is written is
// not among them: the one after it does the same again.
struct Mutant {
  const char* name;
  Forgotten forgotten;
};

class StoreMutants : public testing::TestWithParam<Mutant> {};

TEST_P(StoreMutants, AreCaught) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Simulation simulation(seed, GetParam().forgotten);
    const std::vector<std::string> violations = simulation.run(tally);
    if (violations.empty()) continue;
    fmt::print("{}: caught in state {}: {}\n", GetParam().name, seed, violations[0]);
    return;
  }
  FAIL() << "not caught in 1000 states";
}

Forgotten forget_files(const std::string& part_of_name) {
  return {[=](const std::string& path) { return path.find(part_of_name) != std::string::npos; }, nullptr};
}
Forgotten forget_directories(const std::string& end) {
  return {nullptr, [=](const std::string& path, const std::string&) { return path.ends_with(end); }};
}
Forgotten forget_after_rename(const std::string& part_of_name) {
  return {nullptr, [=](const std::string& path, const std::string& renamed_to) {
            return path == kDirectory && renamed_to.find(part_of_name) != std::string::npos;
          }};
}

INSTANTIATE_TEST_SUITE_P(Syncs, StoreMutants,
                         testing::Values(Mutant{"Shards", forget_files("part-")},
                                         Mutant{"Manifest", forget_files(kManifestFile)},
                                         Mutant{"NamesOfFiles", forget_directories(".partial")},
                                         Mutant{"NamesOfCheckpoints", forget_directories("checkpoints")},
                                         Mutant{"NameOfTheirDirectory", forget_directories("run")},
                                         Mutant{"RemovalBeforeItsFiles", forget_after_rename(".partial")},
                                         Mutant{"SettingAside", forget_after_rename(".aside")}),
                         [](const testing::TestParamInfo<Mutant>& mutant) { return std::string(mutant.param.name); });

}  // namespace
}  // namespace trireme::checkpoint
