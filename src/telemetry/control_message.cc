#include "telemetry/control_message.h"

#include <array>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::telemetry {
namespace {

constexpr std::int64_t kMostRank = std::int64_t{1} << 20;
constexpr std::size_t kMostEntries = std::size_t{1} << 20;
constexpr std::size_t kPrefixBytes = 4;

constexpr std::array<std::string_view, 10> kPhaseNames{"start",  "load",      "idle",       "forward", "backward",
                                                       "reduce", "optimizer", "validation", "save",    "finish"};

// The members of each message, once for both directions. A number that names a rank is declared as such.

template <class Fields>
void list(Fields& fields, Hello& hello) {
  fields.member("secret", hello.secret);
  fields.member("incarnation", hello.incarnation);
  fields.member("keeper", hello.keeper);
  fields.ranks("ranks", hello.ranks);
  fields.member("host", hello.host);
  fields.member("process", hello.process);
}
template <class Fields>
void list(Fields& fields, RankProgress& progress) {
  fields.rank("rank", progress.rank);
  fields.member("step", progress.step);
  fields.member("phase", progress.phase);
  fields.member("micro_batch", progress.micro_batch);
  fields.member("advances", progress.advances);
}
template <class Fields>
void list(Fields& fields, Alive& alive) {
  fields.entries("ranks", alive.ranks);
}
template <class Fields>
void list(Fields& fields, StepDone& done) {
  fields.rank("rank", done.rank);
  fields.member("step", done.step);
  fields.member("step_s", done.step_s);
  fields.member("compute_s", done.compute_s);
}
template <class Fields>
void list(Fields& fields, Resumed& resumed) {
  fields.member("step", resumed.step);
  fields.member("continues", resumed.continues);
  fields.member("gemm_flops_per_s", resumed.gemm_flops_per_s);
}
template <class Fields>
void list(Fields& fields, Saved& saved) {
  fields.member("step", saved.step);
}
template <class Fields>
void list(Fields& fields, RankEnded& ended) {
  fields.rank("rank", ended.rank);
  fields.member("code", ended.code);
  fields.member("message", ended.message);
}
template <class Fields>
void list(Fields& fields, ProcessEnded& ended) {
  fields.member("signal", ended.signal);
  fields.member("code", ended.code);
  fields.entries("ranks", ended.ranks);
}
// As to_json of flight_recorder.h writes it.
template <class Fields>
void list(Fields& fields, OperationRecord& record) {
  fields.member("sequence", record.sequence);
  fields.member("axis", record.axis);
  fields.ranks("ranks", record.ranks);
  fields.member("instance", record.instance);
  fields.member("operation", record.operation);
  fields.member("bytes", record.bytes.count);
  fields.member("posted_s", record.posted.count);
  fields.member("completed_s", record.completed);
}
template <class Fields>
void list(Fields& fields, FlightRecords& records) {
  fields.rank("rank", records.rank);
  fields.entries("records", records.records);
}
template <class Fields>
void list(Fields& fields, Outcome& outcome) {
  fields.member("text", outcome.text);
  fields.member("json", outcome.json);
  fields.member("interrupted", outcome.interrupted);
}
template <class Fields>
void list(Fields& fields, StopHeard& heard) {
  fields.member("preempted", heard.preempted);
}
template <class Fields>
void list(Fields&, StillHere&) {}
template <class Fields>
void list(Fields&, Suspend&) {}
template <class Fields>
void list(Fields&, Stop&) {}
template <class Fields>
void list(Fields&, AskFlightRecords&) {}
template <class Fields>
void list(Fields&, Kill&) {}

// In the order of Message.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kKinds{
    "hello",   "alive",      "step_done",  "resumed", "saved", "rank_ended",         "process_ended", "flight_records",
    "outcome", "stop_heard", "still_here", "suspend", "stop",  "ask_flight_records", "kill"};

class MemberWriter {
 public:
  explicit MemberWriter(Json::Object& out) : out_(out) {}

