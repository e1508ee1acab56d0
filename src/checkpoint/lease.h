#pragma once

// Who may write into a run directory: one process holds its lease, and every start of the run has an incarnation of its
// own, higher than all before. A worker of an older one is a zombie: check_incarnation() stops it before it commits.
//
// The lease is the file `.lease` (one line of JSON: LeaseRecord), kept under a lock of `.lock` where the file system
// has locks between processes. On a file system without locks between hosts a second holder is found by its renewals:
// they are counted, and a claim of another host's lease waits kLeaseWait for one. `.lease` is durable, as its
// incarnation has to be. Renewals go into `.renewal`, a record of the same form that is never synced: one that replaced
// `.lease` could leave an empty file after a power loss, and one that is synced can wait for seconds behind a save.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/env.h"

namespace trireme::checkpoint {

inline constexpr double kRenewEvery_s = 1.0;
inline constexpr double kLeaseWait_s = 3.0;
// How long the file may be away before the lease counts as lost: a run directory that was moved, a file system that is
// not there. Nobody else can have taken it meanwhile without leaving his own.
inline constexpr double kLeaseAway_s = 30.0;

struct LeaseRecord {
  std::string host;
  std::int64_t process = 0;  // 0: it was given up
  std::string boot;          // of the host: a process number of an earlier boot is nobody
  std::int64_t incarnation = 0;
  double run_elapsed_s = 0;  // that the run was held for, up to the last renewal, over all of its holders
  std::int64_t renewals = 0;
  std::string since;  // UTC, that this holder has it
  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

// What the directory says, with the last renewal. None: there was never a lease, or nothing can be read from it.
std::optional<LeaseRecord> read_lease(Env& env, const std::string& out);

// Used by one thread at a time.
class Lease {
 public:
  // Claims the run directory `out`, which is made if absent. Refused (option "out.directory") naming the holder: host,
  // process, since when. The lease of a holder that is gone is taken over, at once where this host knows that the
  // process is gone, else after kLeaseWait without a renewal. A file that cannot be read is one that was not given up,
  // of an unknown holder: taken over, with the incarnation of `.renewal` or, without one, 0.
  static std::unique_ptr<Lease> claim(Env& env, const std::string& out);
  ~Lease();  // gives it up: the file stays, for its incarnation

  // The last incarnation that the directory has seen; 0: none.
  std::int64_t incarnation() const;
  // A new one: durable before it returns. least: it is above that too (what a checkpoint or the metrics had).
  // Error(kStorage) if another has taken the lease meanwhile. Waits for the file for kLeaseAway; for room where `env`
  // does, through which it writes (null: its own).
  std::int64_t begin_incarnation(std::int64_t least = 0, Env* env = nullptr);
  // To be called each kRenewEvery. Error(kStorage) if another has taken the lease meanwhile, or the file is away for
  // longer than kLeaseAway. That a renewal cannot be written is no error: a full disk ends no run.
  void renew();
  bool is_away() const;          // as the last renewal has found the file
  double run_elapsed_s() const;  // of now
  bool taken_over() const;       // its holder was gone without giving it up

 private:
  struct State;
  explicit Lease(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Error(kRankLost) naming both where the run directory has another incarnation than this. Waits for kLeaseAway where
// none can be read, then Error(kStorage).
void check_incarnation(Env& env, const std::string& out, std::int64_t incarnation);
// The same without a wait: false where none can be read.
bool incarnation_is(Env& env, const std::string& out, std::int64_t incarnation);
Error incarnation_unknown(const std::string& out, std::int64_t incarnation);

}  // namespace trireme::checkpoint
