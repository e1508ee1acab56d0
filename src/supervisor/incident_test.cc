#include "supervisor/incident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_env.h"

namespace trireme::supervisor {
namespace {

using testing::HasSubstr;

Incident example_incident() {
  return {.kind = FailureKind::kHung,
          .incarnation = 3,
          .ranks = {2, 5},
          .host = "b",
          .step = 120,
          .phase = "backward",
          .signal = 9,
          .code = 86,
          .detected_after_s = 1.25,
          .message = "ranks 2, 5 get no further",
          .action = "leave out b",
          .layout_before = "dp4 tp2",
          .wall_time = "2026-01-02T03:04:05Z"};
}
Recovery example_recovery() {
  return {.incarnation = 4,
          .of_incarnation = 3,
          .steps_lost = 7,
          .end_s = 0.5,
          .wait_s = 1,
          .launch_s = 2,
          .load_s = 4,
          .repeat_s = 8,
          .next_s = 16,
          .layout_before = "dp4 tp2",
          .layout_after = "dp3 tp2",
          .wall_time = "2026-01-02T03:04:25Z"};
}

constexpr const char* kIncidentLine =
    R"({"event":"failure","kind":"hung","incarnation":3,"ranks":[2,5],"host":"b","step":120,"phase":"backward",)"
    R"("signal":9,"code":86,"detected_after_s":1.25,"message":"ranks 2, 5 get no further","action":"leave out b",)"
    R"("layout_before":"dp4 tp2","wall_time":"2026-01-02T03:04:05Z"})";
constexpr const char* kRecoveryLine =
    R"({"event":"recovery","incarnation":4,"of_incarnation":3,"steps_lost":7,"end_s":0.5,"wait_s":1.0,)"
    R"("launch_s":2.0,"load_s":4.0,"repeat_s":8.0,"next_s":16.0,"total_s":31.5,"layout_before":"dp4 tp2",)"
    R"("layout_after":"dp3 tp2","wall_time":"2026-01-02T03:04:25Z"})";

TEST(Incident, LinesAreAsTheFormatSays) {
  EXPECT_EQ(to_json(example_incident()).dump(), kIncidentLine);
  EXPECT_EQ(to_json(example_recovery()).dump(), kRecoveryLine);
}

TEST(Incident, ComesBackFromItsLine) {
  EXPECT_EQ(incident_from_json(*parse_json(kIncidentLine, "line")).value(), example_incident());
  EXPECT_EQ(recovery_from_json(*parse_json(kRecoveryLine, "line")).value(), example_recovery());
  for (const FailureKind kind : {FailureKind::kDied, FailureKind::kFailed, FailureKind::kHung, FailureKind::kHostLost,
                                 FailureKind::kSlow, FailureKind::kNotStarted, FailureKind::kSupervisor}) {
    EXPECT_EQ(failure_of(failure_name(kind)), kind);
    EXPECT_EQ(incident_from_json(to_json(Incident{.kind = kind})).value(), Incident{.kind = kind});
  }
  EXPECT_EQ(failure_of("bored"), std::nullopt);
}

TEST(Incident, RefusesEachMemberThatIsMissingOrWrong) {
  const Json failure = to_json(example_incident());
  const Json recovery = to_json(example_recovery());
  for (const Json& line : {failure, recovery}) {
    for (const auto& [key, value] : line.as_object()) {
      if (key == "total_s") continue;  // for readers; not read back
      Json without = Json::object();
      for (const auto& [other, kept] : line.as_object()) {
        if (other != key) without[other] = kept;
      }
      Json wrong = line;
      wrong[key] = Json::object();
      for (const Json& bad : {without, wrong}) {
        const auto refusal = line == failure ? incident_from_json(bad).failure() : recovery_from_json(bad).failure();
        EXPECT_EQ(refusal.option, key);
      }
    }
  }
  Json bad = failure;
  bad["ranks"] = Json(Json::Array{Json(-1)});
  EXPECT_THAT(incident_from_json(bad).failure().sentence(), HasSubstr("must be ranks from 0"));
  bad = failure;
  bad["signal"] = std::int64_t{1} << 40;
  EXPECT_THAT(incident_from_json(bad).failure().sentence(), HasSubstr("32 bits"));
  EXPECT_THAT(recovery_from_json(failure).failure().sentence(), HasSubstr("must be \"recovery\""));
}

TEST(Incident, LinesAreAppendedWholeAndReadInTheirOrder) {
  FakeEnv env;
  env.make_directories("/out");
  env.sync_directory("/");
  EXPECT_TRUE(read_incidents(env, "/out")->empty());
  append_incident(env, "/out", to_json(example_incident()));
  append_incident(env, "/out", to_json(example_recovery()));
  env.lose_power();
  EXPECT_EQ(env.content("/out/incidents.jsonl"), std::string(kIncidentLine) + "\n" + kRecoveryLine + "\n");
  const std::vector<IncidentLine> lines = read_incidents(env, "/out").value();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(std::get<Incident>(lines[0]), example_incident());
  EXPECT_EQ(std::get<Recovery>(lines[1]), example_recovery());
}

TEST(Incident, ALastLineThatWasCutOffIsPassedOverAndDropped) {
  const std::string whole = std::string(kIncidentLine) + "\n";
  const std::string line = kRecoveryLine;
  std::string zeros = line + "\n";
  zeros.replace(10, 40, std::string(40, '\0'));  // the end of a write without its middle
  for (const std::string& cut : {line.substr(0, 1), line.substr(0, line.size() / 2), line, zeros}) {
    FakeEnv env;
    env.make_directories("/out");
    env.put_file(incidents_of("/out"), whole + cut);
    EXPECT_EQ(read_incidents(env, "/out")->size(), 1U);
    append_incident(env, "/out", to_json(example_recovery()));
    EXPECT_EQ(env.content(incidents_of("/out")), whole + kRecoveryLine + "\n");
    env.put_file(incidents_of("/out"), cut);
    EXPECT_TRUE(read_incidents(env, "/out")->empty());
  }
}

TEST(Incident, ALineInTheMiddleThatIsNoneIsRefusedByItsNumber) {
  FakeEnv env;
  env.put_file(incidents_of("/out"), std::string(kIncidentLine) + "\n{\"event\":\"party\"}\n" + kRecoveryLine + "\n");
  EXPECT_THAT(read_incidents(env, "/out").failure().sentence(), HasSubstr("line 2: event"));
}

// What was appended before is there after any power loss or full disk, and nothing but whole lines is read.
TEST(Incident, NoPowerLossTakesALineThatWasAppended) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    FakeEnv env;
    env.make_directories("/out");
    env.sync_directory("/");
    append_incident(env, "/out", to_json(example_incident()));
    env.fail_from_operation(1 + static_cast<std::int64_t>(seed % 8));
    bool appended = true;
    try {
      append_incident(env, "/out", to_json(example_recovery()));
    } catch (const Error&) {
      appended = false;
    }
    env.lose_power(seed);
    const std::size_t lines = read_incidents(env, "/out")->size();
    EXPECT_GE(lines, appended ? 2U : 1U) << seed;
    Recovery later = example_recovery();
    ++later.incarnation;
    for (int attempt = 0; attempt < 2; ++attempt) append_incident(env, "/out", to_json(later));  // the same: once
    EXPECT_EQ(read_incidents(env, "/out")->size(), lines + 1) << seed;
  }
}

}  // namespace
}  // namespace trireme::supervisor