  template <class T>
  void member(const char* key, const T& value) {
    out_.emplace_back(key, json_of(value));
  }
  void rank(const char* key, int value) { member(key, value); }
  void ranks(const char* key, const std::vector<int>& values) {
    out_.emplace_back(key, Json::Array(values.begin(), values.end()));
  }
  template <class T>
  void entries(const char* key, std::vector<T>& values) {
    Json::Array items;
    items.reserve(values.size());
    for (T& value : values) {
      Json::Object members;
      MemberWriter writer(members);
      list(writer, value);
      items.emplace_back(std::move(members));
    }
    out_.emplace_back(key, std::move(items));
  }

 private:
  template <class T>
  static Json json_of(const T& value) {
    if constexpr (std::same_as<T, Phase>) {
      return phase_name(value);
    } else if constexpr (std::same_as<T, std::optional<Seconds>>) {
      return value ? Json(value->count) : Json(nullptr);
    } else {
      return value;
    }
  }
  Json::Object& out_;
};

// Fills the members from an object. The first that is missing or wrong is kept as the failure.
class MemberReader {
 public:
  MemberReader(std::string path, const Json& object, std::optional<Failure>& failure)
      : path_(std::move(path)), object_(object), failure_(failure) {
    if (!object.is_object()) refuse("", "must be an object");
  }

  template <class T>
  void member(const char* key, T& value) {
    const Json* json = find(key);
    if (json != nullptr) read(key, *json, value);
  }
  void rank(const char* key, int& value) {
    const Json* json = find(key);
    if (json != nullptr) read_rank(key, *json, value);
  }
  void ranks(const char* key, std::vector<int>& values) {
    const Json::Array* items = find_list(key);
    if (items == nullptr) return;
    values.resize(items->size());
    for (std::size_t i = 0; i < items->size() && !failure_; ++i) read_rank(key, (*items)[i], values[i]);
  }
  template <class T>
  void entries(const char* key, std::vector<T>& values) {
    const Json::Array* items = find_list(key);
    if (items == nullptr) return;
    for (std::size_t i = 0; i < items->size() && !failure_; ++i) {
      MemberReader reader(fmt::format("{}.{}[{}]", path_, key, i), (*items)[i], failure_);
      list(reader, values.emplace_back());
    }
  }

 private:
  void refuse(std::string_view key, std::string rule) {
    if (failure_) return;
    failure_ = Failure{key.empty() ? path_ : fmt::format("{}.{}", path_, key), "", std::move(rule), ""};
  }
  const Json* find(const char* key) {
    if (failure_) return nullptr;
    const Json* json = object_.find(key);
    if (json == nullptr) refuse(key, "is missing");
    return json;
  }
  const Json::Array* find_list(const char* key) {
    const Json* json = find(key);
    if (json == nullptr) return nullptr;
    if (json->is_array() && json->as_array().size() <= kMostEntries) return &json->as_array();
    refuse(key, fmt::format("must be a list of at most {} entries", kMostEntries));
    return nullptr;
  }

  void read_rank(const char* key, const Json& json, int& value) {
    if (!json.is_integer() || json.as_integer() < 0 || json.as_integer() > kMostRank) {
      return refuse(key, fmt::format("must be a rank, 0 to {}", kMostRank));
    }
    value = static_cast<int>(json.as_integer());
  }
  void read(const char* key, const Json& json, std::int64_t& value) {
    if (!json.is_integer()) return refuse(key, "must be an integer");
    value = json.as_integer();
  }
  void read(const char* key, const Json& json, int& value) {
    using Limits = std::numeric_limits<int>;
    if (!json.is_integer() || json.as_integer() < Limits::min() || json.as_integer() > Limits::max()) {
      return refuse(key, "must be an integer of 32 bits");
    }
    value = static_cast<int>(json.as_integer());
  }
  void read(const char* key, const Json& json, double& value) {
    if (!json.is_number()) return refuse(key, "must be a number");
    value = json.as_number();
  }
  void read(const char* key, const Json& json, std::optional<Seconds>& value) {
    if (json.is_null()) return;
    read(key, json, value.emplace().count);
  }
  void read(const char* key, const Json& json, bool& value) {
    if (!json.is_bool()) return refuse(key, "must be true or false");
    value = json.as_bool();
  }
  void read(const char* key, const Json& json, std::string& value) {
    if (!json.is_string()) return refuse(key, "must be text");
    value = json.as_string();
  }
  void read(const char* key, const Json& json, Phase& value) {
    const std::optional<Phase> phase = json.is_string() ? phase_of(json.as_string()) : std::nullopt;
    if (!phase) return refuse(key, "must be the name of a phase");
    value = *phase;
  }
  void read(const char*, const Json& json, Json& value) { value = json; }

