#include "base/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trireme {
namespace {

constexpr std::string_view kBetween = "  ";

// The last column stays free: some terminals begin a new row once it is written.
std::size_t usable(int columns) { return static_cast<std::size_t>(std::max(columns - 1, 0)); }

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }  // UTF-8

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string_view cut(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && columns-- == 0) break;
  }
  return text.substr(0, end);
}

// What there is room for; of the first field at least a part.
std::string fitted(const Fields& fields, std::size_t columns) {
  std::string line;
  for (const std::string& field : fields) {
    if (line.empty()) {
      line = cut(field, columns);
      if (line != field) break;
      continue;
    }
    if (width_of(line) + kBetween.size() + width_of(field) > columns) break;
    line += kBetween;
    line += field;
  }
  return line;
}

// All fields, in rows that begin with blanks from the second on.
std::string folded(const Fields& fields, std::size_t columns) {
  std::string rows;
  std::size_t width = 0;
  for (const std::string& field : fields) {
    if (!rows.empty() && width + kBetween.size() + width_of(field) > columns) {
      rows += '\n';
      width = 0;
    }
    if (!rows.empty()) {
      rows += kBetween;
      width += kBetween.size();
    }
    rows += field;
    width += width_of(field);
  }
  return rows;
}

}  // namespace

Screen::Screen(std::function<void(std::string_view)> put, std::function<int()> columns)
    : put_(std::move(put)), columns_(std::move(columns)) {}

// Blanks instead of a control sequence: every terminal knows them.
std::string Screen::cleared(int columns) const {
  if (columns == 0) return "";
  return "\r" + std::string(usable(columns), ' ') + "\r";
}

void Screen::line(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  const int columns = columns_();
  std::string all = cleared(columns);
  all += text;
  all += '\n';
  if (columns > 0) all += fitted(status_, usable(columns));
  put_(all);
}

void Screen::status(const Fields& fields) {
  const std::scoped_lock lock(mutex_);
  const int columns = columns_();
  if (columns == 0) return;
  const std::size_t before = width_of(fitted(status_, usable(columns)));
  status_ = fields;
  std::string line = fitted(fields, usable(columns));
  const std::size_t now = width_of(line);
  if (before > now) line += std::string(before - now, ' ');
  put_("\r" + line);
}

void Screen::keep(const Fields& fields) {
  const std::scoped_lock lock(mutex_);
  const int columns = columns_();
  status_.clear();
  put_(cleared(columns) + folded(fields, columns == 0 ? std::string::npos / 2 : usable(columns)) + "\n");
}

void Screen::clear_status() {
  const std::scoped_lock lock(mutex_);
  if (status_.empty()) return;
  status_.clear();
  put_(cleared(columns_()));
}

int stderr_columns() {
  constexpr int kUsual = 80;
  if (::isatty(STDERR_FILENO) != 1) return 0;
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace trireme
