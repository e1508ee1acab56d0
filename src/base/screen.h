#pragma once

// Standard error as people see it: lines, and on a terminal below them at most one that changes, the status. Whatever
// is written takes the status' place and shows it again below, so that the two never share a line. Another process may
// write to the same terminal: a line begins by clearing what stands where it goes. Thread-safe.

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Parts of a line, in the order of what they matter: where a line is too long, parts are left out whole from its end.
using Fields = std::vector<std::string>;

class Screen {
 public:
  // put: takes what is written, as it is. columns: of the terminal, asked for each time, since windows change; 0: it is
  // no terminal, and then lines are written and a status is not.
  Screen(std::function<void(std::string_view)> put, std::function<int()> columns);
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool is_terminal() const { return columns_() > 0; }
  // Whole, however long.
  void line(std::string_view text);
  // In place of the status before.
  void status(const Fields& fields);
  // A line for good in place of the status: whole, on a terminal folded between fields.
  void keep(const Fields& fields);
  void clear_status();

 private:
  std::string cleared(int columns) const;

  const std::function<void(std::string_view)> put_;
  const std::function<int()> columns_;
  std::mutex mutex_;
  Fields status_;  // empty: none
};

// Columns of the terminal that standard error is, or 0. A terminal that does not know its size has 80.
int stderr_columns();
// As it is; what cannot be written is lost: messages are not worth the end of a run.
void write_to_stderr(std::string_view text);

}  // namespace trireme
