#pragma once

// What the program prints under --json.

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/json.h"
#include "support/program.h"

namespace trireme::testing {

// The program's JSON, which is all that it prints. `code`: the exit code that is expected.
inline Json json_of(const std::string& arguments, int code = 0) {
  const ProgramRun run = run_trireme(arguments + " --json");
  EXPECT_EQ(run.code, code) << arguments << "\n" << run.error;
  EXPECT_EQ(run.error, "");
  return parse_json(run.out, arguments).or_throw();
}

inline const Json& at(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  if (found == nullptr) throw InternalError("no key " + std::string(key) + " in " + object.dump());
  return *found;
}
inline double number(const Json& object, std::string_view key) { return at(object, key).as_number(); }

// The program's table, without a word on standard error.
inline std::string table_of(const std::string& arguments, int code = 0) {
  const ProgramRun run = run_trireme(arguments);
  EXPECT_EQ(run.code, code) << arguments << "\n" << run.error;
  EXPECT_EQ(run.error, "");
  return run.out;
}

}  // namespace trireme::testing
