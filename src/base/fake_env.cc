#include "base/fake_env.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::int64_t kProcessId = 4242;
constexpr int kCores = 2;
constexpr std::int64_t kSecondsOfDay = 86400;

[[noreturn]] void fail(ExitCode code, std::string_view operation, const std::string& path, std::string reason) {
  throw Error(code, "files", fmt::format("{} {}", operation, path), std::move(reason));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

struct FakeEnv::File {
  std::string content;
  std::string synced;  // what a power loss leaves
};

class FakeEnv::FakeWriter : public Writer {
 public:
  FakeWriter(FakeEnv& env, std::string path, std::shared_ptr<File> file)
      : env_(env), path_(std::move(path)), file_(std::move(file)), end_(file_->content.size()) {}

  void write(std::span<const std::byte> data) override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("write", path_);
    env_.write(*file_, path_, end_, data);
    end_ += data.size();
  }
  void write_at(std::int64_t offset, std::span<const std::byte> data) override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("write", path_);
    env_.write(*file_, path_, static_cast<std::size_t>(offset), data);
  }
  void sync() override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("sync", path_);
    file_->synced = file_->content;
  }
  void close() override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("close", path_);
  }

 private:
  FakeEnv& env_;
  std::string path_;
  std::shared_ptr<File> file_;
  std::size_t end_;
};

class FakeEnv::FakeReader : public RandomReader {
 public:
  FakeReader(FakeEnv& env, std::string path, std::string content)
      : env_(env), path_(std::move(path)), content_(std::move(content)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(content_.size()); }
  void read_at(std::int64_t offset, std::span<std::byte> out) const override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("read", path_);
    const auto size = static_cast<std::int64_t>(content_.size());
    if (offset < 0 || offset > size || static_cast<std::int64_t>(out.size()) > size - offset) {
      fail(ExitCode::kStorage, "read", path_,
           fmt::format("the file ends at byte {}, {} were asked for at {}", size, out.size(), offset));
    }
    if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
  }

 private:
  FakeEnv& env_;
  std::string path_;
  std::string content_;
};

class FakeEnv::FakeMapping : public MappedFile {
 public:
  explicit FakeMapping(std::string content) : content_(std::move(content)) {}
  std::span<const std::byte> bytes() const override { return bytes_of(content_); }

 private:
  std::string content_;
};

FakeEnv::FakeEnv() = default;
FakeEnv::~FakeEnv() = default;

void FakeEnv::put_file(const std::string& path, std::string_view content) {
  const std::scoped_lock lock(mutex_);
  names_[path] = durable_names_[path] = std::make_shared<File>(File{std::string(content), std::string(content)});
}

std::string FakeEnv::content(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto found = names_.find(path);
  return found == names_.end() ? "" : found->second->content;
}

void FakeEnv::advance(Seconds duration) {
  const std::scoped_lock lock(mutex_);
  clock_ += duration.count;
}

void FakeEnv::limit_bytes(std::int64_t limit) {
  const std::scoped_lock lock(mutex_);
  byte_limit_ = limit;
}

void FakeEnv::fail_operation(std::int64_t n) {
  const std::scoped_lock lock(mutex_);
  operations_ = 0;
  failing_operation_ = n;
  fail_all_after_ = false;
}

void FakeEnv::fail_from_operation(std::int64_t n) {
  fail_operation(n);
  const std::scoped_lock lock(mutex_);
  fail_all_after_ = true;
}

std::int64_t FakeEnv::operations() const {
  const std::scoped_lock lock(mutex_);
  return operations_;
}

void FakeEnv::lose_power() {
  const std::scoped_lock lock(mutex_);
  names_ = durable_names_;
  for (auto& [path, file] : names_) file->content = file->synced;
}

void FakeEnv::set_resident_memory(ResidentMemory memory) {
  const std::scoped_lock lock(mutex_);
  resident_memory_ = memory;
}

Seconds FakeEnv::now() {
  const std::scoped_lock lock(mutex_);
  clock_ += tick_;
  return {clock_};
}

// The clock's zero is 2000-01-01T00:00:00Z; a test stays within that month.
std::string FakeEnv::wall_time() {
  const std::scoped_lock lock(mutex_);
  const auto seconds = static_cast<std::int64_t>(clock_);
  const std::int64_t of_day = seconds % kSecondsOfDay;
  return fmt::format("2000-01-{:02}T{:02}:{:02}:{:02}Z", 1 + seconds / kSecondsOfDay, of_day / 3600, of_day / 60 % 60,
                     of_day % 60);
}

void FakeEnv::sleep(Seconds duration) { advance(duration); }

bool FakeEnv::exists(const std::string& path) {
  {
    const std::scoped_lock lock(mutex_);
    if (names_.contains(path)) return true;
  }
  return is_directory(path);
}

bool FakeEnv::is_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (path == "." || path == "/" || directories_.contains(path)) return true;
  const auto inside = names_.lower_bound(path + "/");
  return inside != names_.end() && inside->first.starts_with(path + "/");
}

