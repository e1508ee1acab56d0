#pragma once

// Child processes, each the leader of a process group of its own, and signalled at the death of the thread that started
// it: a parent that is killed leaves none. Used by one thread. Failing calls throw Error(kInternal, "process", ...).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace trireme {

struct ChildEnd {
  int signal = 0;  // 0: it ended by itself
  int code = 0;
};

struct ChildCommand {
  std::vector<std::string> arguments;                            // the program first
  std::vector<std::pair<std::string, std::string>> environment;  // beside this process's own; these win
  std::string output = {};  // file that gets its standard output and error; "": this process's own
  std::string file = {};    // of the program; "": its first argument, looked up in PATH
  // Stop signals wait in it for ever: of one that would end on them what it has started, and knows nothing of saving.
  bool deaf = false;
  std::vector<std::string> without = {};  // variables of this process that it does not get, by how their names begin
  bool captured = false;                  // its standard output and error can be read here
};

class Child {
 public:
  virtual ~Child() = default;  // kills the group and waits for the child
  virtual std::int64_t id() const = 0;
  virtual std::optional<ChildEnd> poll() = 0;  // how it ended, if it has
  virtual void signal(int number) = 0;         // to the child; passed over after its end
  virtual void signal_group(int number) = 0;   // to it and what it has started
  virtual int descriptor() const = 0;          // readable once it has ended (wait_for_any)
  // Of one that is captured: the end to read from, once; the reader closes it. Else -1.
  virtual int take_output() = 0;
};

// A program that cannot be started: Error naming it and why; kUsage where there is none of that name.
std::unique_ptr<Child> start_child(const ChildCommand& command);

// Forks: 0 in the child, which goes on as a copy of this process (one thread, CHECK) and is killed when the parent's
// thread ends; else the child.
std::unique_ptr<Child> fork_child();  // null in the child

// Where start_child() finds the program of this name: in PATH, or the name itself where it has a slash. Else why it
// cannot be started, as "is not in PATH".
Result<std::string> find_program(const std::string& name);

std::string own_program();  // path of this program's file, as it was when the program was started
// Whether this program's file is there still: it may have been built anew, or removed.
bool is_own_program(const std::string& path);
// A name of this program's file that stays right for this process and a child of it (ChildCommand::file), whatever has
// become of the path.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

}  // namespace trireme
