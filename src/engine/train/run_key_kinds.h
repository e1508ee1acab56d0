#pragma once

// The kinds of keys of a run.toml: how the value of one is read, refused and given back.

#include <cmath>
#include <limits>

#include "base/missing_unit.h"
#include "engine/train/run_keys.h"

namespace trireme::train {

template <class T>
using Field = std::function<T&(RunConfig&)>;

template <class T>
T read(const Field<T>& field, const RunConfig& config) {
  return field(const_cast<RunConfig&>(config));  // a reference is read, never written, here
}

inline RunKey text_key(std::string name, std::string help, Field<std::string> field) {
  return {.name = name,
          .kind = "text",
          .help = std::move(help),
          .set = [name, field](RunConfig& config, const Json& value) -> Status {
            if (!value.is_string()) return wrong(name, value.dump(), "must be text");
            field(config) = value.as_string();
            return ok_status();
          },
          .get = [field](const RunConfig& config) { return Json(read(field, config)); }};
}

template <class Integer>
RunKey integer_key(std::string name, std::string help, Field<Integer> field, std::int64_t least,
                   std::int64_t most = std::int64_t{1} << 62) {
  return {.name = name,
          .kind = "integer",
          .help = std::move(help),
          .set = [name, field, least, most](RunConfig& config, const Json& value) -> Status {
            if (!value.is_integer()) return wrong(name, value.dump(), "must be an integer");
            const std::int64_t n = value.as_integer();
            if (n < least)
              return wrong(name, value.dump(), fmt::format("must be at least {}", least), fmt::format("{}", least));
            const std::int64_t highest = std::min<std::int64_t>(
                most, sizeof(Integer) < sizeof(n) ? std::int64_t{std::numeric_limits<int>::max()} : most);
            if (n > highest) {
              return wrong(name, value.dump(), fmt::format("must be at most {}", highest), fmt::format("{}", highest));
            }
            field(config) = static_cast<Integer>(n);
            return ok_status();
          },
          .get = [field](const RunConfig& config) { return Json(static_cast<std::int64_t>(read(field, config))); }};
}

inline RunKey number_key(std::string name, std::string help, Field<double> field, double least, double below) {
  return {.name = name,
          .kind = "number",
          .help = std::move(help),
          .set = [name, field, least, below](RunConfig& config, const Json& value) -> Status {
            if (!value.is_number()) return wrong(name, value.dump(), "must be a number");
            const double x = value.as_number();
            if (!(x >= least && x < below)) {
              return wrong(name, value.dump(), fmt::format("must be in [{}, {})", least, below));
            }
            field(config) = x;
            return ok_status();
          },
          .get = [field](const RunConfig& config) { return Json(read(field, config)); }};
}

inline RunKey flag_key(std::string name, std::string help, Field<bool> field) {
  return {.name = name,
          .kind = "true or false",
          .help = std::move(help),
          .set = [name, field](RunConfig& config, const Json& value) -> Status {
            if (!value.is_bool()) return wrong(name, value.dump(), "must be true or false");
            field(config) = value.as_bool();
            return ok_status();
          },
          .get = [field](const RunConfig& config) { return Json(read(field, config)); }};
}

// A key whose text is one of a few words.
template <class T>
RunKey word_key(std::string name, std::string help, Field<T> field, Result<T> (*parse)(std::string_view),
                std::string_view (*print)(T)) {
  return {.name = name,
          .kind = "text",
          .help = std::move(help),
          .set = [name, field, parse](RunConfig& config, const Json& value) -> Status {
            if (!value.is_string()) return wrong(name, value.dump(), "must be text");
            Result<T> parsed = parse(value.as_string());
            if (!parsed) {
              Failure failure = parsed.failure();
              failure.option = name;
              return failure;
            }
            field(config) = std::move(parsed).value();
            return ok_status();
          },
          .get = [field, print](const RunConfig& config) { return Json(std::string(print(read(field, config)))); }};
}

// Bytes with their unit, "8GB"; "" is zero bytes.
inline RunKey bytes_key(std::string name, std::string help, Field<Bytes> field) {
  return {.name = name,
          .kind = "text",
          .help = std::move(help),
          .set = [name, field](RunConfig& config, const Json& value) -> Status {
            if (!value.is_string()) return wrong(name, value.dump(), "must be text with a unit", "\"8GB\"");
            field(config) = Bytes{};
            if (value.as_string().empty()) return ok_status();
            const Result<Bytes> bytes = parse_memory(value.as_string());
            if (!bytes) return wrong(name, value.as_string(), bytes.failure().rule, bytes.failure().nearest);
            if (bytes->count < 1) return wrong(name, value.as_string(), "must be above 0", "8GB");
            field(config) = *bytes;
            return ok_status();
          },
          .get =
              [field](const RunConfig& config) {
                const Bytes bytes = read(field, config);
                return Json(bytes.count == 0 ? std::string() : fmt::format("{}B", bytes.count));
              }};
}

// Seconds, as a number (120) or as text with its unit ("2min"); at least `least`, below `below`.
inline RunKey seconds_key(std::string name, std::string help, Field<double> field, Seconds least, Seconds below) {
  return {.name = name,
          .kind = "seconds",
          .help = std::move(help),
          .set = [name, field, least, below](RunConfig& config, const Json& value) -> Status {
            if (!value.is_number() && !value.is_string()) {
              return wrong(name, value.dump(), "must be seconds, or text with a unit", "30, \"10min\"");
            }
            const Result<Seconds> time =
                value.is_number() ? Result<Seconds>(Seconds{value.as_number()}) : parse_seconds(value.as_string());
            if (!time) return wrong(name, value.as_string(), time.failure().rule, time.failure().nearest);
            if (!(*time >= least && *time < below)) {
              return wrong(name, value.dump(), fmt::format("must be in [{}, {}) seconds", least.count, below.count));
            }
            field(config) = time->count;
            return ok_status();
          },
          .get = [field](const RunConfig& config) { return Json(read(field, config)); }};
}

struct TimeRange {
  Seconds least, most;
  bool may_be_empty = false;  // "" is zero: not given
};

// A duration with its unit, "50h".
inline RunKey time_key(std::string name, std::string help, Field<Seconds> field, TimeRange range) {
  return {.name = name,
          .kind = "text",
          .help = std::move(help),
          .set = [name, field, range](RunConfig& config, const Json& value) -> Status {
            if (!value.is_string()) return wrong(name, value.dump(), "must be text with a unit", "30s, 10min, 50h");
            const std::string& text = value.as_string();
            field(config) = Seconds{};
            if (text.empty() && range.may_be_empty) return ok_status();
            const Result<Seconds> time = parse_seconds(text);
            const bool is_number = !text.empty() && text.front() >= '0' && text.front() <= '9';
            if (!time && is_number) return wrong(name, text, time.failure().rule, time.failure().nearest);
            if (!time || !(*time >= range.least && *time <= range.most)) {
              return wrong(
                  name, text.empty() ? "\"\"" : text,
                  fmt::format("must be a time from {} to {}", duration_text(range.least), duration_text(range.most)),
                  time ? duration_text(*time < range.least ? range.least : range.most) : "1s, 1min");
            }
            field(config) = *time;
            return ok_status();
          },
          .get =
              [field](const RunConfig& config) {
                const Seconds time = read(field, config);
                return Json(time.count == 0 ? std::string() : fmt::format("{}s", time.count));
              }};
}

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

}  // namespace trireme::train
