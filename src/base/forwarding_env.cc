#include "base/forwarding_env.h"

namespace trireme {

Seconds ForwardingEnv::now() { return inner_.now(); }
std::string ForwardingEnv::wall_time() { return inner_.wall_time(); }
void ForwardingEnv::sleep(Seconds duration) { inner_.sleep(duration); }
bool ForwardingEnv::exists(const std::string& path) { return inner_.exists(path); }
bool ForwardingEnv::is_directory(const std::string& path) { return inner_.is_directory(path); }
EntryKind ForwardingEnv::kind_of(const std::string& path) { return inner_.kind_of(path); }
std::string ForwardingEnv::real_path(const std::string& path) { return inner_.real_path(path); }
std::int64_t ForwardingEnv::file_size(const std::string& path) { return inner_.file_size(path); }
std::string ForwardingEnv::read_file(const std::string& path) { return inner_.read_file(path); }
std::unique_ptr<RandomReader> ForwardingEnv::open_reader(const std::string& path) { return inner_.open_reader(path); }
std::unique_ptr<Writer> ForwardingEnv::create_file(const std::string& path) { return inner_.create_file(path); }
std::unique_ptr<Writer> ForwardingEnv::append_file(const std::string& path) { return inner_.append_file(path); }
void ForwardingEnv::make_directories(const std::string& path) { inner_.make_directories(path); }
void ForwardingEnv::rename(const std::string& from, const std::string& to) { inner_.rename(from, to); }
void ForwardingEnv::remove_file(const std::string& path) { inner_.remove_file(path); }
void ForwardingEnv::remove_directory(const std::string& path) { inner_.remove_directory(path); }
std::vector<std::string> ForwardingEnv::remove_owned(const std::string& path,
                                                     const std::function<bool(const std::string& name)>& ours) {
  return inner_.remove_owned(path, ours);
}
void ForwardingEnv::remove_tree(const std::string& path) { inner_.remove_tree(path); }
void ForwardingEnv::sync_directory(const std::string& path) { inner_.sync_directory(path); }
std::vector<std::string> ForwardingEnv::list_directory(const std::string& path) { return inner_.list_directory(path); }
Bytes ForwardingEnv::free_space(const std::string& path) { return inner_.free_space(path); }
std::unique_ptr<FileLock> ForwardingEnv::try_lock(const std::string& path) { return inner_.try_lock(path); }
ResidentMemory ForwardingEnv::resident_memory() { return inner_.resident_memory(); }
Bytes ForwardingEnv::available_memory() { return inner_.available_memory(); }
std::int64_t ForwardingEnv::process_id() { return inner_.process_id(); }
bool ForwardingEnv::process_is_alive(std::int64_t id) { return inner_.process_is_alive(id); }
std::string ForwardingEnv::boot_id() { return inner_.boot_id(); }
int ForwardingEnv::core_count() { return inner_.core_count(); }
std::string ForwardingEnv::host_name() { return inner_.host_name(); }

}  // namespace trireme
