#pragma once

// An Env that hands everything on to another, for those that change a part of it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"

namespace trireme {

class ForwardingEnv : public Env {
 public:
  explicit ForwardingEnv(Env& inner) : inner_(inner) {}  // which outlives it

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
  std::vector<std::string> remove_owned(const std::string& path,
                                        const std::function<bool(const std::string& name)>& ours) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  std::vector<std::string> list_directory(const std::string& path) override;
  Bytes free_space(const std::string& path) override;
  std::unique_ptr<FileLock> try_lock(const std::string& path) override;
  ResidentMemory resident_memory() override;
  Bytes available_memory() override;
  std::int64_t process_id() override;
  bool process_is_alive(std::int64_t id) override;
  std::string boot_id() override;
  int core_count() override;
  std::string host_name() override;

 protected:
  Env& inner() const { return inner_; }

 private:
  Env& inner_;
};

}  // namespace trireme
