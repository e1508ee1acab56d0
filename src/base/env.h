#pragma once

// The one seam to the outside world: clocks, files, processes. Nothing else in the program calls the
// operating system for these, so that a test can put a fake in its place (a clock that it moves, a disk that
// fills). Functions that fail throw Error (component "files") naming the path and the system's reason, unless
// said otherwise. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace trireme {

// A file being read by position, for slices of large files.
class RandomReader {
 public:
  virtual ~RandomReader() = default;
  virtual std::int64_t size() const = 0;
  virtual void read_at(std::int64_t offset, std::span<std::byte> out) const = 0;  // all of it, or throws
};

// A file being written from its start. Data is durable after sync() returned.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void write(std::span<const std::byte> data) = 0;
  virtual void write_at(std::int64_t offset, std::span<const std::byte> data) = 0;
  // Room on the disk for `bytes` from the file's start, so that a full disk is told before the first byte; where the
  // file system cannot promise it, nothing. The file's size stays.
  virtual void reserve(Bytes bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;  // throws what a late error left; the destructor closes silently
  void write_text(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
};

// Bytes of this process, as the kernel counts them (/proc/self/smaps_rollup).
struct ResidentMemory {
  Bytes total;      // all resident pages
  Bytes anonymous;  // anonymous plus shared-memory segments: what the ledger is compared with
};

// An exclusive claim on a path, given up when destroyed or when the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// What a name is itself: a link is not followed.
enum class EntryKind { kNone, kFile, kDirectory, kLink, kOther };

class Env {
 public:
  virtual ~Env() = default;

  virtual Seconds now() = 0;            // monotonic, arbitrary zero
  virtual std::string wall_time() = 0;  // UTC, ISO 8601, to the second
  virtual void sleep(Seconds duration) = 0;

  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual EntryKind kind_of(const std::string& path) = 0;
  // Absolute, without links, "." and "..": two paths of one thing have the same. Of what exists.
  virtual std::string real_path(const std::string& path) = 0;
  virtual std::int64_t file_size(const std::string& path) = 0;
  virtual std::string read_file(const std::string& path) = 0;
  virtual std::unique_ptr<RandomReader> open_reader(const std::string& path) = 0;
  virtual std::unique_ptr<Writer> create_file(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<Writer> append_file(const std::string& path) = 0;
  virtual void make_directories(const std::string& path) = 0;  // and its parents; existing is fine
  // Of a file, which replaces one of that name, or of a directory, which replaces an empty one.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_directory(const std::string& path) = 0;  // an empty one
  // Removes, of the entries of a directory, those whose names are `ours` and that are no directories, and then the
  // directory, unless something is left in it: that is given, sorted. No link is followed: one among the entries is
  // removed itself, and so is `path` where it is one. Nothing there: nothing is done.
  virtual std::vector<std::string> remove_owned(const std::string& path,
                                                const std::function<bool(const std::string& name)>& ours);
  // Removes a directory and all that is in it; a file or a link: that itself. No link is followed and no other file
  // system entered: Error where one is mounted in there. Nothing there: nothing is done.
  virtual void remove_tree(const std::string& path);
  virtual void sync_directory(const std::string& path) = 0;
  virtual std::vector<std::string> list_directory(const std::string& path) = 0;  // names, sorted
  // What a user without privileges may still write into the file system that holds `path`, a directory.
  virtual Bytes free_space(const std::string& path) = 0;

  // Claims a path (the file is made if absent and stays); null if another process, or this one, has it.
  virtual std::unique_ptr<FileLock> try_lock(const std::string& path) = 0;

  virtual ResidentMemory resident_memory() = 0;
  // Bytes that this process could still take: what the kernel counts as available, or what its control group leaves.
  virtual Bytes available_memory() = 0;
  virtual std::int64_t process_id() = 0;
  // Of this host as this process sees it, another user's too; one that has ended and was not waited for counts.
  virtual bool process_is_alive(std::int64_t id) = 0;
  virtual std::string boot_id() = 0;  // of this host's kernel: another after each boot
  virtual int core_count() = 0;
  // Of the machine that this process runs on: $TRIREME_HOST where it is set (machines whose names do not tell them
  // apart), else the system's.
  virtual std::string host_name() = 0;

  // Writes a whole file so that a reader sees the old content or the new, never a part: temporary, fsync,
  // rename.
  void write_file_atomically(const std::string& path, std::string_view content);
  // The same to readers, without a sync: after a power loss the file may be the old one, the new one, or empty.
  void replace_file(const std::string& path, std::string_view content);
  // make_directories(), durable: each that was made, and the last one in any case (a process that was killed may have
  // made it and no more).
  void make_directories_durably(const std::string& path);
};

// A file that appears under its name whole or not at all: written beside it, synced, renamed by commit().
// Without a commit the destructor removes what was written.
class AtomicFile {
 public:
  AtomicFile(Env& env, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Writer& writer() { return *writer_; }
  // Durable when it returns. Once only; after it the writer is closed.
  void commit();
  void commit_unsynced();  // instead of it: see Env::replace_file

 private:
  void put_in_place();

  Env& env_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<Writer> writer_;
  bool renamed_ = false;
};

// The real one. Stateless: one object serves all threads.
Env& posix_env();

// path joined with a slash; the last component of a path; the part before it ("." if none).
std::string join_path(std::string_view directory, std::string_view name);
std::string base_name(std::string_view path);
std::string directory_name(std::string_view path);

}  // namespace trireme
