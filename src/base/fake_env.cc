#include "base/fake_env.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"

namespace trireme {
namespace {

constexpr int kCores = 2;
constexpr std::int64_t kSecondsOfDay = 86400;

[[noreturn]] void fail(ExitCode code, std::string_view operation, const std::string& path, std::string reason) {
  throw Error(code, "files", fmt::format("{} {}", operation, path), std::move(reason));
}

}  // namespace

class FakeEnv::FakeWriter : public Writer {
 public:
  FakeWriter(FakeEnv& env, std::string path, FakeDisk::NodePointer file, bool appends)
      : env_(env), path_(std::move(path)), file_(std::move(file)), start_(env_.starts_), appends_(appends) {}

  void write(std::span<const std::byte> data) override {
    const std::scoped_lock lock(env_.mutex_);
    begin("write");
    if (appends_) end_ = FakeDisk::content(*file_).size();
    const std::size_t fits = put(end_, data);
    end_ += fits;
    if (fits < data.size()) fail_for_space("write", fits);
  }
  void write_at(std::int64_t offset, std::span<const std::byte> data) override {
    const std::scoped_lock lock(env_.mutex_);
    begin("write");
    const std::size_t fits = put(static_cast<std::size_t>(offset), data);
    if (fits < data.size()) fail_for_space("write", fits);
  }
  void reserve(Bytes bytes) override {
    const std::scoped_lock lock(env_.mutex_);
    begin("reserve room for");
    if (bytes.count - FakeDisk::room(*file_) > env_.left_bytes()) fail_for_space("reserve room for");
    FakeDisk::reserve(*file_, bytes.count);
  }
  void sync() override {
    const std::scoped_lock lock(env_.mutex_);
    try {
      begin("sync");
    } catch (const Error&) {
      if (start_ == env_.starts_ && !env_.fail_all_after_) FakeDisk::fail_sync(*file_);
      throw;
    }
    FakeDisk::sync(*file_);
  }
  void close() override {
    const std::scoped_lock lock(env_.mutex_);
    if (std::exchange(closed_, true)) return;
    env_.count_operation("close", path_, start_);
  }

 private:
  void begin(std::string_view operation) {
    env_.count_operation(operation, path_, start_);
    if (closed_) fail(ExitCode::kStorage, operation, path_, "Bad file descriptor");
  }
  // Gives the bytes that the disk had room for.
  std::size_t put(std::size_t offset, std::span<const std::byte> data) {
    const std::int64_t more = static_cast<std::int64_t>(offset + data.size()) - FakeDisk::room(*file_);
    const std::int64_t lacking = std::max<std::int64_t>(0, more - env_.left_bytes());
    const std::size_t fits = data.size() - std::min(data.size(), static_cast<std::size_t>(lacking));
    FakeDisk::write(*file_, offset, data.first(fits));
    return fits;
  }
  [[noreturn]] void fail_for_space(std::string_view operation, std::size_t put = 0) const {
    throw FileError(operation, path_, ENOSPC, put);
  }

  FakeEnv& env_;
  std::string path_;
  FakeDisk::NodePointer file_;
  std::int64_t start_;
  bool appends_;
  bool closed_ = false;
  std::size_t end_ = 0;
};

class FakeEnv::FakeReader : public RandomReader {
 public:
  FakeReader(FakeEnv& env, std::string path, std::string content)
      : env_(env), path_(std::move(path)), content_(std::move(content)), start_(env_.starts_) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(content_.size()); }
  void read_at(std::int64_t offset, std::span<std::byte> out) const override {
    const std::scoped_lock lock(env_.mutex_);
    env_.count_operation("read", path_, start_);
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
  std::int64_t start_;
};

FakeEnv::FakeEnv() = default;
FakeEnv::~FakeEnv() = default;

void FakeEnv::put_file(const std::string& path, std::string_view content) {
  const std::scoped_lock lock(mutex_);
  disk_.put_file(path, content);
}

std::string FakeEnv::content(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const FakeDisk::NodePointer node = disk_.find(path);
  return node == nullptr ? "" : FakeDisk::content(*node);
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
  disk_.lose_power();
  restart();
}

CrashEffects FakeEnv::lose_power(std::uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  const CrashEffects effects = disk_.lose_power(seed);
  restart();
  return effects;
}

void FakeEnv::restart() {
  ++starts_;
  failing_operation_ = 0;
  locked_ = std::make_shared<std::set<std::string>>();
  alive_.clear();
}

void FakeEnv::set_resident_memory(ResidentMemory memory) {
  const std::scoped_lock lock(mutex_);
  resident_memory_ = memory;
}

void FakeEnv::set_host_name(std::string name) {
  const std::scoped_lock lock(mutex_);
  host_name_ = std::move(name);
}

void FakeEnv::set_process_id(std::int64_t id) {
  const std::scoped_lock lock(mutex_);
  process_id_ = id;
}

void FakeEnv::set_alive(std::int64_t process, bool alive) {
  const std::scoped_lock lock(mutex_);
  alive ? (void)alive_.insert(process) : (void)alive_.erase(process);
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
  const std::scoped_lock lock(mutex_);
  return disk_.find(path) != nullptr;
}

bool FakeEnv::is_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const FakeDisk::NodePointer node = disk_.find(path);
  return node != nullptr && FakeDisk::is_directory(*node);
}

