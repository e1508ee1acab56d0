#include "telemetry/control_message.h"

#include <set>

#include <gtest/gtest.h>

#include "base/random.h"

namespace trireme::telemetry {
namespace {

OperationRecord record(std::optional<Seconds> completed) {
  return {12, "data", {0, 4}, 1, "all-reduce (sum) of 5 F32", Bytes{20}, Seconds{3.25}, completed};
}

// One of each kind, in the order of Message, with the text of its JSON.
std::vector<std::pair<Message, std::string>> samples() {
  return {
      {Hello{"s3cret", 4, true, {2, 3}, "b", 77},
       R"({"kind":"hello","secret":"s3cret","incarnation":4,"keeper":true,"ranks":[2,3],"host":"b","process":77})"},
      {Alive{{{1, 8, Phase::kBackward, 3, 1000}, {2, 9, Phase::kIdle, -1, 1001}}},
       R"({"kind":"alive","ranks":[{"rank":1,"step":8,"phase":"backward","micro_batch":3,"advances":1000},)"
       R"({"rank":2,"step":9,"phase":"idle","micro_batch":-1,"advances":1001}]})"},
      {StepDone{1, 8, 0.5, 0.25}, R"({"kind":"step_done","rank":1,"step":8,"step_s":0.5,"compute_s":0.25})"},
      {Resumed{8, true, 2e9}, R"({"kind":"resumed","step":8,"continues":true,"gemm_flops_per_s":2e+09})"},
      {Saved{8}, R"({"kind":"saved","step":8})"},
      {RankEnded{3, 88, "gone\n\"x\""}, R"({"kind":"rank_ended","rank":3,"code":88,"message":"gone\n\"x\""})"},
      {ProcessEnded{9, 0, {{2, 7, Phase::kSave, -1, 40}}},
       R"({"kind":"process_ended","signal":9,"code":0,"ranks":[{"rank":2,"step":7,"phase":"save","micro_batch":-1,)"
       R"("advances":40}]})"},
      {FlightRecords{1, {record(Seconds{3.5}), record(std::nullopt)}},
       R"({"kind":"flight_records","rank":1,"records":[{"sequence":12,"axis":"data","ranks":[0,4],"instance":1,)"
       R"("operation":"all-reduce (sum) of 5 F32","bytes":20,"posted_s":3.25,"completed_s":3.5},)"
       R"({"sequence":12,"axis":"data","ranks":[0,4],"instance":1,)"
       R"("operation":"all-reduce (sum) of 5 F32","bytes":20,"posted_s":3.25,"completed_s":null}]})"},
      {Outcome{"done", Json::object({{"loss", 2.5}}), true},
       R"({"kind":"outcome","text":"done","json":{"loss":2.5},"interrupted":true})"},
      {StopHeard{false}, R"({"kind":"stop_heard","preempted":false})"},
      {StillHere{}, R"({"kind":"still_here"})"},
      {Suspend{}, R"({"kind":"suspend"})"},
      {Stop{}, R"({"kind":"stop"})"},
      {AskFlightRecords{}, R"({"kind":"ask_flight_records"})"},
      {Kill{}, R"({"kind":"kill"})"},
  };
}

Json parsed(std::string_view text) { return parse_json(text, "test").or_throw(); }

std::string refusal_of(const Json& json) {
  const Result<Message> message = message_from_json(json);
  return message ? "accepted" : message.failure().sentence();
}

TEST(ControlMessage, IsThisText) {
  std::set<std::size_t> kinds;
  for (const auto& [message, text] : samples()) {
    EXPECT_EQ(to_json(message).dump(), text);
    const Result<Message> again = message_from_json(parsed(text));
    ASSERT_TRUE(again.ok()) << again.failure().sentence();
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(to_json(*again).dump(), text);
    kinds.insert(message.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Message>);
}

TEST(ControlMessage, ValuesArriveAsTheyWere) {
  const Message message = message_from_json(parsed(samples()[7].second)).or_throw();
  const auto& records = std::get<FlightRecords>(message).records;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].ranks, (std::vector<int>{0, 4}));
  EXPECT_EQ(records[0].bytes.count, 20);
  EXPECT_EQ(records[0].posted, Seconds{3.25});
  EXPECT_EQ(records[0].completed, Seconds{3.5});
  EXPECT_EQ(records[1].completed, std::nullopt);
}

TEST(ControlMessage, RecordsAreWrittenAsTheRecorderWritesThem) {
  const Json json = to_json(Message(FlightRecords{0, {record(Seconds{3.5}), record(std::nullopt)}}));
  EXPECT_EQ(*json.find("records"), Json(Json::Array{to_json(record(Seconds{3.5})), to_json(record(std::nullopt))}));
}

