// The only file of the program that makes system calls for clocks, files and the process's own figures.

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/env.h"
#include "base/error.h"
#include "base/file_changed.h"
#include "base/file_error.h"
#include "base/memory_limits.h"
#include "base/posix_remove.h"

namespace trireme {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirectoryMode = 0755;

[[noreturn]] void fail(std::string_view operation, const std::string& path, int reason) {
  throw FileError(operation, path, reason);
}

[[noreturn]] void fail(std::string_view operation, const std::string& path) { fail(operation, path, errno); }

template <class Call>
auto retry_interrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// An open file. Moved, never copied.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view operation)
      : path_(path), number_(retry_interrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kFileMode); })) {
    if (number_ < 0) fail(operation, path_);
  }
  Descriptor(Descriptor&& other) noexcept : path_(std::move(other.path_)), number_(other.release()) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int number() const { return number_; }
  const std::string& path() const { return path_; }
  int release() { return std::exchange(number_, -1); }

  std::int64_t size() const {
    struct stat status {};
    if (::fstat(number_, &status) != 0) fail("read the size of", path_);
    return status.st_size;
  }

 private:
  std::string path_;
  int number_;
};

// With its article; nullptr: a regular file.
const char* irregular_kind(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no file";
}

void require_regular(const std::string& path, mode_t mode) {
  if (S_ISDIR(mode)) fail("open", path, EISDIR);
  const char* kind = irregular_kind(mode);
  if (kind == nullptr) return;
  throw Error(ExitCode::kUsage, "files", fmt::format("open {}", path), fmt::format("is {}, not a regular file", kind),
              "copy its content into a file");
}

// A stream that the user has opened for this process: standard input, or what a shell gives for <(command).
bool is_own_stream(std::string_view path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

// A regular file. Never waits: a FIFO that has taken its place would keep an open that may block for ever.
Descriptor open_to_read(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) require_regular(path, status.st_mode);
  Descriptor file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, "open");
  if (::fstat(file.number(), &status) != 0) fail("open", path);
  require_regular(path, status.st_mode);
  return file;
}

// The same, or a stream of one's own: a pipe or a terminal, which is read to its end.
Descriptor open_to_read_through(const std::string& path) {
  struct stat status {};
  const bool stream = is_own_stream(path) && ::stat(path.c_str(), &status) == 0 && irregular_kind(status.st_mode);
  if (!stream) return open_to_read(path);
  Descriptor file(path, O_RDONLY | O_NOCTTY, "open");
  if (::fstat(file.number(), &status) != 0) fail("open", path);
  if (!S_ISFIFO(status.st_mode) && ::isatty(file.number()) != 1) require_regular(path, status.st_mode);
  return file;
}

class PosixReader : public RandomReader {
 public:
  explicit PosixReader(const std::string& path) : file_(open_to_read(path)), opened_(state()) {}
  std::int64_t size() const override { return opened_.st_size; }

  void read_at(std::int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = retry_interrupted(
          [&] { return ::pread(file_.number(), out.data(), out.size(), static_cast<off_t>(offset)); });
      if (got < 0) fail("read", file_.path());
      if (got == 0) {
        check_unchanged();
        throw Error(ExitCode::kStorage, "files", fmt::format("read {}", file_.path()),
                    fmt::format("the file ends at byte {}, {} more were asked for", offset, out.size()));
      }
      out = out.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    check_unchanged();
  }

 private:
  using State = struct stat;
  State state() const {
    State state{};
    if (::fstat(file_.number(), &state) != 0) fail("read the size of", file_.path());
    return state;
  }
  void check_unchanged() const {
    const State now = state();
    if (now.st_size != opened_.st_size) {
      throw FileChanged(file_.path(),
                        fmt::format("it had {} bytes when it was opened, and has {}", opened_.st_size, now.st_size));
    }
    const auto &before = opened_.st_mtim, &after = now.st_mtim;
    if (before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec) return;
    throw FileChanged(file_.path(), "it was written to after it was opened");
  }

  Descriptor file_;
  State opened_;
};

