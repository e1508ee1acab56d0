#pragma once

// What a run's processes and its supervisor tell each other. A rank process speaks for its ranks; a keeper is the
// process beside it that a launcher has started: it outlives its rank process, says how that one ended, and ends it
// when told to or when the supervisor is gone. The format: docs/formats/control.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "telemetry/flight_recorder.h"

namespace trireme::telemetry {

// What a rank is at.
enum class Phase {
  kStart,  // connecting, building, until the state is there
  kLoad,   // reading a checkpoint
  kIdle,   // between steps: the leader's word
  kForward,
  kBackward,  // and recompute
  kReduce,    // exchanges of gradients and parameters over the data axis
  kOptimizer,
  kValidation,
  kSave,    // the blocking part of a save
  kFinish,  // the last save, export, reports
};
std::string_view phase_name(Phase phase);  // "forward"
std::optional<Phase> phase_of(std::string_view name);

// ---- To the supervisor.

// The first message of every connection.
struct Hello {
  std::string secret;
  std::int64_t incarnation = 0;
  bool keeper = false;     // else a rank process
  std::vector<int> ranks;  // that it speaks for, or keeps
  std::string host;
  std::int64_t process = 0;
};
// Where a rank is. Sent when it has changed, at most every 50 ms; the same again each 500 ms: the process lives.
struct RankProgress {
  int rank = 0;
  std::int64_t step = 0;  // at hand: the one after the last completed; 0 before the first
  Phase phase = Phase::kStart;
  int micro_batch = -1;       // -1: of none
  std::int64_t advances = 0;  // grows whenever the rank gets on, by an instruction or a message of its own
};
struct Alive {
  std::vector<RankProgress> ranks;
};
struct StepDone {
  int rank = 0;
  std::int64_t step = 0;
  double step_s = 0;     // of this rank
  double compute_s = 0;  // less what it waited for others
};
// The run has its state and begins with the step after this one. From the leader.
struct Resumed {
  std::int64_t step = 0;
  bool continues = false;       // from a checkpoint of its own directory
  double gemm_flops_per_s = 0;  // what MFU is of: a start of the same layout need not measure it again
};
// A checkpoint of this step can no longer be lost. From the leader.
struct Saved {
  std::int64_t step = 0;
};
// The last word of a rank: code 0 after its end in order.
struct RankEnded {
  int rank = 0;
  int code = 0;  // ExitCode
  std::string message;
};
// A keeper's word on its rank process.
struct ProcessEnded {
  int signal = 0;                        // that ended it; 0: it ended by itself
  int code = 0;                          // exit code, then
  std::vector<RankProgress> ranks = {};  // where its ranks were
};
struct FlightRecords {
  int rank = 0;
  std::vector<OperationRecord> records;
};
// What the leader has to print at the end.
struct Outcome {
  std::string text;
  Json json = nullptr;
  bool interrupted = false;  // it was asked to stop before the last step, and has saved
};
// A keeper has had a signal that asks for a stop: a scheduler may tell the ranks alone.
struct StopHeard {
  bool preempted = true;  // else by the user
};

// ---- To the workers.

// The supervisor lives: each 500 ms. Whoever has heard nothing for kFence ends itself at once.
struct StillHere {};
// The supervisor's user has suspended it: it is silent from now on, until it says anything again. To keepers, who stop
// their rank processes meanwhile.
struct Suspend {};
// Save and end; to rank processes.
struct Stop {};
// Send flight records; to rank processes.
struct AskFlightRecords {};
// End at once: to keepers, who end their rank processes first and say so, and to rank processes.
struct Kill {};

using Message = std::variant<Hello, Alive, StepDone, Resumed, Saved, RankEnded, ProcessEnded, FlightRecords, Outcome,
                             StopHeard, StillHere, Suspend, Stop, AskFlightRecords, Kill>;

bool is_for_workers(const Message& message);  // else for the supervisor

inline constexpr double kAliveEvery_s = 0.5;
inline constexpr double kFence_s = 2.0;
inline constexpr double kStopMargin_s = 0.8;  // for a keeper that stops its rank process instead
inline constexpr std::size_t kMostMessageBytes = std::size_t{1} << 24;
inline constexpr std::size_t kMostHelloBytes = std::size_t{1} << 16;  // until a connection has proved itself

// Exactly one JSON object with "kind" and the members above, in snake_case.
Json to_json(const Message& message);
// Refused: unknown kinds, missing or wrong members, ranks below 0 or above 2^20, more than 2^20 list entries. Unknown
// further members are passed over.
Result<Message> message_from_json(const Json& json);

// A frame is 4 bytes, the length of the JSON text as a little-endian number, and the text; kMostMessageBytes at most
// (CHECK).
std::string to_frame(const Message& message);

// Cuts a stream into messages. Once it has refused, it refuses for good.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  void set_most_bytes(std::size_t most_bytes) { most_bytes_ = most_bytes; }
  void add(std::string_view bytes);
  // The next whole message, if there is one.
  Result<std::optional<Message>> next();

 private:
  std::size_t most_bytes_;
  std::string bytes_;
  std::size_t begin_ = 0;
  std::optional<Failure> refusal_;
};

}  // namespace trireme::telemetry