TEST(ControlMessage, PhasesHaveNames) {
  for (int i = 0; i <= static_cast<int>(Phase::kFinish); ++i) {
    const auto phase = static_cast<Phase>(i);
    EXPECT_EQ(phase_of(phase_name(phase)), phase);
  }
  EXPECT_EQ(phase_name(Phase::kForward), "forward");
  EXPECT_EQ(phase_name(Phase::kFinish), "finish");
  EXPECT_EQ(phase_of("forwards"), std::nullopt);
}

TEST(ControlMessage, SaysForWhomItIs) {
  for (const auto& [message, text] : samples()) {
    const bool expected = text.find("still_here") != std::string::npos || text.find("\"stop\"") != std::string::npos ||
                          text.find("suspend") != std::string::npos || text.find("ask_") != std::string::npos ||
                          text.find("kill") != std::string::npos;
    EXPECT_EQ(is_for_workers(message), expected) << text;
  }
}

TEST(ControlMessage, EachMemberMustBeThereAndOfItsType) {
  for (const auto& [message, text] : samples()) {
    const Json whole = to_json(message);
    for (std::size_t i = 1; i < whole.as_object().size(); ++i) {
      const std::string& key = whole.as_object()[i].first;
      const std::string name = whole.as_object()[0].second.as_string() + "." + key;
      Json::Object without = whole.as_object();
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_EQ(refusal_of(without), name + ": is missing");
      if (name == "outcome.json") continue;  // takes anything
      Json::Object wrong = whole.as_object();
      wrong[i].second = Json::object();
      EXPECT_EQ(refusal_of(wrong).rfind(name + ": must be ", 0), 0u) << refusal_of(wrong);
    }
    Json more = whole;
    more["of a later version"] = Json::array();
    EXPECT_EQ(refusal_of(more), "accepted");
  }
}

TEST(ControlMessage, RefusesWithTheRule) {
  EXPECT_EQ(refusal_of(nullptr), "control message: must be an object");
  EXPECT_EQ(refusal_of(Json::object()), "control message: must have a kind");
  EXPECT_EQ(refusal_of(Json::object({{"kind", 3}})), "control message: must have a kind");
  EXPECT_EQ(refusal_of(Json::object({{"kind", "greeting"}})), "control message: is of an unknown kind");
  const auto refused = [](std::string text) { return refusal_of(parsed(text)); };
  EXPECT_EQ(refused(R"({"kind":"rank_ended","rank":-1,"code":0,"message":""})"),
            "rank_ended.rank: must be a rank, 0 to 1048576");
  EXPECT_EQ(refused(R"({"kind":"rank_ended","rank":1048577,"code":0,"message":""})"),
            "rank_ended.rank: must be a rank, 0 to 1048576");
  EXPECT_EQ(refused(R"({"kind":"rank_ended","rank":1048576,"code":0,"message":""})"), "accepted");
  EXPECT_EQ(refused(R"({"kind":"rank_ended","rank":0,"code":2147483648,"message":""})"),
            "rank_ended.code: must be an integer of 32 bits");
  EXPECT_EQ(refused(R"({"kind":"saved","step":1.0})"), "saved.step: must be an integer");
  EXPECT_EQ(refused(R"({"kind":"alive","ranks":[7]})"), "alive.ranks[0]: must be an object");
  EXPECT_EQ(refused(R"({"kind":"alive","ranks":[{"rank":1,"step":8,"phase":"lost","micro_batch":3,"advances":1}]})"),
            "alive.ranks[0].phase: must be the name of a phase");
  EXPECT_EQ(
      refused(R"({"kind":"hello","secret":"","incarnation":1,"keeper":false,"ranks":[0,-2],"host":"","process":1})"),
      "hello.ranks: must be a rank, 0 to 1048576");
}

TEST(ControlMessage, ListsHaveABound) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  Json hello = to_json(Hello{});
  hello["ranks"] = Json::Array(kMost, Json(1));
  EXPECT_EQ(refusal_of(hello), "accepted");
  hello["ranks"].push_back(1);
  EXPECT_EQ(refusal_of(hello), "hello.ranks: must be a list of at most 1048576 entries");
}

std::string frame_of(std::string_view text) {
  std::string frame;
  for (int i = 0; i < 4; ++i) frame += static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  return frame.append(text);
}

TEST(Frame, IsLengthAndText) {
  EXPECT_EQ(to_frame(Stop{}), std::string("\x0F\0\0\0{\"kind\":\"stop\"}", 19));
  EXPECT_EQ(to_frame(Stop{}), frame_of(R"({"kind":"stop"})"));
}

