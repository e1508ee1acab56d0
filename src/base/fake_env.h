#pragma once

// An Env in memory, for tests: a disk (base/fake_disk.h) that fills, operations that fail on demand, a power loss that
// forgets what was never synced or leaves any part of it, and a clock that moves when told. Thread-safe.

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/fake_disk.h"

namespace trireme {

class FakeEnv : public Env {
 public:
  FakeEnv();
  ~FakeEnv() override;

  // The test's side.
  void put_file(const std::string& path, std::string_view content);  // durable at once, directories included
  std::string content(const std::string& path);                      // "" if there is no such file
  void advance(Seconds duration);                                    // moves now(), and wall_time() with it
  // The size of the disk: a write beyond it puts what there is room for and fails with "no space left on device". Room
  // that was reserved for a file is taken from the others.
  void limit_bytes(std::int64_t limit);
  // Operations are those that can fail: reads, writes, syncs, closes, renames and so on, counted from 1 at
  // this call. The n-th fails (or, for a crash, it and all after it, until the next call). 0 clears. A sync that fails
  // alone loses what it had to make durable: no later sync does it.
  void fail_operation(std::int64_t n);
  void fail_from_operation(std::int64_t n);
  std::int64_t operations() const;  // since the last of these calls, or since construction
  // Back to what the disk holds for certain: contents as last synced, names as of the last sync of their directory.
  // Readers, writers and locks from before are dead; nothing fails on demand any more.
  void lose_power();
  // The same, with some of that which was not synced: a random one of the states that FakeDisk::lose_power describes.
  CrashEffects lose_power(std::uint64_t seed);
  void set_resident_memory(ResidentMemory memory);
  // Which host and which of its processes this is; and the others that are alive there: none after a power loss.
  void set_host_name(std::string name);
  void set_process_id(std::int64_t id);
  void set_alive(std::int64_t process, bool alive);

  // Env. sleep() advances the clock and returns at once. A reader keeps the content that it opened.
  Seconds now() override;
  std::string wall_time() override;
  void sleep(Seconds duration) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  EntryKind kind_of(const std::string& path) override;
  std::string real_path(const std::string& path) override;
  std::int64_t file_size(const std::string& path) override;
  std::string read_file(const std::string& path) override;
  std::unique_ptr<RandomReader> open_reader(const std::string& path) override;
  std::unique_ptr<Writer> create_file(const std::string& path) override;
  std::unique_ptr<Writer> append_file(const std::string& path) override;
  void make_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_directory(const std::string& path) override;
  Bytes free_space(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  std::vector<std::string> list_directory(const std::string& path) override;
  ResidentMemory resident_memory() override;
  Bytes available_memory() override { return available_memory_; }
  // Every look at the clock moves it by so much.
  void set_tick(Seconds tick) { tick_ = tick.count; }
  void set_available_memory(Bytes bytes) { available_memory_ = bytes; }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override;
  std::int64_t process_id() override;
  bool process_is_alive(std::int64_t id) override;
  std::string boot_id() override;  // "boot 1", then "boot 2" after a power loss
  int core_count() override;
  std::string host_name() override;

 private:
  class FakeWriter;
  class FakeReader;
  class Lock;

  void restart();
  void count_operation(std::string_view operation, const std::string& path);
  // Of a handle of that start of the machine.
  void count_operation(std::string_view operation, const std::string& path, std::int64_t start);
  std::int64_t left_bytes() const;
  std::unique_ptr<Writer> open_writer(std::string_view operation, const std::string& path, bool truncate);

  mutable std::mutex mutex_;
  FakeDisk disk_;
  std::int64_t starts_ = 1;  // of the machine: one more after each power loss
  double clock_ = 0;
  double tick_ = 0;
  std::int64_t byte_limit_ = -1;
  std::int64_t operations_ = 0;
  std::int64_t failing_operation_ = 0;
  bool fail_all_after_ = false;
  ResidentMemory resident_memory_;
  std::string host_name_ = "host";
  std::int64_t process_id_ = 4242;
  std::set<std::int64_t> alive_;
  Bytes available_memory_{std::int64_t{1} << 40};
  std::shared_ptr<std::set<std::string>> locked_ = std::make_shared<std::set<std::string>>();
};

}  // namespace trireme
