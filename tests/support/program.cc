#include "support/program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

ProgramRun run_trireme(const std::string& arguments) {
  const char* program = std::getenv("TRIREME_PROGRAM");
  if (program == nullptr) {
    ADD_FAILURE() << "TRIREME_PROGRAM is not set";
    return {};
  }
  const std::string base = fmt::format("{}/trireme-program-{}", ::testing::TempDir(), ::getpid());
  const std::string command = fmt::format("'{}' {} > '{}.out' 2> '{}.err' < /dev/null", program, arguments, base, base);
  const int status = std::system(command.c_str());
  ProgramRun run{.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                 .out = contents(base + ".out"),
                 .error = contents(base + ".err")};
  std::filesystem::remove(base + ".out");
  std::filesystem::remove(base + ".err");
  return run;
}

}  // namespace trireme::testing