class PosixWriter : public Writer {
 public:
  PosixWriter(const std::string& path, int flags, std::string_view operation)
      : file_(path, O_WRONLY | O_CREAT | flags, operation) {}

  void write(std::span<const std::byte> data) override {
    for (std::size_t done = 0; done < data.size();) {
      const ssize_t put =
          retry_interrupted([&] { return ::write(file_.number(), data.data() + done, data.size() - done); });
      if (put < 0) throw FileError("write", file_.path(), errno, done);
      done += static_cast<std::size_t>(put);
    }
  }
  void write_at(std::int64_t offset, std::span<const std::byte> data) override {
    for (std::size_t done = 0; done < data.size();) {
      const off_t at = static_cast<off_t>(offset) + static_cast<off_t>(done);
      const ssize_t put =
          retry_interrupted([&] { return ::pwrite(file_.number(), data.data() + done, data.size() - done, at); });
      if (put < 0) throw FileError("write", file_.path(), errno, done);
      done += static_cast<std::size_t>(put);
    }
  }
  void reserve(Bytes bytes) override {
    if (bytes.count <= 0) return;
    if (retry_interrupted([&] { return ::fallocate(file_.number(), FALLOC_FL_KEEP_SIZE, 0, bytes.count); }) == 0)
      return;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    fail(fmt::format("reserve {} for", format_bytes(bytes)), file_.path());
  }
  void sync() override {
    if (retry_interrupted([&] { return ::fsync(file_.number()); }) != 0) fail("sync", file_.path());
  }
  void close() override {
    const int number = file_.release();
    if (number < 0) return;
    // After EINTR the descriptor is gone on Linux, so close() is never retried.
    if (::close(number) != 0 && errno != EINTR) fail("close", file_.path());
  }

 private:
  Descriptor file_;
};

// The value of a "Name:   123 kB" line, in bytes; 0 if there is none.
std::int64_t kilobytes_of(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(fmt::format("\n{}:", name));
  if (at == std::string_view::npos) return 0;
  std::string_view rest = text.substr(at + name.size() + 2);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  std::int64_t kilobytes = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), kilobytes);
  return kilobytes * 1024;
}

class PosixLock : public FileLock {
 public:
  explicit PosixLock(int file) : file_(file) {}
  ~PosixLock() override { ::close(file_); }
  PosixLock(const PosixLock&) = delete;
  PosixLock& operator=(const PosixLock&) = delete;

 private:
  int file_;
};

