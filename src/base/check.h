#pragma once

// Broken invariants. On in release; they print both operands and throw InternalError (exit code 70).
//   TRIREME_CHECK(ready, "gather of unit {} not finished", unit);
//   TRIREME_CHECK_EQ(view.rows, tokens);

#include <source_location>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace trireme::detail {

[[noreturn]] void check_failed(std::string_view expression, const std::string& operands, const std::string& message,
                               std::source_location where = std::source_location::current());

template <class A, class B>
[[noreturn]] void check_op_failed(std::string_view expression, const A& a, const B& b, std::source_location where) {
  check_failed(expression, fmt::format("{} against {}", a, b), "", where);
}

template <class... Args>
std::string check_message(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}
inline std::string check_message() { return {}; }

}  // namespace trireme::detail

#define TRIREME_CHECK(condition, ...)                                                                 \
  do {                                                                                                \
    if (!(condition)) [[unlikely]]                                                                    \
      ::trireme::detail::check_failed(#condition, "", ::trireme::detail::check_message(__VA_ARGS__)); \
  } while (false)

// Copies, not references: an operand may be a part of a temporary.
#define TRIREME_CHECK_OP_(a, op, b)                                                                               \
  do {                                                                                                            \
    const auto check_a_ = (a);                                                                                    \
    const auto check_b_ = (b);                                                                                    \
    if (!(check_a_ op check_b_)) [[unlikely]]                                                                     \
      ::trireme::detail::check_op_failed(#a " " #op " " #b, check_a_, check_b_, std::source_location::current()); \
  } while (false)

#define TRIREME_CHECK_EQ(a, b) TRIREME_CHECK_OP_(a, ==, b)
#define TRIREME_CHECK_NE(a, b) TRIREME_CHECK_OP_(a, !=, b)
#define TRIREME_CHECK_LT(a, b) TRIREME_CHECK_OP_(a, <, b)
#define TRIREME_CHECK_LE(a, b) TRIREME_CHECK_OP_(a, <=, b)
#define TRIREME_CHECK_GT(a, b) TRIREME_CHECK_OP_(a, >, b)
#define TRIREME_CHECK_GE(a, b) TRIREME_CHECK_OP_(a, >=, b)