  std::string path_;
  const Json& object_;
  std::optional<Failure>& failure_;
};

Failure refusal(std::string rule) { return Failure{"control message", "", std::move(rule), ""}; }

// A default message of that kind.
template <std::size_t I = 0>
Message message_of_kind(std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<Message>) {
    if (index != I) return message_of_kind<I + 1>(index);
  }
  return Message(std::in_place_index<I>);
}

}  // namespace

std::string_view phase_name(Phase phase) { return kPhaseNames.at(static_cast<std::size_t>(phase)); }

std::optional<Phase> phase_of(std::string_view name) {
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
    if (kPhaseNames[i] == name) return static_cast<Phase>(i);
  }
  return std::nullopt;
}

bool is_for_workers(const Message& message) {
  return std::holds_alternative<StillHere>(message) || std::holds_alternative<Suspend>(message) ||
         std::holds_alternative<Stop>(message) || std::holds_alternative<AskFlightRecords>(message) ||
         std::holds_alternative<Kill>(message);
}

Json to_json(const Message& message) {
  Json::Object members{{"kind", Json(kKinds[message.index()])}};
  MemberWriter writer(members);
  Message copy = message;  // the lists of members are those of the reader, too
  std::visit([&](auto& one) { list(writer, one); }, copy);
  return members;
}

Result<Message> message_from_json(const Json& json) {
  if (!json.is_object()) return refusal("must be an object");
  const Json* kind = json.find("kind");
  if (kind == nullptr || !kind->is_string()) return refusal("must have a kind");
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] != kind->as_string()) continue;
    Message message = message_of_kind(i);
    std::optional<Failure> failure;
    MemberReader reader(std::string(kKinds[i]), json, failure);
    std::visit([&](auto& one) { list(reader, one); }, message);
    if (failure) return *failure;
    return message;
  }
  return refusal("is of an unknown kind");
}

std::string to_frame(const Message& message) {
  const std::string text = to_json(message).dump();
  TRIREME_CHECK_LE(text.size(), kMostMessageBytes);
  std::string frame;
  frame.reserve(kPrefixBytes + text.size());
  for (std::size_t i = 0; i < kPrefixBytes; ++i) frame += static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  return frame += text;
}

void FrameReader::add(std::string_view bytes) {
  if (refusal_) return;
  if (begin_ > bytes_.size() / 2) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_ += bytes;
}

Result<std::optional<Message>> FrameReader::next() {
  if (refusal_) return *refusal_;
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kPrefixBytes) return std::optional<Message>();
  std::size_t length = 0;
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
  }
  if (length > most_bytes_) {
    refusal_ = refusal(fmt::format("has {} bytes; at most {} are taken", length, most_bytes_));
  } else if (rest.size() - kPrefixBytes < length) {
    return std::optional<Message>();
  } else {
    const Result<Json> json = parse_json(rest.substr(kPrefixBytes, length), "control message");
    const Result<Message> message = json ? message_from_json(*json) : Result<Message>(json.failure());
    begin_ += kPrefixBytes + length;
    if (message) return std::optional<Message>(*message);
    refusal_ = message.failure();
  }
  bytes_.clear();
  bytes_.shrink_to_fit();
  begin_ = 0;
  return *refusal_;
}

}  // namespace trireme::telemetry