TEST(Frame, IsCutOutOfAnyPieces) {
  std::string stream;
  for (const auto& [message, text] : samples()) stream += to_frame(message);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{64}, stream.size()}) {
    FrameReader reader(kMostMessageBytes);
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.add(std::string_view(stream).substr(at, piece));
      while (true) {
        const auto next = reader.next();
        ASSERT_TRUE(next.ok()) << next.failure().sentence();
        if (!*next) break;
        texts.push_back(to_json(**next).dump());
      }
    }
    ASSERT_EQ(texts.size(), samples().size());
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], samples()[i].second);
  }
}

TEST(Frame, TooLongIsRefusedBeforeItArrives) {
  FrameReader reader(15);
  reader.add(to_frame(Stop{}));  // of 15
  ASSERT_TRUE(reader.next().ok());
  reader.add(to_frame(StillHere{}).substr(0, 4));
  const auto next = reader.next();
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.failure().sentence(), "control message: has 21 bytes; at most 15 are taken");
  reader.add(to_frame(Stop{}));
  EXPECT_FALSE(reader.next().ok());  // for good
  EXPECT_FALSE(reader.next().ok());

  FrameReader larger(15);
  larger.set_most_bytes(21);
  larger.add(to_frame(StillHere{}));
  ASSERT_TRUE(larger.next().ok());

  FrameReader most(kMostMessageBytes);
  most.add(std::string(4, '\xFF'));
  EXPECT_FALSE(most.next().ok());
}

TEST(Frame, WhatIsNoMessageIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"kind\":\"hello\"}"),
        std::string(100'000, '['), std::string("\xFF\xFE")}) {
    FrameReader reader(kMostMessageBytes);
    reader.add(frame_of(text));
    const auto next = reader.next();
    ASSERT_FALSE(next.ok()) << text.substr(0, 40);
    EXPECT_FALSE(next.failure().sentence().empty());
  }
}

// A stream of random numbers.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_{seed, 0} {}
  std::size_t below(std::size_t bound) { return random_bits(key_, next_++) % bound; }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

std::string mutated_stream(Dice& dice, const std::vector<std::pair<Message, std::string>>& from) {
  static constexpr std::string_view kLikely = "{}[]\",:0123456789-.eEtfn\\u \x7F\xFF";
  std::string stream;
  const std::size_t frames = 1 + dice.below(3);
  for (std::size_t i = 0; i < frames; ++i) {
    std::string text = from[dice.below(from.size())].second;
    if (dice.below(8) == 0) {
      text.clear();
      for (std::size_t left = dice.below(60); left > 0; --left) text += static_cast<char>(dice.below(256));
    }
    for (std::size_t left = dice.below(4); left > 0 && !text.empty(); --left) {
      const std::size_t at = dice.below(text.size());
      const std::size_t how = dice.below(4);
      if (how == 0) text[at] = kLikely[dice.below(kLikely.size())];
      if (how == 1) text.erase(at, 1 + dice.below(8));
      if (how == 2) text.insert(at, text.substr(dice.below(text.size()), dice.below(16)));
      if (how == 3) text[at] = static_cast<char>(dice.below(256));
    }
    std::string frame = frame_of(text);
    if (dice.below(16) == 0) frame[dice.below(4)] = static_cast<char>(dice.below(256));
    stream += frame;
  }
  return stream;
}

TEST(Frame, RandomStreamsAreMessagesOrRefusals) {
  const auto from = samples();
  int messages = 0;
  int refusals = 0;
  for (std::uint64_t seed = 0; seed < 24'000; ++seed) {
    Dice dice(seed);
    const std::string stream = mutated_stream(dice, from);
    FrameReader reader(kMostHelloBytes);
    bool refused = false;
    for (std::size_t at = 0; at < stream.size() && !refused;) {
      const std::size_t piece = 1 + dice.below(200);
      reader.add(std::string_view(stream).substr(at, piece));
      at += piece;
      while (!refused) {
        const auto next = reader.next();
        refused = !next.ok();
        if (refused || !*next) break;
        const Json json = to_json(**next);
        const Message again = message_from_json(parsed(json.dump())).or_throw();
        ASSERT_EQ(to_json(again).dump(), json.dump()) << "seed " << seed;
        ++messages;
      }
    }
    if (!refused) continue;
    ASSERT_FALSE(reader.next().failure().sentence().empty()) << "seed " << seed;
    ++refusals;
  }
  // Both are met often.
  EXPECT_GT(messages, 5'000);
  EXPECT_GT(refusals, 5'000);
}

}  // namespace
}  // namespace trireme::telemetry