EntryKind FakeEnv::kind_of(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const FakeDisk::NodePointer node = disk_.find(path);
  if (node == nullptr) return EntryKind::kNone;
  return FakeDisk::is_directory(*node) ? EntryKind::kDirectory : EntryKind::kFile;
}

// There are no links, and the working directory is "/".
std::string FakeEnv::real_path(const std::string& path) {
  if (!exists(path)) fail(ExitCode::kUsage, "resolve", path, "No such file or directory");
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (name == "..") {
      if (!names.empty()) names.pop_back();
    } else if (!name.empty() && name != ".") {
      names.push_back(name);
    }
    begin = end + 1;
  }
  return fmt::format("/{}", fmt::join(names, "/"));
}

std::int64_t FakeEnv::file_size(const std::string& path) {
  constexpr std::string_view kOperation = "read the size of";
  const std::scoped_lock lock(mutex_);
  count_operation(kOperation, path);
  return static_cast<std::int64_t>(FakeDisk::content(*disk_.file(kOperation, path)).size());
}

std::string FakeEnv::read_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("open", path);
  return FakeDisk::content(*disk_.file("open", path));
}

std::unique_ptr<RandomReader> FakeEnv::open_reader(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("open", path);
  return std::make_unique<FakeReader>(*this, path, FakeDisk::content(*disk_.file("open", path)));
}

std::unique_ptr<Writer> FakeEnv::open_writer(std::string_view operation, const std::string& path, bool truncate) {
  const std::scoped_lock lock(mutex_);
  count_operation(operation, path);
  return std::make_unique<FakeWriter>(*this, path, disk_.open_to_write(operation, path, truncate), !truncate);
}

std::unique_ptr<Writer> FakeEnv::create_file(const std::string& path) { return open_writer("create", path, true); }

std::unique_ptr<Writer> FakeEnv::append_file(const std::string& path) { return open_writer("append to", path, false); }

void FakeEnv::make_directories(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("create the directory", path);
  disk_.make_directories(path);
}

void FakeEnv::rename(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(mutex_);
  count_operation(fmt::format("rename {} to", from), to);
  disk_.rename(from, to);
}

void FakeEnv::remove_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("remove", path);
  disk_.remove_file(path);
}

void FakeEnv::remove_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("remove", path);
  disk_.remove_directory(path);
}

void FakeEnv::sync_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("sync", path);
  disk_.sync_directory(path);
}

std::vector<std::string> FakeEnv::list_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count_operation("list", path);
  return FakeDisk::names(*disk_.directory("list", path));
}

Bytes FakeEnv::free_space(const std::string& path) {
  constexpr std::string_view kOperation = "read the free space of";
  const std::scoped_lock lock(mutex_);
  count_operation(kOperation, path);
  disk_.directory(kOperation, path);
  return Bytes{left_bytes()};
}

std::int64_t FakeEnv::left_bytes() const {
  if (byte_limit_ < 0) return std::int64_t{1} << 40;
  return std::max<std::int64_t>(0, byte_limit_ - disk_.used_bytes());
}

ResidentMemory FakeEnv::resident_memory() {
  const std::scoped_lock lock(mutex_);
  return resident_memory_;
}

std::int64_t FakeEnv::process_id() {
  const std::scoped_lock lock(mutex_);
  return process_id_;
}

bool FakeEnv::process_is_alive(std::int64_t id) {
  const std::scoped_lock lock(mutex_);
  return id == process_id_ || alive_.contains(id);
}

std::string FakeEnv::boot_id() {
  const std::scoped_lock lock(mutex_);
  return fmt::format("boot {}", starts_);
}

class FakeEnv::Lock : public FileLock {
 public:
  Lock(std::shared_ptr<std::set<std::string>> held, std::string path)
      : held_(std::move(held)), path_(std::move(path)) {}
  ~Lock() override { held_->erase(path_); }

 private:
  std::shared_ptr<std::set<std::string>> held_;
  std::string path_;
};

std::unique_ptr<FileLock> FakeEnv::try_lock(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  disk_.open_to_write("lock", path, false);
  if (!locked_->insert(path).second) return nullptr;
  return std::make_unique<Lock>(locked_, path);
}

int FakeEnv::core_count() { return kCores; }

std::string FakeEnv::host_name() {
  const std::scoped_lock lock(mutex_);
  return host_name_;
}

void FakeEnv::count_operation(std::string_view operation, const std::string& path) {
  ++operations_;
  if (failing_operation_ == 0 || operations_ < failing_operation_) return;
  if (operations_ == failing_operation_ || fail_all_after_) {
    fail(ExitCode::kStorage, operation, path, "Input/output error");
  }
}

void FakeEnv::count_operation(std::string_view operation, const std::string& path, std::int64_t start) {
  if (start != starts_) fail(ExitCode::kStorage, operation, path, "opened before the power was lost");
  count_operation(operation, path);
}

}  // namespace trireme
