#include "base/screen.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// What a terminal of some width shows, row by row; a row that is full goes on in the next, as terminals do.
class Shown {
 public:
  explicit Shown(int columns) : columns_(columns) {}
  void put(std::string_view text) {
    for (char c : text) {
      if (c == '\r') {
        at_ = 0;
      } else if (c == '\n') {
        next_row();
      } else if (columns_ > 0) {
        if (at_ == static_cast<std::size_t>(columns_)) next_row();
        std::string& row = rows_.back();
        row.resize(std::max(row.size(), at_ + 1), ' ');
        row[at_++] = c;
      }
    }
  }
  // Without blanks at the ends of rows.
  std::vector<std::string> rows() const {
    std::vector<std::string> rows = rows_;
    for (std::string& row : rows) row.erase(row.find_last_not_of(' ') + 1);
    return rows;
  }
  void resize(int columns) { columns_ = columns; }
  int columns() const { return columns_; }

 private:
  void next_row() {
    rows_.emplace_back();
    at_ = 0;
  }
  int columns_;
  std::size_t at_ = 0;
  std::vector<std::string> rows_{""};
};

struct Terminal {
  explicit Terminal(int columns) : shown(columns) {}
  Shown shown;
  Screen screen{[this](std::string_view text) { shown.put(text); }, [this] { return shown.columns(); }};
};

using Rows = std::vector<std::string>;

TEST(Screen, ALineAndTheStatusNeverShareARow) {
  Terminal terminal(40);
  terminal.screen.status({"step 1/9", "loss 5.5452"});
  terminal.screen.line("warning: slow");
  EXPECT_EQ(terminal.shown.rows(), (Rows{"warning: slow", "step 1/9  loss 5.5452"}));
  terminal.screen.status({"step 2/9"});
  EXPECT_EQ(terminal.shown.rows(), (Rows{"warning: slow", "step 2/9"}));
  terminal.screen.line("a line that is longer than the forty columns of the terminal");
  EXPECT_EQ(terminal.shown.rows(),
            (Rows{"warning: slow", "a line that is longer than the forty col", "umns of the terminal", "step 2/9"}));
}

TEST(Screen, AnotherProcessesLinesClearTheStatusToo) {
  Terminal terminal(40);
  terminal.screen.status({"step 1/9", "loss 5.5452"});
  Screen other([&](std::string_view text) { terminal.shown.put(text); }, [] { return 40; });
  other.line("supervisor: died");
  EXPECT_EQ(terminal.shown.rows(), (Rows{"supervisor: died", ""}));
  terminal.screen.status({"step 2/9"});
  EXPECT_EQ(terminal.shown.rows(), (Rows{"supervisor: died", "step 2/9"}));
}

TEST(Screen, AStatusIsOfWholeFieldsThatFit) {
  const Fields fields{"step 1/9", "loss 5.5452", "31.2k tok/s", "ETA 0:42"};
  for (const auto& [columns, row] :
       std::vector<std::pair<int, std::string>>{{80, "step 1/9  loss 5.5452  31.2k tok/s  ETA 0:42"},
                                                {45, "step 1/9  loss 5.5452  31.2k tok/s  ETA 0:42"},
                                                {44, "step 1/9  loss 5.5452  31.2k tok/s"},
                                                {22, "step 1/9  loss 5.5452"},
                                                {21, "step 1/9"},
                                                {9, "step 1/9"},
                                                {8, "step 1/"},
                                                {2, "s"},
                                                {1, ""}}) {
    Terminal terminal(columns);
    terminal.screen.status(fields);
    terminal.screen.status(fields);
    EXPECT_EQ(terminal.shown.rows(), Rows{row}) << columns;
  }
}

TEST(Screen, WhatIsKeptIsWholeAndFoldedBetweenFields) {
  const Fields fields{"step 9/9", "loss 5.5452", "validation 5.6001", "ETA 0:00"};
  Terminal wide(80), narrow(30), least(1);
  wide.screen.keep(fields);
  EXPECT_EQ(wide.shown.rows(), (Rows{"step 9/9  loss 5.5452  validation 5.6001  ETA 0:00", ""}));
  narrow.screen.status({"step 8/9"});
  narrow.screen.keep(fields);
  EXPECT_EQ(narrow.shown.rows(), (Rows{"step 9/9  loss 5.5452", "  validation 5.6001  ETA 0:00", ""}));
  least.screen.keep(fields);
  std::string all;
  for (const std::string& row : least.shown.rows()) all += row;
  EXPECT_EQ(all, "step9/9loss5.5452validation5.6001ETA0:00");
}

TEST(Screen, TheWidthIsAskedForEachTime) {
  Terminal terminal(60);
  const Fields fields{"step 1/9", "loss 5.5452", "31.2k tok/s"};
  terminal.screen.status(fields);
  terminal.shown.resize(20);
  terminal.screen.line("x");
  terminal.screen.status(fields);
  EXPECT_EQ(terminal.shown.rows().back(), "step 1/9");
  terminal.shown.resize(60);
  terminal.screen.status(fields);
  EXPECT_EQ(terminal.shown.rows().back(), "step 1/9  loss 5.5452  31.2k tok/s");
}

TEST(Screen, NoCharacterIsCut) {
  Terminal terminal(4);
  std::string out;
  Screen screen([&](std::string_view text) { out += text; }, [] { return 4; });
  screen.status({"größer"});
  EXPECT_EQ(out, "\rgrö");
}

TEST(Screen, ElsewhereLinesAndNoStatus) {
  std::string out;
  Screen screen([&](std::string_view text) { out += text; }, [] { return 0; });
  EXPECT_FALSE(screen.is_terminal());
  screen.status({"step 1/9"});
  screen.line("a line");
  screen.keep({"step 2/9", "loss 1.0"});
  screen.clear_status();
  EXPECT_EQ(out, "a line\nstep 2/9  loss 1.0\n");
}

TEST(Screen, AClearedStatusDoesNotComeBack) {
  Terminal terminal(40);
  terminal.screen.status({"1.00 MB of 2.00 MB"});
  terminal.screen.clear_status();
  terminal.screen.line("whole");
  EXPECT_EQ(terminal.shown.rows(), (Rows{"whole", ""}));
}

}  // namespace
}  // namespace trireme
