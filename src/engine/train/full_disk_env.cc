#include "engine/train/full_disk_env.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/forwarding_env.h"

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

class FullDiskEnv : public ForwardingEnv {
 public:
  FullDiskEnv(Env& inner, Full full) : ForwardingEnv(inner), full_(std::move(full)) {}

  std::unique_ptr<Writer> create_file(const std::string& path) override {
    return std::make_unique<FullDiskWriter>(ForwardingEnv::create_file(path), path, full_);
  }
  std::unique_ptr<Writer> append_file(const std::string& path) override {
    return std::make_unique<FullDiskWriter>(ForwardingEnv::append_file(path), path, full_);
  }

 private:
  const Full full_;
};

}  // namespace

std::unique_ptr<Env> make_full_disk_env(Env& inner, std::function<bool(const std::string&)> full) {
  return std::make_unique<FullDiskEnv>(inner, std::move(full));
}

}  // namespace trireme::train