class PosixEnv : public Env {
 public:
  Seconds now() override {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return {static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)};
  }

  std::string wall_time() override {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    std::tm utc{};
    ::gmtime_r(&time.tv_sec, &utc);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                       utc.tm_hour, utc.tm_min, utc.tm_sec);
  }

  void sleep(Seconds duration) override {
    if (!(duration.count > 0)) return;
    timespec left{};
    left.tv_sec = static_cast<time_t>(duration.count);
    left.tv_nsec = static_cast<decltype(left.tv_nsec)>((duration.count - std::floor(duration.count)) * 1e9);
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0;
  }
  bool is_directory(const std::string& path) override {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  }
  EntryKind kind_of(const std::string& path) override {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return EntryKind::kNone;
    if (S_ISDIR(status.st_mode)) return EntryKind::kDirectory;
    if (S_ISLNK(status.st_mode)) return EntryKind::kLink;
    return S_ISREG(status.st_mode) ? EntryKind::kFile : EntryKind::kOther;
  }
  std::string real_path(const std::string& path) override {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
    if (real == nullptr) fail("resolve", path);
    return real.get();
  }
  std::int64_t file_size(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) fail("read the size of", path);
    return status.st_size;
  }

  // Reads to the end rather than to a size: files under /proc have none.
  std::string read_file(const std::string& path) override {
    const Descriptor file = open_to_read_through(path);
    std::string content;
    constexpr std::size_t kPiece = std::size_t{1} << 16;
    std::size_t piece = std::max(kPiece, static_cast<std::size_t>(file.size()) + 1);
    for (;;) {
      const std::size_t before = content.size();
      content.resize(before + piece);
      const ssize_t got = retry_interrupted([&] { return ::read(file.number(), content.data() + before, piece); });
      if (got < 0) fail("read", path);
      content.resize(before + static_cast<std::size_t>(got));
      if (got == 0) return content;
      piece = kPiece;
    }
  }

  std::unique_ptr<RandomReader> open_reader(const std::string& path) override {
    return std::make_unique<PosixReader>(path);
  }
  std::unique_ptr<Writer> create_file(const std::string& path) override {
    return std::make_unique<PosixWriter>(path, O_TRUNC, "create");
  }
  std::unique_ptr<Writer> append_file(const std::string& path) override {
    return std::make_unique<PosixWriter>(path, O_APPEND, "append to");
  }

  void make_directories(const std::string& path) override {
    for (std::size_t end = 0; end != std::string::npos;) {
      end = path.find('/', end + 1);
      const std::string prefix = path.substr(0, end);
      if (prefix.empty() || ::mkdir(prefix.c_str(), kDirectoryMode) == 0) continue;
      const int reason = errno;
      if (is_directory(prefix)) continue;
      fail("create the directory", prefix, reason == EEXIST ? ENOTDIR : reason);
    }
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(fmt::format("rename {} to", from), to);
  }
  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail("remove", path);
  }
  void remove_directory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) fail("remove", path);
  }
  std::vector<std::string> remove_owned(const std::string& path,
                                        const std::function<bool(const std::string& name)>& ours) override {
    return posix_remove_owned(path, ours);
  }
  void remove_tree(const std::string& path) override { posix_remove_tree(path); }
  Bytes free_space(const std::string& path) override {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) != 0) fail("read the free space of", path);
    return Bytes{static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize)};
  }
  void sync_directory(const std::string& path) override {
    const Descriptor directory(path, O_RDONLY | O_DIRECTORY, "sync");
    if (retry_interrupted([&] { return ::fsync(directory.number()); }) != 0) fail("sync", path);
  }

  std::vector<std::string> list_directory(const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) fail("list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int reason = errno;
    ::closedir(directory);
    if (reason != 0) fail("list", path, reason);
    std::sort(names.begin(), names.end());
    return names;
  }

  ResidentMemory resident_memory() override {
    constexpr const char* kRollup = "/proc/self/smaps_rollup";
    if (exists(kRollup)) {
      const std::string text = read_file(kRollup);
      return {{kilobytes_of(text, "Rss")}, {kilobytes_of(text, "Anonymous") + kilobytes_of(text, "Pss_Shmem")}};
    }
    const std::string text = read_file("/proc/self/status");  // kernels without the roll-up
    return {{kilobytes_of(text, "VmRSS")}, {kilobytes_of(text, "RssAnon") + kilobytes_of(text, "RssShmem")}};
  }

  Bytes available_memory() override {
    const Bytes available{kilobytes_of(read_file("/proc/meminfo"), "MemAvailable")};
    return std::min({available, left_by_control_groups(*this), left_by_process_limits(*this)});
  }

  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
    if (file < 0) fail("lock", path, errno);
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return std::make_unique<PosixLock>(file);
    const int reason = errno;
    ::close(file);
    if (reason == EWOULDBLOCK) return nullptr;
    fail("lock", path, reason);
  }

  std::int64_t process_id() override { return ::getpid(); }

  bool process_is_alive(std::int64_t id) override {
    if (id <= 0 || id > std::numeric_limits<pid_t>::max()) return false;
    return ::kill(static_cast<pid_t>(id), 0) == 0 || errno == EPERM;
  }
  std::string boot_id() override {
    std::string id = read_file("/proc/sys/kernel/random/boot_id");
    while (!id.empty() && id.back() == '\n') id.pop_back();
    return id;
  }

  std::string host_name() override {
    if (const char* given = std::getenv("TRIREME_HOST"); given != nullptr && *given != '\0') return given;
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
  }
  int core_count() override {  // those that this process may run on, not those of the machine
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
};

}  // namespace

Env& posix_env() {
  static PosixEnv env;
  return env;
}

}  // namespace trireme
