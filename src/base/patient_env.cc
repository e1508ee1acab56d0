#include "base/patient_env.h"

#include <cerrno>
#include <exception>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr Seconds kBetweenTries{0.05};

}  // namespace

// One operation that waits.
class PatientEnv::Wait {
 public:
  explicit Wait(PatientEnv& env) : env_(env) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() {
    if (since_) env_.end_wait();
  }
  // After a failure that may pass; throws once it has lasted for too long.
  void once_more(const FileError& error) {
    const Seconds now = env_.now();
    if (!since_) {
      since_ = now;
      env_.begin_wait(error.what());
    }
    if (now.count - since_->count >= kDiskPatience.count) {
      const std::string text = error.what();
      const std::size_t begin = std::string_view("files: ").size(), reason = text.rfind(": ");
      throw Error(ExitCode::kStorage, "files", text.substr(begin, reason - begin),
                  fmt::format("{}, and still so after {}", text.substr(reason + 2), format_seconds(kDiskPatience)),
                  error.hint());
    }
    env_.sleep(kBetweenTries);
  }

 private:
  PatientEnv& env_;
  std::optional<Seconds> since_;
};

template <class Act>
auto PatientEnv::patiently(const std::string& path, const Act& act) {
  Wait wait(*this);
  bool again = false;  // the directory may have come back between the failure and the look at it
  for (;;) {
    try {
      return act();
    } catch (const FileError& error) {
      if (may_pass(error, path)) {
        wait.once_more(error);
        continue;
      }
      const bool absent = error.trouble() == FileTrouble::kAbsent && watches_ && is_inside(path);
      if (!absent || std::exchange(again, true)) throw;
    }
  }
}

class PatientEnv::PatientWriter : public Writer {
 public:
  PatientWriter(PatientEnv& env, std::string path, std::unique_ptr<Writer> inner)
      : env_(env), path_(std::move(path)), inner_(std::move(inner)) {}

  void write(std::span<const std::byte> data) override {
    put_all(data, [this](std::span<const std::byte> rest, std::size_t) { inner_->write(rest); });
  }
  void write_at(std::int64_t offset, std::span<const std::byte> data) override {
    put_all(data, [&](std::span<const std::byte> rest, std::size_t done) {
      inner_->write_at(offset + static_cast<std::int64_t>(done), rest);
    });
  }
  void reserve(Bytes bytes) override {
    env_.patiently(path_, [&] { inner_->reserve(bytes); });
  }
  void sync() override { inner_->sync(); }
  void close() override { inner_->close(); }

 private:
  // What of a write is in the file is not written again.
  template <class Put>
  void put_all(std::span<const std::byte> data, const Put& put) {
    std::size_t done = 0;
    env_.patiently(path_, [&] {
      try {
        put(data.subspan(done), done);
      } catch (const FileError& error) {
        done += error.put();
        throw;
      }
    });
  }

  PatientEnv& env_;
  const std::string path_;
  const std::unique_ptr<Writer> inner_;
};

PatientEnv::PatientEnv(Env& inner, Log& log, std::string directory)
    : ForwardingEnv(inner), log_(log), directory_(std::move(directory)) {}

bool PatientEnv::is_inside(const std::string& path) const {
  return path == directory_ || path.starts_with(join_path(directory_, ""));
}

bool PatientEnv::directory_is_there() { return inner().is_directory(directory_); }

bool PatientEnv::may_pass(const FileError& error, const std::string& path) {
  switch (error.trouble()) {
    case FileTrouble::kNoRoom:
      return true;
    case FileTrouble::kAway:
      return watches_ && is_inside(path);
    case FileTrouble::kAbsent:
      return watches_ && is_inside(path) && !directory_is_there();
    case FileTrouble::kOther:
      return false;
  }
  return false;
}

void PatientEnv::begin_wait(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  if (waiting_++ > 0) return;
  log_.warning("{}: this may pass, and is waited for, at most {}", what, format_seconds(kDiskPatience));
}

void PatientEnv::end_wait() {
  const std::scoped_lock lock(mutex_);
  if (--waiting_ == 0 && std::uncaught_exceptions() == 0) log_.info("files: it has passed, the run goes on");
}

void PatientEnv::wait_for_directory(const std::string& path) {
  if (!watches_ || !is_inside(path)) return;
  patiently(path, [&] {
    if (!directory_is_there()) throw FileError("look for", path, ENOENT);
  });
}

bool PatientEnv::exists(const std::string& path) {
  if (inner().exists(path)) return true;
  wait_for_directory(path);
  return inner().exists(path);
}
bool PatientEnv::is_directory(const std::string& path) {
  if (inner().is_directory(path)) return true;
  wait_for_directory(path);
  return inner().is_directory(path);
}
EntryKind PatientEnv::kind_of(const std::string& path) {
  if (const EntryKind kind = inner().kind_of(path); kind != EntryKind::kNone) return kind;
  wait_for_directory(path);
  return inner().kind_of(path);
}
void PatientEnv::make_directories(const std::string& path) {
  wait_for_directory(path);
  patiently(path, [&] { inner().make_directories(path); });
}

std::string PatientEnv::real_path(const std::string& path) {
  return patiently(path, [&] { return inner().real_path(path); });
}
std::int64_t PatientEnv::file_size(const std::string& path) {
  return patiently(path, [&] { return inner().file_size(path); });
}
std::string PatientEnv::read_file(const std::string& path) {
  return patiently(path, [&] { return inner().read_file(path); });
}
std::unique_ptr<RandomReader> PatientEnv::open_reader(const std::string& path) {
  return patiently(path, [&] { return inner().open_reader(path); });
}
std::unique_ptr<Writer> PatientEnv::create_file(const std::string& path) {
  return std::make_unique<PatientWriter>(*this, path, patiently(path, [&] { return inner().create_file(path); }));
}
std::unique_ptr<Writer> PatientEnv::append_file(const std::string& path) {
  return std::make_unique<PatientWriter>(*this, path, patiently(path, [&] { return inner().append_file(path); }));
}
void PatientEnv::rename(const std::string& from, const std::string& to) {
  patiently(to, [&] { inner().rename(from, to); });
}
void PatientEnv::remove_file(const std::string& path) {
  patiently(path, [&] { inner().remove_file(path); });
}
void PatientEnv::remove_directory(const std::string& path) {
  patiently(path, [&] { inner().remove_directory(path); });
}
std::vector<std::string> PatientEnv::remove_owned(const std::string& path,
                                                  const std::function<bool(const std::string& name)>& ours) {
  wait_for_directory(path);
  return inner().remove_owned(path, ours);
}
void PatientEnv::remove_tree(const std::string& path) {
  wait_for_directory(path);
  inner().remove_tree(path);
}
void PatientEnv::sync_directory(const std::string& path) {
  patiently(path, [&] { inner().sync_directory(path); });
}
std::vector<std::string> PatientEnv::list_directory(const std::string& path) {
  return patiently(path, [&] { return inner().list_directory(path); });
}
Bytes PatientEnv::free_space(const std::string& path) {
  return patiently(path, [&] { return inner().free_space(path); });
}

}  // namespace trireme
