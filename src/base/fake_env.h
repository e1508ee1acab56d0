#pragma once

// An Env in memory, for tests: files in a map, a clock that moves when told, a disk that fills, operations
// that fail on demand, and a power loss that forgets what was never synced. Thread-safe.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/env.h"

namespace trireme {

class FakeEnv : public Env {
 public:
  FakeEnv();
  ~FakeEnv() override;

  // The test's side.
  void put_file(const std::string& path, std::string_view content);  // durable at once, directories included
  std::string content(const std::string& path);                      // "" if there is no such file
  void advance(Seconds duration);                                    // moves now(), and wall_time() with it
  // Writes that would bring the total size of all files beyond this fail with "no space left on device".
  void limit_bytes(std::int64_t limit);
  // Operations are those that can fail: reads, writes, syncs, closes, renames and so on, counted from 1 at
  // this call. The n-th fails (or, for a crash, it and all after it, until the next call). 0 clears.
  void fail_operation(std::int64_t n);
  void fail_from_operation(std::int64_t n);
  std::int64_t operations() const;  // since the last of these calls, or since construction
  // Back to what a disk would hold: contents as last synced, names as of the last sync of their directory.
  void lose_power();
  void set_resident_memory(ResidentMemory memory);

  // Env. sleep() advances the clock and returns at once. A reader keeps the content that it opened.
  Seconds now() override;
  std::string wall_time() override;
  void sleep(Seconds duration) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  std::int64_t file_size(const std::string& path) override;
  std::string read_file(const std::string& path) override;
  std::unique_ptr<MappedFile> map_file(const std::string& path) override;
  std::unique_ptr<RandomReader> open_reader(const std::string& path) override;
  std::unique_ptr<Writer> create_file(const std::string& path) override;
  std::unique_ptr<Writer> append_file(const std::string& path) override;
  void make_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  std::vector<std::string> list_directory(const std::string& path) override;
  ResidentMemory resident_memory() override;
  Bytes available_memory() override { return available_memory_; }
  // Every look at the clock moves it by so much.
  void set_tick(Seconds tick) { tick_ = tick.count; }
  void set_available_memory(Bytes bytes) { available_memory_ = bytes; }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override;
  std::int64_t process_id() override;
  int core_count() override;
  std::string host_name() override;
  bool stderr_is_terminal() override { return false; }

 private:
  struct File;
  class FakeWriter;
  class FakeReader;
  class FakeMapping;
  using Names = std::map<std::string, std::shared_ptr<File>>;

  void count_operation(std::string_view operation, const std::string& path);
  std::shared_ptr<File> find_file(std::string_view operation, const std::string& path);
  std::unique_ptr<Writer> open_writer(std::string_view operation, const std::string& path, bool truncate);
  void write(File& file, const std::string& path, std::size_t offset, std::span<const std::byte> data);

  mutable std::mutex mutex_;
  Names names_;
  Names durable_names_;
  std::set<std::string> directories_;
  double clock_ = 0;
  double tick_ = 0;
  std::int64_t byte_limit_ = -1;
  std::int64_t operations_ = 0;
  std::int64_t failing_operation_ = 0;
  bool fail_all_after_ = false;
  ResidentMemory resident_memory_;
  Bytes available_memory_{std::int64_t{1} << 40};
  std::shared_ptr<std::set<std::string>> locked_ = std::make_shared<std::set<std::string>>();
};

}  // namespace trireme
