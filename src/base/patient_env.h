#pragma once

// An Env that waits for what may pass: a full disk, and, of the directory that it watches, that it is not there, may
// not be read or written for now. A wait is told once, when it begins, and once when it is over; where it takes longer
// than kDiskPatience the operation fails with kStorage, whatever its code would have been. All else fails at once.
// A failed sync too: what it had to make durable may be lost, and no second one brings it back.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file_error.h"
#include "base/forwarding_env.h"
#include "base/log.h"

namespace trireme {

inline constexpr Seconds kDiskPatience{30};

class PatientEnv : public ForwardingEnv {
 public:
  // References outlive it. The directory is watched from watch() on: before, that it is not there is an answer.
  PatientEnv(Env& inner, Log& log, std::string directory);
  void watch() { watches_ = true; }

  // Of what lies in the directory, these wait until it is there again, and then answer.
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  EntryKind kind_of(const std::string& path) override;
  // In the directory: never makes that itself.
  void make_directories(const std::string& path) override;

  std::string real_path(const std::string& path) override;
  std::int64_t file_size(const std::string& path) override;
  std::string read_file(const std::string& path) override;
  std::unique_ptr<RandomReader> open_reader(const std::string& path) override;
  std::unique_ptr<Writer> create_file(const std::string& path) override;
  std::unique_ptr<Writer> append_file(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_directory(const std::string& path) override;
  // Wait for the directory alone: that a file is not permitted to be removed is its owner's wish.
  std::vector<std::string> remove_owned(const std::string& path,
                                        const std::function<bool(const std::string& name)>& ours) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  std::vector<std::string> list_directory(const std::string& path) override;
  Bytes free_space(const std::string& path) override;

 private:
  class PatientWriter;
  class Wait;

  template <class Act>
  auto patiently(const std::string& path, const Act& act);
  bool is_inside(const std::string& path) const;
  bool directory_is_there();
  void wait_for_directory(const std::string& path);
  bool may_pass(const FileError& error, const std::string& path);
  void begin_wait(const std::string& what);
  void end_wait();

  Log& log_;
  const std::string directory_;
  std::atomic<bool> watches_ = false;
  std::mutex mutex_;
  int waiting_ = 0;  // operations that wait: the first tells, and the last
};

}  // namespace trireme
