#include "report/plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"

namespace trireme::report {
namespace {

using Line = std::vector<std::string>;  // one entry a column

// 1, 2 or 5 times a power of ten, so that `most` gets three to six ticks.
double round_step(double most) {
  const double rough = most / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// The window: where x and y lie in columns and rows, row 0 at the top.
struct Frame {
  double x_low, x_high, y_high;
  int columns, rows;

  int column(double x) const {
    const double position = (std::log(x) - std::log(x_low)) / (std::log(x_high) - std::log(x_low));
    return static_cast<int>(std::lround(position * (columns - 1)));
  }
  double x_of(int at) const { return x_low * std::pow(x_high / x_low, static_cast<double>(at) / (columns - 1)); }
  int row(double y) const { return rows - 1 - static_cast<int>(std::lround(y / y_high * (rows - 1))); }
  bool holds(int at_row, int at_column) const {
    return at_row >= 0 && at_row < rows && at_column >= 0 && at_column < columns;
  }
};

// The curve's value at x: linear in log x between its points.
double value_at(const std::vector<PlotPoint>& curve, double x) {
  const auto after = std::upper_bound(curve.begin() + 1, curve.end() - 1, x,
                                      [](double value, const PlotPoint& point) { return value < point.x; });
  const PlotPoint& a = *(after - 1);
  const PlotPoint& b = *after;
  return a.y + (b.y - a.y) * (std::log(x) - std::log(a.x)) / (std::log(b.x) - std::log(a.x));
}

// One connected line: a row for each column, corners and risers where the row changes.
void draw_curve(const Frame& frame, const std::vector<PlotPoint>& curve, std::vector<Line>& grid) {
  const auto put = [&](int row, int column, const char* piece) {
    if (frame.holds(row, column)) grid[row][column] = piece;
  };
  for (int column = 0; column < frame.columns; ++column) {
    const int here = frame.row(value_at(curve, frame.x_of(column)));
    const int before = column == 0 ? here : frame.row(value_at(curve, frame.x_of(column - 1)));
    put(here, column, "─");
    if (here == before) continue;
    const bool falls = here > before;  // rows count downward
    put(before, column, falls ? "╮" : "╯");
    put(here, column, falls ? "╰" : "╭");
    for (int row = std::min(here, before) + 1; row < std::max(here, before); ++row) put(row, column, "│");
  }
}

void draw_marks(const Frame& frame, const std::vector<PlotMark>& marks, std::vector<Line>& grid) {
  for (const PlotMark& mark : marks) {
    if (mark.at.x <= 0) continue;
    const int row = frame.row(mark.at.y);
    const int column = frame.column(mark.at.x);
    if (frame.holds(row, column)) grid[row][column] = mark.symbol;
  }
}

std::string trimmed_end(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// The axis with a notch at each tick, and the ticks' texts under it.
std::string x_axis(const Frame& frame, const std::vector<PlotTick>& ticks, std::size_t gutter) {
  Line axis(frame.columns, "─");
  std::string texts(gutter + 1 + frame.columns, ' ');
  std::size_t free_from = 0;
  for (const PlotTick& tick : ticks) {
    if (tick.x < frame.x_low * (1 - 1e-9) || tick.x > frame.x_high * (1 + 1e-9)) continue;
    const int column = frame.column(tick.x);
    const std::size_t center = gutter + 1 + column;
    const std::size_t size = tick.text.size();
    if (size > texts.size()) continue;
    const std::size_t begin = std::min(center - std::min(center, size / 2), texts.size() - size);
    if (begin < free_from) continue;
    texts.replace(begin, size, tick.text);
    free_from = begin + size + 2;
    axis[column] = "┬";
  }
  std::string line = fmt::format("{:>{}}└", "", gutter);
  for (const std::string& piece : axis) line += piece;
  return line + "\n" + trimmed_end(texts) + "\n";
}

std::string legend(const std::vector<PlotMark>& marks, std::size_t gutter) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const PlotMark& mark : marks) {
    if (mark.label.empty()) continue;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& candidate) { return candidate.first == mark.symbol; });
    if (entry == entries.end()) {
      entries.emplace_back(mark.symbol, mark.label);
    } else {
      entry->second += ", " + mark.label;
    }
  }
  std::string text;
  for (const auto& [symbol, labels] : entries) text += fmt::format("{:>{}} {} {}\n", "", gutter, symbol, labels);
  return text;
}

}  // namespace

std::string draw_plot(const Plot& plot) {
  TRIREME_CHECK_GE(plot.curve.size(), 2U);
  TRIREME_CHECK(plot.curve.front().x > 0 && plot.curve.front().x < plot.curve.back().x, "x must ascend from above 0");
  double most = 0;
  for (const PlotPoint& point : plot.curve) most = std::max(most, point.y);
  TRIREME_CHECK(most > 0 && std::isfinite(most), "the highest y is {}", most);
  const double step = round_step(most);
  const int steps = static_cast<int>(std::ceil(most / step - 1e-9));
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  const std::size_t gutter = fmt::format("{:.{}f}{}", steps * step, decimals, plot.y_unit).size() + 1;

  const Frame frame{.x_low = plot.curve.front().x,
                    .x_high = plot.curve.back().x,
                    .y_high = steps * step,
                    .columns = plot.width - static_cast<int>(gutter) - 1,
                    .rows = steps * std::max(1, static_cast<int>(std::lround((plot.height - 1.0) / steps))) + 1};
  TRIREME_CHECK(frame.columns >= 2 && frame.rows >= 2, "a plot of {} columns and {} lines", plot.width, plot.height);
  std::vector<Line> grid(frame.rows, Line(frame.columns, " "));
  std::vector<std::string> y_texts(frame.rows);
  for (int i = 0; i <= steps; ++i)
    y_texts[frame.row(i * step)] = fmt::format("{:.{}f}{}", i * step, decimals, plot.y_unit);
  draw_curve(frame, plot.curve, grid);
  draw_marks(frame, plot.marks, grid);

  std::string text = fmt::format("{}\n", plot.y_label);
  for (int row = 0; row < frame.rows; ++row) {
    std::string line = fmt::format("{:>{}} {}", y_texts[row], gutter - 1, y_texts[row].empty() ? "│" : "┤");
    for (const std::string& cell : grid[row]) line += cell;
    text += trimmed_end(line) + "\n";
  }
  text += x_axis(frame, plot.x_ticks, gutter);
  text += fmt::format("{:>{}}\n", plot.x_label, plot.width);
  return text + legend(plot.marks, gutter);
}

}  // namespace trireme::report
