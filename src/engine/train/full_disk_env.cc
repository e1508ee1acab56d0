#include "engine/train/full_disk_env.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace trireme::train {
namespace {

using Full = std::function<bool(const std::string&)>;

class FullDiskWriter : public Writer {
 public:
  FullDiskWriter(std::unique_ptr<Writer> inner, std::string path, const Full& full)
      : inner_(std::move(inner)), path_(std::move(path)), full_(full) {}
  void write(std::span<const std::byte> data) override {
    check("write");
    inner_->write(data);
  }
  void write_at(std::int64_t offset, std::span<const std::byte> data) override {
    check("write");
    inner_->write_at(offset, data);
  }
  void reserve(Bytes bytes) override {
    check("reserve room for");
    inner_->reserve(bytes);
  }
  void sync() override { inner_->sync(); }
  void close() override { inner_->close(); }

 private:
  void check(const char* what) const {
    if (!full_(path_)) return;
    throw Error(ExitCode::kStorage, "files", fmt::format("{} {}", what, path_), "No space left on device");
  }

  std::unique_ptr<Writer> inner_;
  const std::string path_;
  const Full& full_;
};

class FullDiskEnv : public Env {
 public:
  FullDiskEnv(Env& inner, Full full) : inner_(inner), full_(std::move(full)) {}

  std::unique_ptr<Writer> create_file(const std::string& path) override {
    return std::make_unique<FullDiskWriter>(inner_.create_file(path), path, full_);
  }
  std::unique_ptr<Writer> append_file(const std::string& path) override {
    return std::make_unique<FullDiskWriter>(inner_.append_file(path), path, full_);
  }

  Seconds now() override { return inner_.now(); }
  std::string wall_time() override { return inner_.wall_time(); }
  void sleep(Seconds duration) override { inner_.sleep(duration); }
  bool exists(const std::string& path) override { return inner_.exists(path); }
  bool is_directory(const std::string& path) override { return inner_.is_directory(path); }
  std::string real_path(const std::string& path) override { return inner_.real_path(path); }
  std::int64_t file_size(const std::string& path) override { return inner_.file_size(path); }
  std::string read_file(const std::string& path) override { return inner_.read_file(path); }
  std::unique_ptr<MappedFile> map_file(const std::string& path) override { return inner_.map_file(path); }
  std::unique_ptr<RandomReader> open_reader(const std::string& path) override { return inner_.open_reader(path); }
  void make_directories(const std::string& path) override { inner_.make_directories(path); }
  void rename(const std::string& from, const std::string& to) override { inner_.rename(from, to); }
  void remove_file(const std::string& path) override { inner_.remove_file(path); }
  void remove_directory(const std::string& path) override { inner_.remove_directory(path); }
  void sync_directory(const std::string& path) override { inner_.sync_directory(path); }
  std::vector<std::string> list_directory(const std::string& path) override { return inner_.list_directory(path); }
  Bytes free_space(const std::string& path) override { return inner_.free_space(path); }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override { return inner_.try_lock(path); }
  ResidentMemory resident_memory() override { return inner_.resident_memory(); }
  Bytes available_memory() override { return inner_.available_memory(); }
  bool process_is_alive(std::int64_t id) override { return inner_.process_is_alive(id); }
  std::string boot_id() override { return inner_.boot_id(); }
  std::int64_t process_id() override { return inner_.process_id(); }
  int core_count() override { return inner_.core_count(); }
  std::string host_name() override { return inner_.host_name(); }
  bool stderr_is_terminal() override { return inner_.stderr_is_terminal(); }

 private:
  Env& inner_;
  const Full full_;
};

}  // namespace

std::unique_ptr<Env> make_full_disk_env(Env& inner, std::function<bool(const std::string&)> full) {
  return std::make_unique<FullDiskEnv>(inner, std::move(full));
}

}  // namespace trireme::train