std::int64_t FakeEnv::file_size(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(find_file("read the size of", path)->content.size());
}

std::string FakeEnv::read_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  return find_file("read", path)->content;
}

std::unique_ptr<MappedFile> FakeEnv::map_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  return std::make_unique<FakeMapping>(find_file("map", path)->content);
}

std::unique_ptr<RandomReader> FakeEnv::open_reader(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  return std::make_unique<FakeReader>(*this, path, find_file("open", path)->content);
}

std::unique_ptr<Writer> FakeEnv::create_file(const std::string& path) { return open_writer("create", path, true); }

std::unique_ptr<Writer> FakeEnv::append_file(const std::string& path) { return open_writer("append to", path, false); }

void FakeEnv::make_directories(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("create the directory", path);
  for (std::string prefix = path; prefix != "." && prefix != "/"; prefix = directory_name(prefix)) {
    if (names_.contains(prefix)) fail(ExitCode::kUsage, "create the directory", path, "Not a directory");
    directories_.insert(prefix);
  }
}

void FakeEnv::rename(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(mutex_);
  const std::shared_ptr<File> file = find_file(fmt::format("rename to {}", to), from);
  names_[to] = file;
  names_.erase(from);
}

void FakeEnv::remove_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  find_file("remove", path);
  names_.erase(path);
}

void FakeEnv::sync_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("sync", path);
  std::erase_if(durable_names_, [&](const auto& entry) { return directory_name(entry.first) == path; });
  for (const auto& [name, file] : names_) {
    if (directory_name(name) == path) durable_names_[name] = file;
  }
}

std::vector<std::string> FakeEnv::list_directory(const std::string& path) {
  if (!is_directory(path)) fail(ExitCode::kUsage, "list", path, "No such file or directory");
  const std::scoped_lock lock(mutex_);
  count_operation("list", path);
  std::set<std::string> found;
  const std::string prefix = path == "." ? "" : path == "/" ? "/" : path + "/";
  const auto add = [&](const std::string& name) {
    if (name.size() > prefix.size() && name.starts_with(prefix)) {
      found.insert(name.substr(prefix.size(), name.find('/', prefix.size()) - prefix.size()));
    }
  };
  for (const auto& [name, file] : names_) add(name);
  for (const std::string& name : directories_) add(name);
  return {found.begin(), found.end()};
}

ResidentMemory FakeEnv::resident_memory() {
  const std::scoped_lock lock(mutex_);
  return resident_memory_;
}

std::int64_t FakeEnv::process_id() { return kProcessId; }
std::unique_ptr<FileLock> FakeEnv::try_lock(const std::string& path) {
  class Lock : public FileLock {
   public:
    Lock(std::shared_ptr<std::set<std::string>> held, std::string path)
        : held_(std::move(held)), path_(std::move(path)) {}
    ~Lock() override { held_->erase(path_); }

   private:
    std::shared_ptr<std::set<std::string>> held_;
    std::string path_;
  };
  if (!locked_->insert(path).second) return nullptr;
  return std::make_unique<Lock>(locked_, path);
}

int FakeEnv::core_count() { return kCores; }
std::string FakeEnv::host_name() { return "host"; }

void FakeEnv::count_operation(std::string_view operation, const std::string& path) {
  ++operations_;
  if (failing_operation_ == 0 || operations_ < failing_operation_) return;
  if (operations_ == failing_operation_ || fail_all_after_) {
    fail(ExitCode::kStorage, operation, path, "Input/output error");
  }
}

std::shared_ptr<FakeEnv::File> FakeEnv::find_file(std::string_view operation, const std::string& path) {
  count_operation(operation, path);
  const auto found = names_.find(path);
  if (found == names_.end()) fail(ExitCode::kUsage, operation, path, "No such file or directory");
  return found->second;
}

std::unique_ptr<Writer> FakeEnv::open_writer(std::string_view operation, const std::string& path, bool truncate) {
  const std::string directory = directory_name(path);
  if (!is_directory(directory)) fail(ExitCode::kUsage, operation, path, "No such file or directory");
  if (is_directory(path)) fail(ExitCode::kUsage, operation, path, "Is a directory");
  const std::scoped_lock lock(mutex_);
  count_operation(operation, path);
  std::shared_ptr<File>& file = names_[path];
  if (file == nullptr) file = std::make_shared<File>();
  if (truncate) file->content.clear();
  return std::make_unique<FakeWriter>(*this, path, file);
}

void FakeEnv::write(File& file, const std::string& path, std::size_t offset, std::span<const std::byte> data) {
  const std::size_t end = std::max(file.content.size(), offset + data.size());
  if (byte_limit_ >= 0) {
    auto total = static_cast<std::int64_t>(end - file.content.size());
    for (const auto& [name, other] : names_) total += static_cast<std::int64_t>(other->content.size());
    if (total > byte_limit_) fail(ExitCode::kStorage, "write", path, "No space left on device");
  }
  file.content.resize(end);
  if (!data.empty()) std::memcpy(file.content.data() + offset, data.data(), data.size());
}

}  // namespace trireme
